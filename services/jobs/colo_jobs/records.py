"""What the store keeps of a job: its specification (never rewritten), its state, and its replicas in pages."""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.workload import JobSpec
from colo_jobs.story import Line, check_moves

__all__ = [
    "JOB_KIND",
    "PAGE_KIND",
    "PAGE_REPLICAS",
    "SPEC_KIND",
    "JobRecord",
    "PageRecord",
    "ReplicaRecord",
    "TaskRecord",
    "decode_job",
    "decode_page",
    "decode_spec",
    "encode",
    "page_count",
    "page_id",
]

SPEC_KIND: Final = "job-spec"
JOB_KIND: Final = "job"
PAGE_KIND: Final = "replica-page"

# A change of one replica rewrites one page: a few kB. A job of 10,000 replicas is 313 pages, which with its two other rows
# fits into one write of the store (500 rows), so a job is always stored whole or not at all.
PAGE_REPLICAS: Final = 32

# Of most jobs; an id is asked for at every write.
_PAGE_NUMBERS: Final = tuple(f"/{page:04d}" for page in range(32))

_SCHEMA: Final = 1
# 1 had all lines of its story as sentences; such pages are read as well.
_PAGE_SCHEMA: Final = 2
_T = TypeVar("_T")


class ReplicaRecord(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One replica. A replica that was never placed is stored as {}.

    `attempt` fences: reports of a lower one are late. `due_ms` is the one timer that its state may have: the retry of Backoff,
    the lost time of Unknown and Stopping; 0 is none. `missing`: its node came back and did not name it. `queued_at_ms` 0: since
    the job was submitted.
    """

    state: str = REPLICA.initial
    attempt: int = 1
    node: str = ""
    zones: tuple[int, ...] = ()
    retries: int = 0
    evictions: int = 0
    losses: int = 0
    exit_code: int | None = None
    reason: str = ""
    due_ms: int = 0
    missing: bool = False
    started_at_ms: int = 0
    queued_at_ms: int = 0
    avoid: tuple[tuple[str, int], ...] = ()


class TaskRecord(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One task. `result` is fixed when its rule is met or it is stopped: succeeded, failed or stopped."""

    state: str = TASK.initial
    result: str = ""


class JobRecord(Struct, kw_only=True, gc=False):
    """The state of a job and its tasks. `submit_trace` is the trace id of the request that brought it."""

    job: str
    submitted_at_ms: int
    tasks: list[TaskRecord]
    state: str = JOB.initial
    ended_at_ms: int | None = None
    submit_trace: str = ""
    story: list[Line] = field(default_factory=list)
    schema: int = _SCHEMA


class PageRecord(Struct, kw_only=True, gc=False):
    """Up to PAGE_REPLICAS consecutive replicas of a job, counted over its tasks in order, and what happened to them."""

    replicas: list[ReplicaRecord]
    story: list[Line] = field(default_factory=list)
    schema: int = _PAGE_SCHEMA


_ENCODER: Final = msgspec.json.Encoder()
_JOB_DECODER: Final = msgspec.json.Decoder(JobRecord)
_PAGE_DECODER: Final = msgspec.json.Decoder(PageRecord)
_SPEC_DECODER: Final = msgspec.json.Decoder(JobSpec)


def encode(record: JobRecord | PageRecord | JobSpec) -> bytes:
    """The row's value."""
    return _ENCODER.encode(record)


def decode_job(value: bytes, id_: str) -> JobRecord:
    """The job of a row. Raises InvalidInput when it is not one, or one of a schema or state that this version does not know."""
    record = _decoded(_JOB_DECODER, value, JOB_KIND, id_)
    _known_schema(record.schema, (_SCHEMA,), JOB_KIND, id_)
    check_moves(record.story, 0, f"{JOB_KIND}/{id_}")
    if record.job != id_:
        raise InvalidInput(f"{JOB_KIND}/{id_}", "must hold the job of that id", record.job)
    _known_state(record.state, JOB.state_names, f"{JOB_KIND}/{id_}")
    for task in record.tasks:
        _known_state(task.state, TASK.state_names, f"{JOB_KIND}/{id_}")
    return record


def decode_page(value: bytes, id_: str) -> PageRecord:
    """The page of a row. Raises InvalidInput as `decode_job` does."""
    record = _decoded(_PAGE_DECODER, value, PAGE_KIND, id_)
    _known_schema(record.schema, (_SCHEMA, _PAGE_SCHEMA), PAGE_KIND, id_)
    for replica in record.replicas:
        _known_state(replica.state, REPLICA.state_names, f"{PAGE_KIND}/{id_}")
    check_moves(record.story, len(record.replicas), f"{PAGE_KIND}/{id_}")
    # It is written as this version writes pages.
    record.schema = _PAGE_SCHEMA
    return record


def decode_spec(value: bytes, id_: str) -> JobSpec:
    """The specification of a row. Raises InvalidInput when it is not one."""
    return _decoded(_SPEC_DECODER, value, SPEC_KIND, id_)


def page_count(replicas: int) -> int:
    """How many pages hold that many replicas, rounded up."""
    return -(-replicas // PAGE_REPLICAS)


def page_id(job: str, page: int) -> str:
    """The id of a page row; four digits keep a job's pages in order."""
    return job + _PAGE_NUMBERS[page] if page < len(_PAGE_NUMBERS) else f"{job}/{page:04d}"


def _decoded(decoder: msgspec.json.Decoder[_T], value: bytes, kind: str, id_: str) -> _T:
    try:
        return decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{kind}/{id_}", f"cannot be read: {error}", value) from error


def _known_schema(schema: int, known: tuple[int, ...], kind: str, id_: str) -> None:
    if schema not in known:
        names = " and ".join(map(str, known))
        raise InvalidInput(f"{kind}/{id_}", f"has a schema that this version does not know; it knows {names}", schema)


def _known_state(state: str, known: tuple[str, ...], field_: str) -> None:
    if state not in known:
        raise InvalidInput(field_, f"has an unknown state; known: {' '.join(known)}", state)
