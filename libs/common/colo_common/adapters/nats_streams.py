"""Creates and migrates the streams. This is the one place that writes their configuration; services only read it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import nats.aio.client
import nats.js.errors
from msgspec import Struct, structs
from nats.js.api import StreamConfig, StreamInfo
from nats.js.client import JetStreamContext

from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.adapters.nats_stream_config import (
    StreamWish,
    disk_bytes_of,
    lasting_fault,
    stream_config,
    stream_difference,
    syncs_a_batch_once,
    version_of,
)
from colo_common.events.registry import STREAMS, STREAMS_VERSION, Stream, StreamLimits
from colo_common.model.invalid import InvalidInput
from colo_common.ports import PortError, Refused

__all__ = ["StreamState", "check_streams", "connected_client", "delete_streams", "make_streams", "refuse_used_streams"]

_CONNECT_S: Final = 5.0
_CALL_S: Final = 10.0
# A cluster that has just started elects the leader of JetStream first.
_LEADER_S: Final = 30.0
_RETRY_S: Final = 0.2
_NO_STORAGE: Final = (10023, 10028, 10047)
# 10052 is any impossible configuration; the description says whether it is the number of replicas.
_TOO_FEW_SERVERS: Final = (10005, 10052, 10074)


class StreamState(Struct, frozen=True, kw_only=True):
    """A stream as it is: limits, what is in it, who keeps it, and why it is not as wanted ("": it is)."""

    stream: str
    exists: bool
    version: int = 0
    replicas: int = 0
    max_bytes: int = 0
    max_age_s: int = 0
    messages: int = 0
    size_bytes: int = 0
    consumers: int = 0
    leader: str = ""
    behind: tuple[str, ...] = ()
    problem: str = ""
    changed: str = ""


async def check_streams(
    access: NatsAccess, wish: StreamWish, streams: Mapping[Stream, StreamLimits] = STREAMS
) -> list[StreamState]:
    """Every stream and why it is not as wanted; changes nothing. Raises Unavailable or Refused when NATS cannot be asked."""
    async with _jetstream(access) as (_client, jetstream):
        return [_state(name, limits, wish, await _info(jetstream, name)) for name, limits in streams.items()]


async def make_streams(
    access: NatsAccess, wish: StreamWish, streams: Mapping[Stream, StreamLimits] = STREAMS, *, upgrade: bool
) -> list[StreamState]:
    """Create what is missing and, with `upgrade`, change what is not as wanted; calling it again changes nothing.

    Streams of a newer version are left alone. No stream is kept by fewer servers than before, nor a new one by fewer than the
    others: whoever wants that says so to NATS itself. A subject that moves from one stream to another leaves the first one before
    the second is made. Raises Unavailable or Refused with what NATS said; what was done until then stays.
    """
    async with _jetstream(access) as (client, jetstream):
        takes_batches = syncs_a_batch_once(client)
        found = {name: await _info(jetstream, name) for name in streams}
        changed: dict[Stream, str] = {}
        # An operator stated the disk and the servers of each stream once; a call without a new statement keeps both.
        present = [info.config for info in found.values() if info is not None]
        disk_bytes = wish.disk_bytes or max(map(disk_bytes_of, present), default=0)
        replicas = max([wish.replicas, *(config.num_replicas or 1 for config in present)])
        wish = StreamWish(replicas=replicas, disk_bytes=disk_bytes)
        if upgrade:
            for name, limits in streams.items():
                info = found[name]
                if info is not None and _must_give_up_subjects(info.config, limits):
                    left = [subject for subject in info.config.subjects or () if subject in limits.subjects]
                    if left:
                        await _update(jetstream, info.config.evolve(subjects=left))
        for name, limits in streams.items():
            wanted = stream_config(name.value, limits, wish, takes_batches=takes_batches)
            info = found[name]
            if info is None:
                await _create(jetstream, wanted)
                changed[name] = "created"
            elif (
                upgrade
                and not lasting_fault(info.config)
                and (
                    stream_difference(name.value, info.config, limits, wish)
                    or _upgraded(info.config, wanted, takes_batches=takes_batches).max_consumers
                    != info.config.max_consumers
                )
            ):
                await _update(jetstream, _upgraded(info.config, wanted, takes_batches=takes_batches))
                changed[name] = "upgraded"
        states = [_state(name, limits, wish, await _info(jetstream, name)) for name, limits in streams.items()]
    return [_with_change(state, changed.get(Stream(state.stream), "")) for state in states]


async def refuse_used_streams(access: NatsAccess) -> None:
    """Raise InvalidInput when the server keeps streams of another colo; Unavailable or Refused when it cannot be asked."""
    for state in await check_streams(access, StreamWish()):
        if state.exists:
            rule = f"holds {state.stream} of another colo; give an account without it"
            raise InvalidInput("nats_url", rule, access.shown)


async def delete_streams(access: NatsAccess) -> None:
    """Delete colo's streams; a missing one is no error."""
    async with _jetstream(access) as (_client, jetstream):
        for stream in STREAMS:
            with suppress(nats.js.errors.NotFoundError):
                await jetstream.delete_stream(stream.value)


