"""The stored rows of a job: its specification (never rewritten), its state, and pages of its replicas."""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.partition import Share
from colo_common.model.workload import JobSpec
from colo_jobs.requeue import Strike
from colo_jobs.story import Line, check_moves

__all__ = [
    "JOB_KIND",
    "MARK_BEGUN",
    "MARK_KIND",
    "MARK_USED",
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
    "is_loss",
    "loss_id",
    "mark_id",
    "page_count",
    "page_id",
]

SPEC_KIND: Final = "job-spec"
JOB_KIND: Final = "job"
PAGE_KIND: Final = "replica-page"
#: The row by which a store that was used is told from one that was emptied.
MARK_KIND: Final = "jobs-store"
_MARK_ID: Final = "mark"
_LOSS_ID: Final = "missed"
MARK_BEGUN: Final = b"restoring"
MARK_USED: Final = b"used"

# A change of one replica rewrites one page: a few kB. A job of 10,000 replicas is 313 pages, which with its two other rows
# fits into one write of the store (500 rows), so a job is always stored whole or not at all.
PAGE_REPLICAS: Final = 32

# Every write makes page ids; these are the ones of most jobs.
_PAGE_NUMBERS: Final = tuple(f"/{page:04d}" for page in range(32))

_SCHEMA: Final = 1
# Pages of schema 1 have all story lines as sentences; they are read as well.
_PAGE_SCHEMA: Final = 2
_T = TypeVar("_T")


class ReplicaRecord(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The record of a replica. A replica that was never placed is stored as {}.

    `attempt` fences: a report with a lower number is late. `due_ms` is the only timer that a state may have: the retry of Backoff,
    the lost time of Unknown and Stopping; 0: none. `missing`: the node's executor recovered without this attempt. `queued_at_ms` is
    the time since which the attempt waits; 0: the time of the submission. `avoid` are nodes that are left out, each with the time
    until which, and `strikes` what makes that time longer at each return.
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
    strikes: tuple[Strike, ...] = ()


class TaskRecord(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The record of a task. `result` (succeeded, failed or stopped) is set when a completion rule is met or the task is stopped."""

    state: str = TASK.initial
    result: str = ""


class JobRecord(Struct, kw_only=True, gc=False):
    """The state of a job and its tasks. `submit_trace` is the trace id of its submission, `key` its digest."""

    job: str
    submitted_at_ms: int
    tasks: list[TaskRecord]
    state: str = JOB.initial
    ended_at_ms: int | None = None
    submit_trace: str = ""
    key: str = ""
    story: list[Line] = field(default_factory=list)
    schema: int = _SCHEMA


class PageRecord(Struct, kw_only=True, gc=False):
    """Up to PAGE_REPLICAS consecutive replicas of a job, numbered over its tasks in order, and their story."""

    replicas: list[ReplicaRecord]
    story: list[Line] = field(default_factory=list)
    schema: int = _PAGE_SCHEMA


_ENCODER: Final = msgspec.json.Encoder()
_JOB_DECODER: Final = msgspec.json.Decoder(JobRecord)
_PAGE_DECODER: Final = msgspec.json.Decoder(PageRecord)
_SPEC_DECODER: Final = msgspec.json.Decoder(JobSpec)


def encode(record: JobRecord | PageRecord | JobSpec) -> bytes:
    """The value of a row: the record as JSON."""
    return _ENCODER.encode(record)


def decode_job(value: bytes, id_: str) -> JobRecord:
    """Decode the value of a job row. Raises InvalidInput for a bad value, an unknown schema and an unknown state."""
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
    """Decode the value of a page row. Raises InvalidInput for a bad value, an unknown schema and an unknown state."""
    record = _decoded(_PAGE_DECODER, value, PAGE_KIND, id_)
    _known_schema(record.schema, (_SCHEMA, _PAGE_SCHEMA), PAGE_KIND, id_)
    for replica in record.replicas:
        _known_state(replica.state, REPLICA.state_names, f"{PAGE_KIND}/{id_}")
    check_moves(record.story, len(record.replicas), f"{PAGE_KIND}/{id_}")
    # The next write of the page uses the present schema.
    record.schema = _PAGE_SCHEMA
    return record


def decode_spec(value: bytes, id_: str) -> JobSpec:
    """Decode the value of a specification row. Raises InvalidInput for a bad value."""
    return _decoded(_SPEC_DECODER, value, SPEC_KIND, id_)


def page_count(replicas: int) -> int:
    """The number of pages for this number of replicas."""
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


def mark_id(share: Share) -> str:
    """The id of the mark that says whether the store was used. Each partition puts its own jobs back, and says so for itself."""
    return _MARK_ID if share.is_whole else f"{_MARK_ID}-{share.name}"


def loss_id(share: Share) -> str:
    """The id of the mark that says that facts about the jobs of this share were missed, and are not made good yet."""
    return _LOSS_ID if share.is_whole else f"{_LOSS_ID}-{share.name}"


def is_loss(id_: str, share: Share) -> bool:
    """Whether a mark says that facts about jobs of this share may have been missed.

    That of a share of another number of partitions does: its jobs are divided otherwise now, and some of them may be here.
    """
    if id_ != _LOSS_ID and not id_.startswith(f"{_LOSS_ID}-"):
        return False
    others = {loss_id(Share(partition=number, partitions=share.partitions)) for number in range(share.partitions)}
    return id_ == loss_id(share) or id_ not in others
