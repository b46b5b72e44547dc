"""The executor's journal as text: one checksummed line an entry, and the state that the entries fold to."""

import zlib
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Struct

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.restriction import Restriction
from colo_executor.local import (
    Remembered,
    RememberEnd,
    RememberPlacement,
    RememberRestrictions,
    RememberTerm,
    StopIntent,
)
from colo_executor.located_devices import DeviceAddress
from colo_executor.order_terms import ORDER_PATTERN, OrderTerms

__all__ = [
    "Accepted",
    "AttachedTo",
    "Booted",
    "Created",
    "Entry",
    "EndedEntry",
    "JournalState",
    "KeptCpusEntry",
    "Launched",
    "LocatedDevices",
    "PreImage",
    "RefusedEntry",
    "Restricted",
    "Stopping",
    "TermEntry",
    "UnknownImages",
    "compacted",
    "decode",
    "encode",
    "entry_of",
]


class Booted(Struct, frozen=True, kw_only=True, tag="booted"):
    """The entries after this one are of boot `boot_id`; pids and kernel files of another boot mean nothing."""

    boot_id: str


class PreImage(Struct, frozen=True, kw_only=True, tag="pre-image"):
    """The value of a kernel file before the executor first changed it. `path` is relative to the cgroup root."""

    path: str
    value: str


class Created(Struct, frozen=True, kw_only=True, tag="created"):
    """A control group directory, journaled before the executor makes it. `path` is relative to the cgroup root."""

    path: str


class UnknownImages(Struct, frozen=True, kw_only=True, tag="unknown-images"):
    """A journal was lost or damaged (`why`) while groups of the executor stood: what these files held before is not known.

    Another entry adds its files.
    """

    why: str
    paths: tuple[str, ...] = ()


class Accepted(Struct, frozen=True, kw_only=True, tag="accepted"):
    """A placement that waits until an older attempt of its replica has exited."""

    placement: Placement


class AttachedTo(Struct, frozen=True, kw_only=True):
    """A group that somebody else made, and what it had used before: `group` is its path below the cgroup root.

    `identity` is the kernel's number of it in boot `boot_id`: a later group of that name is another one.
    """

    group: str
    identity: int
    boot_id: str
    cpu_used_us: int = 0
    oom_kills: int = 0
    memory_peak_bytes: int = 0


class Launched(Struct, frozen=True, kw_only=True, tag="launched"):
    """A process whose command is about to start. `start_ticks` (/proc/PID/stat field 22) rules out a later process of that pid.

    `devices` are the rules of the device files that it may open, "" without any. `attached`: nothing is started, and the group's
    first value is about to be written; `pid` is then one of its processes. `output_dir` is where its outputs are, "" where an
    earlier version did not say it.
    """

    placement: Placement
    pid: int
    start_ticks: int
    at_ms: int
    devices: str = ""
    attached: AttachedTo | None = None
    output_dir: str = ""


class Stopping(Struct, frozen=True, kw_only=True, tag="stopping"):
    """A SIGTERM that is about to be sent. The intent survives a crash, so that SIGKILL follows in time."""

    replica: str
    attempt: int
    intent: StopIntent


class EndedEntry(Struct, frozen=True, kw_only=True, tag="ended"):
    """An attempt ended."""

    fact: ReplicaEnded


class RefusedEntry(Struct, frozen=True, kw_only=True, tag="refused"):
    """A placement was refused."""

    fact: PlacementRefused


class Restricted(Struct, frozen=True, kw_only=True, tag="restricted"):
    """The restrictions of table `revision` that concern the node, in place of those of an earlier entry."""

    revision: int
    restrictions: tuple[Restriction, ...]


class TermEntry(Struct, frozen=True, kw_only=True, tag="term"):
    """The newest term that gave an order of this kind, or of one partition of the jobs (`order_of`)."""

    order: Annotated[str, msgspec.Meta(pattern=ORDER_PATTERN, examples=["stop-2-of-4"])]
    generation: int


class KeptCpusEntry(Struct, frozen=True, kw_only=True, tag="kept-cpus"):
    """CPUs that the collector said are given to nobody, as kernel lists, in place of those of an earlier entry."""

    withheld: str
    pinned: str


class LocatedDevices(Struct, frozen=True, kw_only=True, tag="located-devices"):
    """Where the devices of the node are, in place of those of an earlier entry."""

    devices: tuple[DeviceAddress, ...]


Entry = (
    Booted
    | PreImage
    | Created
    | UnknownImages
    | Accepted
    | Launched
    | Stopping
    | EndedEntry
    | RefusedEntry
    | Restricted
    | KeptCpusEntry
    | LocatedDevices
    | TermEntry
)

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def entry_of(effect: Remembered) -> Entry:
    """The entry of what is to be remembered."""
    match effect:
        case RememberPlacement():
            return Accepted(placement=effect.placement)
        case RememberRestrictions():
            return Restricted(revision=effect.revision, restrictions=effect.restrictions)
        case RememberTerm():
            return TermEntry(order=effect.order, generation=effect.generation)
        case RememberEnd():
            fact = effect.fact
            return RefusedEntry(fact=fact) if isinstance(fact, PlacementRefused) else EndedEntry(fact=fact)


