"""The parts that make a submission safe to repeat: the ids that follow from its key, and the check index by which a plan still
holds.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

import msgspec

from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import JOB
from colo_common.model.workload import JobSpec

__all__ = [
    "KEY_MOST",
    "UNFINISHED",
    "CheckIndex",
    "job_id",
    "job_ids",
    "jobs_index",
    "key_digest",
    "parse_check_index",
    "spec_index",
]

KEY_MOST: Final = 256
"""The most characters of an idempotency key."""
UNFINISHED: Final = tuple(name for name in JOB.state_names if name not in JOB.terminal)
_DIGITS: Final = 8
_KEY_DIGITS: Final = 32
_DEFAULT_TENANT: Final = "default"
_NONE: Final = "0"
_INDEX: Final = re.compile(r"(?P<spec>[0-9a-f]{8})-(?P<jobs>0|[0-9a-f]{8})-(?P<placed>[0-9]{1,5})")


class CheckIndex(NamedTuple):
    """What a plan looked at: the job itself, the unfinished jobs of its name, and how many of its replicas had a place.

    An empty `spec` leaves the job and the places unchecked; `str()` gives the text that `parse_check_index` reads.
    """

    spec: str
    jobs: str
    placed: int

    def __str__(self) -> str:
        return f"{self.spec}-{self.jobs}-{self.placed}" if self.spec else self.jobs


def job_id(name: str, key: str, tenant: str = _DEFAULT_TENANT) -> str:
    """The id of the job that is submitted under an idempotency key: its name and 8 hexadecimal digits of the key's SHA-256.

    The same key of two tenants gives two jobs.
    """
    return job_ids(name, key, tenant)[0]


def job_ids(name: str, key: str, tenant: str = _DEFAULT_TENANT) -> tuple[str, ...]:
    """The ids of a job by its key, in the order in which they are tried: one of them may be that of a job under another key."""
    digest = key_digest(key, tenant)
    return tuple(f"{name}-{digest[at : at + _DIGITS]}" for at in range(0, len(digest), _DIGITS))


def key_digest(key: str, tenant: str = _DEFAULT_TENANT) -> str:
    """32 hexadecimal digits by which two keys are told apart whose jobs would have the same id."""
    return hashlib.sha256((key if tenant == _DEFAULT_TENANT else f"{tenant}/{key}").encode()).hexdigest()[:_KEY_DIGITS]


def spec_index(spec: JobSpec) -> str:
    """8 hexadecimal digits that differ between jobs that differ in any field."""
    return _digest(msgspec.json.encode(spec, order="deterministic"))


def jobs_index(total: int, newest: str) -> str:
    """A text for the unfinished jobs of one name: their number and the id of the newest. "0" when there is none.

    A job that comes is the newest, and one that ends changes the number or the newest, so every change gives another text.
    """
    return _digest(f"{total} {newest}".encode()) if total else _NONE


def parse_check_index(text: str, field: str) -> CheckIndex:
    """Read a check index. "0" alone asks only that no unfinished job has the name, as in Nomad. Raises InvalidInput."""
    if text == _NONE:
        return CheckIndex("", _NONE, 0)
    match = _INDEX.fullmatch(text)
    if match is None:
        raise InvalidInput(
            field, "must be the check index that `colo plan` prints, or 0: no job of this name runs", text
        )
    return CheckIndex(match["spec"], match["jobs"], int(match["placed"]))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
