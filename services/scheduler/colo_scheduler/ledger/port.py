"""The port of the node ledger, its calls and its answers; Redis and memory implement it.

The ledger is the truth about who holds what. It keeps one revision per node; a hold names the revision it was decided on and
is refused when another hold came first. Releasing only frees, so it needs no revision and never makes another
decision fail. A global index refuses an attempt that is held anywhere, and an attempt that is older than one that is held or over.

The row of a node that left for good can be forgotten once it holds nothing. One number remains of all of them, the floor:
no forgotten row had a higher revision, and a node without a row begins there, so that no revision of a name ever comes twice.

A reservation holds its place as an attempt of a replica whose name begins with "reservation:". A job's name has no ":", so no
replica of a job has such a name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Fence
from colo_common.model.placement import Attempt, Placement
from colo_common.model.reasons import Reason
from colo_common.ports import Leases

__all__ = [
    "Attempt",
    "CALL_MAX",
    "CommitLedger",
    "ConfirmHolds",
    "Ending",
    "ForgetRows",
    "HOLDS_MAX",
    "Hold",
    "HoldRefused",
    "HoldsReleased",
    "Ledger",
    "LedgerAnswered",
    "LedgerChanges",
    "LedgerEffect",
    "LedgerCompared",
    "LedgerLoaded",
    "LedgerRefused",
    "LedgerRows",
    "LoadLedgerRows",
    "NodeAnswer",
    "NodeCommit",
    "NodeRow",
    "PUT_BACK_MAX",
    "PutBackRows",
    "RESERVATION_PREFIX",
    "RefreshLedger",
    "ReleaseHolds",
    "Released",
    "check_call",
    "decode_hold",
    "encode_hold",
    "endings_of",
    "job_of_reservation",
    "name_of",
    "replica_of_reservation",
]


RESERVATION_PREFIX: Final = "reservation:"
"""Begins the job name and the replica name of every reservation."""
_SUFFIX: Final = "/hold/0"


def job_of_reservation(name: str) -> str:
    """The job name under which the reservation of this name asks for a place."""
    return f"{RESERVATION_PREFIX}{name}"


def replica_of_reservation(name: str) -> str:
    """The replica name under which the reservation of this name holds a place."""
    return f"{RESERVATION_PREFIX}{name}{_SUFFIX}"


def name_of(replica: str) -> str:
    """The name of the reservation that holds a place under this replica name; "" for a replica of a job."""
    if replica.startswith(RESERVATION_PREFIX) and replica.endswith(_SUFFIX):
        return replica[len(RESERVATION_PREFIX) : -len(_SUFFIX)]
    return ""


Ending = tuple[Attempt, str]
"""An attempt that is over, and the node on which it ended; "": whatever node holds it."""

HOLDS_MAX: Final = 50
"""The most holds in one call: a call of this size keeps the server for about 2 ms."""
CALL_MAX: Final = 200
"""The most attempts in one release or confirmation, and the most rows in one load."""
PUT_BACK_MAX: Final = 10
"""The most rows in one call that puts rows back."""


class Hold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hold of one attempt. `generation` is the revision its node gets by accepting it, and names the command that starts it.

    `inside`: attempts whose places are part of this one; only the hold of a capacity reservation over running owners has some.
    """

    placement: Placement
    generation: int
    inside: tuple[Attempt, ...] = ()

    @property
    def attempt(self) -> Attempt:
        """The attempt that holds it."""
        return (self.placement.replica, self.placement.attempt)


class NodeCommit(Struct, frozen=True, kw_only=True):
    """Holds on one node, decided on its revision `expect`.

    `is_chained`: calls of the same round, which are still under way, were going to write that revision. The number alone does not
    prove it: the revisions of another scheduler that wrote first have the same numbers.
    """

    node: str
    expect: int
    holds: tuple[Hold, ...]
    is_chained: bool = False


class HoldRefused(Struct, frozen=True, kw_only=True):
    """One hold was not written. `held_on` names the node where the attempt is held already.

    `least` is, for an older attempt, the lowest attempt of the replica that is not over.
    """

    replica: str
    attempt: int
    reason: Reason
    held_on: str = ""
    least: int = 0


class NodeAnswer(Struct, frozen=True, kw_only=True):
    """The ledger's answer to one NodeCommit. `revision` and `changes` are those of the node afterwards."""

    node: str
    revision: int
    changes: int
    accepted: tuple[Attempt, ...] = ()
    refused: tuple[HoldRefused, ...] = ()