@asynccontextmanager
async def connected_client(access: NatsAccess) -> AsyncIterator[nats.aio.client.Client]:
    """A connection for a few calls. Raises Unavailable within five seconds, InvalidInput for a bad access."""
    client = nats.aio.client.Client()
    options = access.options_for(client)
    failures: list[Exception] = []

    async def keep(error: Exception) -> None:
        failures.append(error)

    try:
        try:
            # The library keeps trying an address without a listener, even with allow_reconnect=False.
            async with asyncio.timeout(_CONNECT_S):
                await client.connect(
                    **options, connect_timeout=2, allow_reconnect=len(access.servers) > 1, error_cb=keep
                )
        except TimeoutError as error:
            raise port_error(failures[-1] if failures else error, f"NATS at {access.shown}") from error
        yield client
    except NATS_ERRORS as error:
        raise port_error(error, f"NATS at {access.shown}") from error
    finally:
        with suppress(AssertionError, *NATS_ERRORS):
            await client.close()


@asynccontextmanager
async def _jetstream(access: NatsAccess) -> AsyncIterator[tuple[nats.aio.client.Client, JetStreamContext]]:
    async with connected_client(access) as client:
        jetstream = client.jetstream(timeout=_CALL_S)
        await _wait_for_leader(client, access)
        yield client, jetstream


async def _wait_for_leader(client: nats.aio.client.Client, access: NatsAccess) -> None:
    """Wait until JetStream answers: without a leader a cluster says nothing. Raises Refused where there is no JetStream."""
    jetstream = client.jetstream(timeout=1)
    ends_s = asyncio.get_running_loop().time() + _LEADER_S
    while True:
        try:
            await jetstream.account_info()
            return
        except NATS_ERRORS as error:
            problem = port_error(error, f"NATS at {access.shown}")
            if isinstance(problem, Refused) or asyncio.get_running_loop().time() > ends_s:
                raise problem from error
        await asyncio.sleep(_RETRY_S)


async def _info(jetstream: JetStreamContext, name: Stream) -> StreamInfo | None:
    try:
        return await jetstream.stream_info(name.value)
    except nats.js.errors.NotFoundError:
        return None
    except NATS_ERRORS as error:
        raise port_error(error, f"stream {name.value}") from error


async def _create(jetstream: JetStreamContext, wanted: StreamConfig) -> None:
    try:
        await jetstream.add_stream(wanted)
    except nats.js.errors.APIError as error:
        raise _why(error, wanted) from error


async def _update(jetstream: JetStreamContext, wanted: StreamConfig) -> None:
    try:
        await jetstream.update_stream(wanted)
    except nats.js.errors.APIError as error:
        raise _why(error, wanted) from error


def _why(error: nats.js.errors.APIError, wanted: StreamConfig) -> PortError:
    """What the server said, as what an operator can do about it."""
    if error.err_code in _TOO_FEW_SERVERS and (wanted.num_replicas or 1) > 1 and _is_about_replicas(error):
        rule = f"stream_replicas: {wanted.num_replicas} servers must keep each stream, and NATS has fewer that can"
        return Refused(f"{rule} ({error.description})")
    if error.err_code in _NO_STORAGE:
        rule = f"stream {wanted.name} wants {wanted.max_bytes} bytes of disk, and NATS has less: set stream_disk_bytes"
        return Refused(f"{rule} ({error.description})")
    return port_error(error, f"stream {wanted.name}")


def _is_about_replicas(error: nats.js.errors.APIError) -> bool:
    return any(word in (error.description or "") for word in ("replicas", "peers", "placement"))


def _must_give_up_subjects(present: StreamConfig, limits: StreamLimits) -> bool:
    return version_of(present) <= STREAMS_VERSION and not set(present.subjects or ()) <= set(limits.subjects)


def _upgraded(present: StreamConfig, wanted: StreamConfig, *, takes_batches: bool) -> StreamConfig:
    """The present configuration with what colo decides; an operator's own fields (placement, compression) stay.

    A server that takes no batches refuses another limit of consumers, and has none of its own.
    """
    if version_of(present) > STREAMS_VERSION:
        return present.evolve(num_replicas=wanted.num_replicas)
    return present.evolve(
        max_consumers=wanted.max_consumers if takes_batches else present.max_consumers,
        subjects=wanted.subjects,
        retention=wanted.retention,
        max_msgs=wanted.max_msgs,
        max_msgs_per_subject=wanted.max_msgs_per_subject,
        max_msg_size=wanted.max_msg_size,
        no_ack=wanted.no_ack,
        max_age=wanted.max_age,
        max_bytes=wanted.max_bytes,
        duplicate_window=wanted.duplicate_window,
        num_replicas=wanted.num_replicas,
        discard=wanted.discard,
        allow_direct=wanted.allow_direct,
        allow_atomic=wanted.allow_atomic,
        metadata={**(present.metadata or {}), **(wanted.metadata or {})},
    )


def _state(name: Stream, limits: StreamLimits, wish: StreamWish, info: StreamInfo | None) -> StreamState:
    if info is None:
        problem = stream_difference(name.value, None, limits, wish)
        return StreamState(stream=name.value, exists=False, problem=problem)
    config, cluster = info.config, info.cluster
    return StreamState(
        stream=name.value,
        exists=True,
        version=version_of(config),
        replicas=config.num_replicas or 1,
        max_bytes=config.max_bytes or 0,
        max_age_s=int(config.max_age or 0),
        messages=info.state.messages,
        size_bytes=info.state.bytes,
        consumers=info.state.consumer_count,
        leader=(cluster.leader or "") if cluster else "",
        behind=tuple(
            peer.name or "" for peer in (cluster.replicas or () if cluster else ()) if peer.offline or not peer.current
        ),
        problem=stream_difference(name.value, config, limits, wish),
    )


def _with_change(state: StreamState, changed: str) -> StreamState:
    return structs.replace(state, changed=changed)
