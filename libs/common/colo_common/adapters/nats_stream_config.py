"""The configuration of a stream of colo at the server, and one sentence for each way in which it differs from what is wanted."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from colo_common.events.registry import DISK_BYTES, STREAMS_VERSION, StreamLimits
from colo_common.model.duration import format_duration
from colo_common.model.quantity import bytes_text

__all__ = [
    "VERSION_KEY",
    "StreamWish",
    "disk_bytes_of",
    "lasting_fault",
    "stream_config",
    "stream_difference",
    "syncs_a_batch_once",
    "version_of",
]

#: Keys in a stream's metadata: the version of the registry that configured it, and the disk that an operator gave to all streams.
VERSION_KEY: Final = "colo.version"
_DISK_KEY: Final = "colo.disk-bytes"
# A server before this version (major, minor) syncs a batch message by message, and the batch's own files too.
_SYNCS_ONCE_SINCE: Final = (2, 15)
_BYTES_MIN: Final = 1 << 20
# Orders, topology and restrictions have a consumer for each node; a server that is told nothing takes 1,000 a stream, since 2.15.
_CONSUMERS_MOST: Final = 100_000
# What such a server takes: a stream from before that was stated is left until its next upgrade, one that takes fewer is not.
_CONSUMERS_LEAST: Final = 1_000
_INIT: Final = "colo admin init"
_UPGRADE: Final = "colo admin upgrade"


class StreamWish(Struct, frozen=True, kw_only=True):
    """What an operator decides about all streams: servers that keep each, and bytes of disk of a server (0: as stated before)."""

    replicas: int = 1
    disk_bytes: int = 0


def stream_config(name: str, limits: StreamLimits, wish: StreamWish, *, takes_batches: bool) -> StreamConfig:
    """The configuration of a stream: its share of the disk, its limits, and the version of the registry."""
    disk = wish.disk_bytes or DISK_BYTES
    return StreamConfig(
        name=name,
        subjects=list(limits.subjects),
        retention=RetentionPolicy.WORK_QUEUE if limits.work_queue else RetentionPolicy.LIMITS,
        max_msgs=-1,
        max_msgs_per_subject=limits.max_msgs_per_subject,
        max_msg_size=-1,
        max_age=limits.max_age_s,
        max_bytes=max(_BYTES_MIN, limits.max_bytes * disk // DISK_BYTES),
        max_consumers=_CONSUMERS_MOST,
        duplicate_window=limits.duplicate_window_s,
        storage=StorageType.FILE,
        num_replicas=wish.replicas,
        discard=DiscardPolicy.NEW if limits.work_queue else DiscardPolicy.OLD,
        allow_direct=True,
        allow_atomic=takes_batches or None,
        metadata={VERSION_KEY: str(STREAMS_VERSION), _DISK_KEY: str(disk)},
    )


def syncs_a_batch_once(client: Client) -> bool:
    """Whether the server stores an atomic batch with one sync of the disk; before 2.15 a batch cost more than its messages."""
    try:
        version = client.connected_server_version
    except ValueError:
        return False
    return (version.major, version.minor) >= _SYNCS_ONCE_SINCE


def version_of(config: StreamConfig) -> int:
    """The version of the registry that configured the stream; 0 for one that says none."""
    return _number(config.metadata, VERSION_KEY)


def disk_bytes_of(config: StreamConfig) -> int:
    """The disk that was stated when the stream was configured; 0 for none."""
    return _number(config.metadata, _DISK_KEY)


def stream_difference(name: str, present: StreamConfig | None, limits: StreamLimits, wish: StreamWish) -> str:
    """Why the stream is not as wanted, in one sentence with the command that makes it so; "" when it is.

    A stream of a newer version is taken as it is, apart from its replicas. Without `wish.disk_bytes` the stated disk of the
    stream counts.
    """
    if present is None:
        return f"stream {name} is missing: {_INIT}"
    version = version_of(present)
    if (kept_by := present.num_replicas or 1) < wish.replicas:
        servers = "1 server" if kept_by == 1 else f"{kept_by} servers"
        return f"stream {name} is kept by {servers}, {wish.replicas} are wanted: {_UPGRADE}"
    if version > STREAMS_VERSION:
        return ""
    if fault := lasting_fault(present):
        return f"stream {name} {fault}, which no upgrade changes: delete the stream, then {_INIT}"
    if version < STREAMS_VERSION:
        return f"stream {name} has the limits of version {version}, {STREAMS_VERSION} is wanted: {_UPGRADE}"
    disk = wish.disk_bytes or disk_bytes_of(present)
    wanted = stream_config(name, limits, StreamWish(replicas=wish.replicas, disk_bytes=disk), takes_batches=False)
    for field, verb, shown, is_wanted in _COMPARED:
        found, asked = getattr(present, field), getattr(wanted, field)
        if found != asked:
            return f"stream {name} {verb} {shown(found)}, {shown(asked)} {is_wanted}: {_UPGRADE}"
    if present.no_ack:
        return f"stream {name} acknowledges nothing that it keeps: {_UPGRADE}"
    if 0 < (takes := present.max_consumers or 0) < _CONSUMERS_LEAST:
        return f"stream {name} takes {takes} consumers, {_CONSUMERS_MOST} are wanted: {_UPGRADE}"
    if sorted(present.subjects or ()) != sorted(limits.subjects):
        return f"stream {name} has other subjects than {', '.join(limits.subjects)}: {_UPGRADE}"
    return ""


def lasting_fault(present: StreamConfig) -> str:
    """What makes a stream useless to colo and cannot be changed at the server; "" for nothing."""
    if present.storage == StorageType.MEMORY:
        return "is in the memory of NATS and ends with it"
    return "is sealed and takes no message" if present.sealed else ""


def _age(seconds: Any) -> str:
    return format_duration(int(seconds) * 1_000) if seconds else "for ever"


def _count(number: Any) -> str:
    return "any number" if number == -1 else str(number)


def _messages(number: Any) -> str:
    return f"{_count(number)} of messages" if number == -1 else f"{number} messages"


def _size(number: Any) -> str:
    return "any size" if number == -1 else bytes_text(number)


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


_ARE: Final = "are wanted"
_IS: Final = "is wanted"
#: (field, how it reads, how its value reads, how the wanted value ends) of what must be as wanted.
_COMPARED: Final[tuple[tuple[str, str, Callable[[Any], str], str], ...]] = (
    ("max_bytes", "keeps", bytes_text, _ARE),
    ("max_age", "keeps messages for", _age, _ARE),
    ("max_msgs", "keeps", _messages, _ARE),
    ("max_msgs_per_subject", "keeps of a subject", _count, _ARE),
    ("max_msg_size", "takes messages of", _size, _IS),
    ("duplicate_window", "knows duplicates for", _age, _ARE),
    ("retention", "has the retention", _word, _IS),
    ("discard", "discards the", _word, _IS),
)


def _number(metadata: Mapping[str, str] | None, key: str) -> int:
    text = (metadata or {}).get(key, "")
    return int(text) if text.isdigit() and len(text) < 19 else 0