class Released(Struct, frozen=True, kw_only=True):
    """Attempts that held something on the node and hold nothing any more."""

    node: str
    changes: int
    attempts: tuple[Attempt, ...]


class NodeRow(Struct, frozen=True, kw_only=True):
    """All holds on one node. `changes` counts every write of the row, also releases.

    `unreadable` has one sentence for each part of the row that cannot be read; the rest of the row counts.
    """

    node: str
    revision: int
    changes: int
    holds: tuple[Hold, ...] = ()
    confirmed: tuple[Attempt, ...] = ()
    unreadable: tuple[str, ...] = ()


# ---- local effects of the core


class CommitLedger(Struct, frozen=True, kw_only=True):
    """Write holds; answered by LedgerAnswered. At most HOLDS_MAX holds. `fences`: of the shards that they are for.

    `round`: the calls of one round count on each other, and on no call of an earlier one, which was given up and may still come.
    `compared`: see Ledger.commit.
    """

    reserves: tuple[NodeCommit, ...]
    fences: tuple[Fence, ...] = ()
    round: int = 0
    compared: str = ""

    def written_by(self, scheduler: str) -> str:
        """The owner of the revisions that this call writes."""
        return f"{scheduler}:{self.round}"


class ReleaseHolds(Struct, frozen=True, kw_only=True):
    """These attempts are over; answered by HoldsReleased. At most CALL_MAX.

    `nodes` are those on which they ended, "" where it is any; () where it is any for all.
    """

    attempts: tuple[Attempt, ...]
    nodes: tuple[str, ...] = ()

    @classmethod
    def of(cls, endings: Iterable[Ending]) -> "list[ReleaseHolds]":
        """The calls that release all of these."""
        every = list(endings)
        parts = [every[at : at + CALL_MAX] for at in range(0, len(every), CALL_MAX)]
        return [
            cls(
                attempts=tuple([attempt for attempt, _ in part]),
                nodes=tuple([node for _, node in part]) if any(node for _, node in part) else (),
            )
            for part in parts
        ]

    @property
    def endings(self) -> list[Ending]:
        """The attempts with their nodes."""
        return endings_of(self.attempts, self.nodes)


class ConfirmHolds(Struct, frozen=True, kw_only=True):
    """These attempts were started: their commands need not be sent again. At most CALL_MAX; not answered."""

    attempts: tuple[Attempt, ...]


class LoadLedgerRows(Struct, frozen=True, kw_only=True):
    """Read these nodes' rows; answered by LedgerRows. At most CALL_MAX."""

    nodes: tuple[str, ...]


class RefreshLedger(Struct, frozen=True, kw_only=True):
    """Read which rows changed; answered by LedgerChanges."""


class PutBackRows(Struct, frozen=True, kw_only=True):
    """Put rows back into a ledger that lost them, then read them; answered by LedgerRows. At most PUT_BACK_MAX rows.

    The rows are what this scheduler knew to be committed. Rows that another scheduler put back first stay.
    """

    rows: tuple[NodeRow, ...]
    floor: int = 0


class ForgetRows(Struct, frozen=True, kw_only=True):
    """These nodes left for good: forget their rows, where they hold nothing. At most CALL_MAX; not answered."""

    nodes: tuple[str, ...]


#: The effects that call the ledger.
LedgerEffect = CommitLedger | ReleaseHolds | ConfirmHolds | LoadLedgerRows | RefreshLedger | ForgetRows | PutBackRows


# ---- local events of the shell


class LedgerAnswered(Struct, frozen=True, kw_only=True):
    """The answer to one CommitLedger, one entry a NodeCommit, in its order."""

    answers: tuple[NodeAnswer, ...]


class HoldsReleased(Struct, frozen=True, kw_only=True):
    """The answer to ReleaseHolds; attempts that held nothing appear nowhere."""

    released: tuple[Released, ...]


class LedgerRows(Struct, frozen=True, kw_only=True):
    """Rows as they are now."""

    rows: tuple[NodeRow, ...]


class LedgerLoaded(Struct, frozen=True, kw_only=True):
    """Every row was read: decisions may begin. `floor`: see Ledger.floor."""

    floor: int = 0


class LedgerCompared(Struct, frozen=True, kw_only=True):
    """What this ledger had lost is back, as the stream of facts has it.

    `identity` is what commits are to name from now on; "" where no other scheduler writes to it.
    """

    identity: str


