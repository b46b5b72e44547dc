"""Response bodies of the audit."""

from msgspec import Struct

__all__ = ["AuditEntry", "AuditReply"]


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One request; see RequestAudited. `seq` numbers the entries of the stream."""

    seq: int
    at_ms: int
    who: str
    how: str
    method: str
    path: str
    status: int
    token: str = ""
    role: str = ""
    address: str = ""
    request: str = ""
    reason: str = ""
    tenant: str = ""
    job: str = ""
    node: str = ""
    alike: int = 0


class AuditReply(Struct, frozen=True, kw_only=True):
    """Newest first; `before` continues where the list ends, None at the end."""

    entries: tuple[AuditEntry, ...]
    before: int | None = None
