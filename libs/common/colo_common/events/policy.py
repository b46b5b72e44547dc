"""Facts and requests about the colocation policy. The gateway owns the document, overcommit follows it."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.units import Mcpu, Ms, NodeName, Number, Signed

__all__ = [
    "ApplyPolicy",
    "GetPolicy",
    "NodePreview",
    "PolicyChanged",
    "PolicyPreview",
    "PolicyReply",
    "PolicyRevision",
    "PreviewPolicy",
    "RollbackPolicy",
]


class PolicyRevision(Struct, frozen=True, kw_only=True):
    """One state of the document: what was applied, when, by whom and why. `form` is the form of the file it was read from.

    `rolled_back_to` is the revision whose document this one repeats; 0: it came from a file.
    """

    revision: Number
    at_ms: Ms
    policy: ColocationPolicy
    form: str = "colo"
    by: str = ""
    reason: str = ""
    rolled_back_to: Number = 0


class PolicyChanged(Fact, frozen=True, kw_only=True):
    """The whole document. The highest revision counts; the bus keeps the last message."""

    revision: Number
    policy: ColocationPolicy
    form: str = "colo"
    by: str = ""
    reason: str = ""
    rolled_back_to: Number = 0


class GetPolicy(Struct, frozen=True, kw_only=True):
    """The document in force and the ones before it. The reply is PolicyReply."""


class ApplyPolicy(Struct, frozen=True, kw_only=True):
    """Put this document in force. The same document again changes nothing.

    `expected` is the revision that it was made from: refused (409) when another one is in force meanwhile; None: whichever is.
    """

    policy: ColocationPolicy
    form: str = "colo"
    by: str = ""
    reason: str = ""
    expected: int | None = None


class RollbackPolicy(Struct, frozen=True, kw_only=True):
    """Put an earlier document in force again, as a new revision; `revision` None: the one before the present one."""

    revision: int | None = None
    by: str = ""
    reason: str = ""


class PolicyReply(Struct, frozen=True, kw_only=True):
    """The document in force with its revision, 0 while only the settings of the services count; `history` newest first.

    `changed`: whether this request changed it. `followed` is the revision that overcommit follows; None: it does not answer.
    """

    now_ms: Ms
    current: PolicyRevision
    history: tuple[PolicyRevision, ...] = ()
    changed: bool = False
    followed: int | None = None


class PreviewPolicy(Struct, frozen=True, kw_only=True):
    """What would be promised under this document; nothing changes. None: the one in force. The reply is PolicyPreview.

    `limit`: so many nodes are listed, those whose promise would fall most first.
    """

    policy: ColocationPolicy | None = None
    limit: int = 20


class ZonePreview(Struct, frozen=True, kw_only=True):
    """One zone whose promise would change, before and after."""

    zone: Number
    batch_cpu_mcpu: Mcpu
    would_cpu_mcpu: Mcpu
    batch_memory_bytes: Signed
    would_memory_bytes: Signed


class NodePreview(Struct, frozen=True, kw_only=True):
    """One node: batch CPU and memory that are promised now and that would be. `least_mcpu` and `would_least_mcpu` are the lowest
    batch CPU that the samples of the last minutes allowed and would have allowed.

    `over_mcpu`: so much of what batch work holds would be above the promise, and could be evicted; at least 0. `override` is the
    name or number of the override that counts for the node; "" the defaults. `over_memory_bytes` is the same of memory. `mid_*` are
    what the mid tier has now and would have; `zones` those whose promise to batch work would be another one.
    """

    node: NodeName
    override: str
    batch_cpu_mcpu: Mcpu
    would_cpu_mcpu: Mcpu
    batch_memory_bytes: Signed
    would_memory_bytes: Signed
    least_mcpu: Mcpu
    would_least_mcpu: Mcpu
    over_mcpu: Mcpu = 0
    over_memory_bytes: Signed = 0
    mid_cpu_mcpu: Mcpu = 0
    would_mid_cpu_mcpu: Mcpu = 0
    mid_memory_bytes: Signed = 0
    would_mid_memory_bytes: Signed = 0
    zones: tuple[ZonePreview, ...] = ()


class PolicyPreview(Struct, frozen=True, kw_only=True):
    """The `nodes` that were computed together, taken evenly out of `of_nodes` fresh ones, and those that change most.

    `revision` is the one that overcommit follows now. `changing` counts the nodes whose promise would be another one, `over` those
    where batch work would hold more than that. `samples` were replayed, over `window_ms`.

    `beginning` counts the nodes where another estimator would begin, without a past. `unmeasured` are host applications that would
    be declared and whose use nobody measures before that, so that it is not in these numbers.
    """

    revision: Number
    nodes: Number
    changing: Number
    over: Number
    samples: Number
    window_ms: Ms
    batch_cpu_mcpu: Mcpu
    would_cpu_mcpu: Mcpu
    batch_memory_bytes: Signed
    would_memory_bytes: Signed
    listed: tuple[NodePreview, ...] = ()
    of_nodes: Number = 0
    beginning: Number = 0
    unmeasured: tuple[str, ...] = ()
    mid_cpu_mcpu: Mcpu = 0
    would_mid_cpu_mcpu: Mcpu = 0
    mid_memory_bytes: Signed = 0
    would_mid_memory_bytes: Signed = 0
