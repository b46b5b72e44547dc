"""Builds jobs from stored rows: all jobs at the start, and one job after another writer changed its rows."""

from collections.abc import Iterable

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.ports import Row
from colo_jobs.job import Job
from colo_jobs.records import JOB_KIND, PAGE_REPLICAS, decode_job, decode_page, decode_spec, page_count, page_id

__all__ = ["Loaded", "jobs_of_rows"]


class Loaded(Struct, frozen=True, kw_only=True):
    """The jobs of the rows in order of id, and the ids of those that cannot be read, with one text for each."""

    jobs: tuple[Job, ...]
    unreadable: dict[str, str]


def jobs_of_rows(specs: Iterable[Row], jobs: Iterable[Row], pages: Iterable[Row]) -> Loaded:
    """Build jobs from their rows. A job with a missing or unreadable row is left out and is one of `unreadable`."""
    spec_rows = {row.id: row for row in specs}
    page_rows = {row.id: row for row in pages}
    found = []
    unreadable = {}
    for row in sorted(jobs, key=lambda row: row.id):
        try:
            found.append(_job(row, spec_rows, page_rows))
        except InvalidInput as error:
            unreadable[row.id] = str(error)
    return Loaded(jobs=tuple(found), unreadable=unreadable)


def _job(row: Row, specs: dict[str, Row], pages: dict[str, Row]) -> Job:
    if row.id not in specs:
        raise InvalidInput(f"{JOB_KIND}/{row.id}", "has no specification", None)
    spec = decode_spec(specs[row.id].value, row.id)
    record = decode_job(row.value, row.id)
    if len(record.tasks) != len(spec.tasks):
        raise InvalidInput(f"{JOB_KIND}/{row.id}", "must have the tasks of its specification", len(record.tasks))
    records = []
    versions = []
    for page in range(page_count(spec.replica_count)):
        id_ = page_id(row.id, page)
        if id_ not in pages:
            raise InvalidInput(f"{JOB_KIND}/{row.id}", f"lacks the replicas of page {page}", None)
        records.append(decode_page(pages[id_].value, id_))
        versions.append(pages[id_].version)
        expected = min(PAGE_REPLICAS, spec.replica_count - page * PAGE_REPLICAS)
        if len(records[-1].replicas) != expected:
            raise InvalidInput(
                f"{JOB_KIND}/{row.id}", f"page {page} must hold {expected} replicas", len(records[-1].replicas)
            )
    return Job(spec, record, records, version=row.version, page_versions=versions)