class LedgerChanges(Struct, frozen=True, kw_only=True):
    """The change counter of every node that has a row, in ascending name. `floor`: see Ledger.floor."""

    changes: tuple[tuple[str, int], ...]
    floor: int = 0


class LedgerRefused(Struct, frozen=True, kw_only=True):
    """The ledger answered and refused this call at every try. Nothing of the call counts as done.

    `is_late`: the ledger was away for so long that the decision must not be committed any more; an earlier try may have committed
    it.
    """

    effect: LedgerEffect
    is_late: bool = False


class Ledger(Protocol):
    """The port. Every method raises Unavailable or Refused of colo_common.ports and nothing else of the library below."""

    async def commit(
        self, reserves: Sequence[NodeCommit], fences: Sequence[Fence] = (), owner: str = "", compared: str = ""
    ) -> tuple[NodeAnswer, ...]:
        """Write each node's holds when its revision is the expected one; the whole call is one atomic step.

        `compared` is the `identity` of the ledger whose rows the caller compared with the stream of facts, "" where that does not
        matter. A ledger that began again since raises Unavailable and writes nothing: rows of its last second may be missing.

        When a fence is not the newest of its shard the whole call gets nothing (shard-lost), unless it was accepted before. A node
        with another revision gets nothing (ledger-conflict), nor does a chained commit whose revision was not written by `owner`,
        this round of the scheduler that calls. Otherwise each hold stands alone: already-held when the attempt is held anywhere,
        older-attempt when a newer one is held or this one or a newer one is over. The revision rises by one when anything was
        accepted. The same call again, byte for byte, is accepted again and changes nothing. Raises InvalidInput above HOLDS_MAX
        holds.
        """
        ...

    async def release(self, attempts: Sequence[Attempt], nodes: Sequence[str] = ()) -> tuple[Released, ...]:
        """Release the holds of these attempts, and remember the attempts as over. The answer is in ascending node.

        `nodes`: where each of them ended, "" where that is not known; () where it is known of none. An attempt that another node
        than that holds is left as it is: something else ended under its number.

        An attempt that never held anything is only remembered. The release of the newest finished attempt of a replica, asked
        again, names the same node again, so that the caller learns the node even when the first answer was lost.
        """
        ...

    @property
    def leases(self) -> Leases:
        """The leases by which `commit` judges fences."""
        ...

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """Mark holds as started. Attempts that hold nothing are ignored."""
        ...

    async def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        """The rows of these nodes in the order asked; a node without one has revision `floor`, 0 changes, and holds nothing."""
        ...

    async def changes(self) -> Mapping[str, int]:
        """The change counter of every node that has a row. A node's only rises, also where its row was forgotten meanwhile."""
        ...

    async def floor(self) -> int:
        """The revision that a node without a row has: no row that was forgotten had a higher one, nor a higher change counter."""
        ...

    async def put_back(self, rows: Sequence[NodeRow], floor: int) -> None:
        """Add the holds of these rows that the ledger lost; those that it has, and attempts that are over, stay as they are.

        The revision and the change counter of a row to which something is added rise above the given and the stored ones, and so
        they do where they were lower than the given ones, or the stored row has the given revision and a hold besides: what was
        decided on the row meanwhile is refused. At most PUT_BACK_MAX.
        """
        ...

    async def identity(self) -> str:
        """See Store.identity."""
        ...

    async def forget(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Forget the rows of these nodes; those that have none afterwards, in the order asked.

        A row that holds something stays, and one that cannot be read. Asked again it changes nothing.
        """
        ...

    async def ready(self) -> str:
        """Empty when the ledger answers, else one sentence with the reason."""
        ...


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Hold)


def encode_hold(hold: Hold) -> bytes:
    """The stored bytes; equal holds give equal bytes."""
    return _ENCODER.encode(hold)


def decode_hold(value: bytes) -> Hold:
    """The hold that was stored; msgspec.DecodeError or ValidationError when the bytes are not one."""
    return _DECODER.decode(value)


def endings_of(attempts: Sequence[Attempt], nodes: Sequence[str]) -> list[Ending]:
    """The attempts with the nodes on which they ended; () where that is known of none."""
    return list(zip(attempts, nodes or [""] * len(attempts), strict=True))


def check_call(reserves: Sequence[NodeCommit]) -> None:
    """Raise InvalidInput when the call has more holds than one call may."""
    count = sum(len(reserve.holds) for reserve in reserves)
    if count > HOLDS_MAX:
        raise InvalidInput("reserves", f"at most {HOLDS_MAX} holds in one call", count)