def encode(entry: Entry) -> bytes:
    """One line: CRC-32 of the JSON in eight hex digits, a space, the JSON, a newline."""
    body = _ENCODER.encode(entry)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode(data: bytes) -> tuple[list[Entry], int, int]:
    """The entries that can be read, the bytes of an unfinished last line, and the number of damaged lines before it.

    Each line stands alone: a crash leaves an unfinished last line, a flipped bit damages the line that it is in and no other.
    """
    entries: list[Entry] = []
    whole, newline, torn = data.rpartition(b"\n")
    damaged = 0
    for line in whole.split(b"\n") if newline else ():
        entry = _decode_line(line)
        if entry is None:
            damaged += 1
        else:
            entries.append(entry)
    return entries, len(torn), damaged


def _decode_line(line: bytes) -> Entry | None:
    checksum, _, body = line.partition(b" ")
    if len(checksum) != 8 or checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError:
        return None


class JournalState:
    """The fold of the entries; `kept` bounds the ended attempts."""

    def __init__(self, entries: Iterable[Entry] = (), *, kept: int = 1_000) -> None:
        self.boot_id = ""
        self.pre_images: dict[str, str] = {}
        self.created: list[str] = []
        self.unknown = UnknownImages(why="")
        self.accepted: dict[str, Placement] = {}
        self.launched: dict[str, Launched] = {}
        self.stopping: dict[str, StopIntent] = {}
        self.ended: dict[str, EndedEntry | RefusedEntry] = {}
        self.restricted = Restricted(revision=0, restrictions=())
        self.kept_cpus = KeptCpusEntry(withheld="", pinned="")
        self.located = LocatedDevices(devices=())
        self.terms = OrderTerms()
        self._kept = kept
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Fold one more entry."""
        match entry:
            case Booted():
                if entry.boot_id != self.boot_id:
                    self.pre_images.clear()
                    self.created.clear()
                    self.unknown = UnknownImages(why="")
                self.boot_id = entry.boot_id
            case PreImage():
                self.pre_images.setdefault(entry.path, entry.value)
            case Created():
                if entry.path not in self.created:
                    self.created.append(entry.path)
            case UnknownImages():
                paths = dict.fromkeys(self.unknown.paths + entry.paths)
                self.unknown = UnknownImages(why=self.unknown.why or entry.why, paths=tuple(paths))
            case Accepted():
                self.accepted[attempt_key(entry.placement.replica, entry.placement.attempt)] = entry.placement
            case Launched():
                key = attempt_key(entry.placement.replica, entry.placement.attempt)
                self.accepted.pop(key, None)
                self.launched[key] = entry
            case Stopping():
                self.stopping[attempt_key(entry.replica, entry.attempt)] = entry.intent
            case Restricted():
                self.restricted = entry
            case KeptCpusEntry():
                self.kept_cpus = entry
            case LocatedDevices():
                self.located = entry
            case TermEntry():
                self.terms.note(entry.order, entry.generation)
            case EndedEntry() | RefusedEntry():
                self._end(attempt_key(entry.fact.replica, entry.fact.attempt), entry)

    def _end(self, key: str, entry: EndedEntry | RefusedEntry) -> None:
        self.accepted.pop(key, None)
        self.launched.pop(key, None)
        self.stopping.pop(key, None)
        self.ended.setdefault(key, entry)
        while len(self.ended) > self._kept:
            del self.ended[next(iter(self.ended))]


def compacted(state: JournalState) -> list[Entry]:
    """The shortest list of entries that folds to the same state."""
    entries: list[Entry] = [Booted(boot_id=state.boot_id)]
    if state.restricted.revision:
        entries.append(state.restricted)
    if state.kept_cpus.withheld or state.kept_cpus.pinned:
        entries.append(state.kept_cpus)
    if state.located.devices:
        entries.append(state.located)
    entries += [TermEntry(order=order, generation=generation) for order, generation in state.terms.items()]
    entries += [Created(path=path) for path in state.created]
    if state.unknown.why:
        entries.append(state.unknown)
    entries += [PreImage(path=path, value=value) for path, value in state.pre_images.items()]
    entries += state.ended.values()
    entries += [Accepted(placement=placement) for placement in state.accepted.values()]
    entries += state.launched.values()
    for key, intent in state.stopping.items():
        replica, _, attempt = key.rpartition("#")
        entries.append(Stopping(replica=replica, attempt=int(attempt), intent=intent))
    return entries
