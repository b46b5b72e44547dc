"""One connection to NATS that reconnects for ever and keeps the streams configured as in the registry."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import nats.aio.client
import nats.js.api
import nats.js.errors
import structlog

from colo_common.adapters.nats_access import NatsAccess, reconnects
from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.events.registry import STREAMS, Stream, StreamLimits
from colo_common.ports import PortError, Refused, Unavailable

__all__ = ["NatsConnection"]

_CONNECT_WAIT_S: Final = 0.1
_PING_S: Final = 5
_STREAM_BYTES_MIN: Final = 64 << 20
# JetStream error: the server has not the storage that the stream reserves.
_NO_STORAGE: Final = 10047
#: What colo decides about a stream. Its bytes, replicas, storage and placement are the operator's, once it exists.
_OURS: Final = (
    "subjects",
    "retention",
    "max_msgs_per_subject",
    "max_age",
    "duplicate_window",
    "discard",
    "allow_direct",
    "allow_atomic",
)
_STREAMS_RETRY_S: Final = 1.0
_CANCELS_MOST: Final = 10
# A server before this version (major, minor) syncs a batch message by message, and the batch's own files too.
_SYNCS_ONCE_SINCE: Final = (2, 15)
_CANCEL_S: Final = 0.1


class NatsConnection:
    """The NATS client, whether it is usable, and the problem while it is not.

    `generation` counts connects and reconnects; listeners follow it with `wait_usable` and `wait_other_generation`. `on_lost` is
    called when the connection breaks.
    """

    def __init__(self, access: NatsAccess, name: str, streams: Mapping[Stream, StreamLimits] = STREAMS) -> None:
        self._access = access
        self._rng = random.Random()
        self.client = nats.aio.client.Client()
        self.generation = 0
        self.on_lost: Callable[[], None] = lambda: None
        #: Whether the server takes atomic batches; None until the first connection.
        self.takes_batches: bool | None = None
        self._name = name
        self._streams = streams
        self._log = structlog.get_logger(source="nats").bind(server=access.shown)
        self._problem: PortError = Unavailable(f"NATS at {access.shown} was not reached yet")
        self._usable = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged_complaint = ""
        self._is_away = False
        self._options: dict[str, Any] = {}

    def start(self) -> None:
        """Connect in the background. Raises InvalidInput for an address or a file that breaks a rule."""
        self._options = self._access.options()
        self._spawn(self._connect())

    async def wait_usable(self) -> None:
        """Return when connected and the streams exist."""
        await self._usable.wait()

    async def wait_settled(self) -> None:
        """Return when usable; raise Refused when the server was reached and cannot serve (no JetStream, wrong streams)."""
        while not self._usable.is_set():
            if isinstance(self._problem, Refused):
                raise self._problem
            changed = self._changed
            await changed.wait()

    async def wait_other_generation(self, generation: int) -> None:
        """Return after a reconnect: when `self.generation` is no longer `generation`."""
        while self.generation == generation:
            changed = self._changed
            await changed.wait()

    def check(self) -> None:
        """Raise the present problem, if there is one."""
        if not self._usable.is_set():
            raise self._problem

    def problem(self) -> str:
        """The present problem in one sentence, or empty."""
        return "" if self._usable.is_set() else str(self._problem)

    async def close(self) -> None:
        """Flush for two seconds at most, then close the connection."""
        self._usable.clear()
        self._problem = Unavailable("this connection to NATS is closed")
        if self.client.is_connected:
            with suppress(*NATS_ERRORS):
                await self.client.flush(timeout=2)
        for _ in range(_CANCELS_MOST):
            if not self._tasks:
                break
            for task in tuple(self._tasks):
                task.cancel()
            # While connecting, the library may swallow a cancellation and try the next server.
            await asyncio.wait(tuple(self._tasks), timeout=_CANCEL_S)
        # The library asserts that a connection was started; a process that refuses its settings closes before that.
        with suppress(AssertionError, *NATS_ERRORS):
            await self.client.close()

    async def repair_streams(self) -> None:
        """Create missing streams, after the server reported one."""
        await self._ensure_streams()

    async def _connect(self) -> None:
        await self.client.connect(
            **self._options,
            name=self._name,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_connected,
            max_reconnect_attempts=-1,
            # The library sleeps for this long before the first connection; its annotation says int.
            reconnect_time_wait=_CONNECT_WAIT_S * self._rng.uniform(1, 2),  # type: ignore[arg-type]
            reconnect_to_server_handler=reconnects(self._rng),
            connect_timeout=2,
            ping_interval=_PING_S,
            max_outstanding_pings=2,
        )
        await self._on_connected()

    async def _on_connected(self) -> None:
        self.generation += 1
        self._logged_complaint = ""
        self._notify()
        self._spawn(self._become_usable(self.generation))

    async def _become_usable(self, generation: int) -> None:
        """Check the streams until that succeeds or the connection was replaced."""
        while self.generation == generation and self.client.is_connected:
            try:
                await self._ensure_streams()
            except PortError as error:
                self._set_problem(error)
            else:
                self._usable.set()
                self._is_away = False
                self._notify()
                self._log.info("nats-connected", generation=generation)
                return
            await asyncio.sleep(_STREAMS_RETRY_S)

    async def _on_disconnected(self) -> None:
        self.on_lost()
        if self.client.is_closed or not self._usable.is_set():
            return
        self._usable.clear()
        self._set_problem(Unavailable(f"NATS at {self._access.shown} is not connected"))

    async def _on_error(self, error: Exception) -> None:
        failure = port_error(error, f"NATS at {self._access.shown}")
        if self._usable.is_set():
            # A complaint of the library about one subscription or message; the connection itself still works.
            if str(failure) != self._logged_complaint:
                self._logged_complaint = str(failure)
                self._log.warning("nats-complaint", error=str(failure))
            return
        self._set_problem(failure)

    def _set_problem(self, problem: PortError) -> None:
        """Keep the problem. It is logged at its start and when it turns from Unavailable to Refused or back, not at every retry."""
        is_news = not self._is_away or isinstance(problem, Refused) != isinstance(self._problem, Refused)
        self._is_away = True
        self._problem = problem
        if is_news:
            self._log.warning("nats-away", error=str(problem))
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _ensure_streams(self) -> None:
        jetstream = self.client.jetstream(timeout=5)
        takes_batches = _syncs_a_batch_once(self.client)
        for stream, limits in self._streams.items():
            await self._ensure_stream(jetstream, _stream_config(stream.value, limits, takes_batches))
        if not takes_batches and self.takes_batches is not False:
            self._log.info("nats-without-batches", why="the server is before 2.15", effect="syncs for each message")
        self.takes_batches = takes_batches

    async def _ensure_stream(self, jetstream: nats.js.JetStreamContext, wanted: nats.js.api.StreamConfig) -> None:
        """Bring an existing stream to the registry's limits, or create it."""
        try:
            try:
                present = (await jetstream.stream_info(wanted.name or "")).config
            except nats.js.errors.NotFoundError:
                await self._create_stream(jetstream, wanted)
            else:
                if any(getattr(present, name) != getattr(wanted, name) for name in _OURS):
                    await jetstream.update_stream(
                        present.evolve(**{name: getattr(wanted, name) for name in _OURS}, name=wanted.name)
                    )
        except NATS_ERRORS as error:
            raise port_error(error, f"stream {wanted.name}") from error

    async def _create_stream(self, jetstream: nats.js.JetStreamContext, config: nats.js.api.StreamConfig) -> None:
        while True:
            try:
                await jetstream.add_stream(config)
                return
            except nats.js.errors.APIError as error:
                if error.err_code != _NO_STORAGE or (config.max_bytes or 0) <= _STREAM_BYTES_MIN:
                    raise
                # The server's disk is small: reserve half, since a smaller stream is better than none.
                config = config.evolve(max_bytes=(config.max_bytes or 0) // 2)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _syncs_a_batch_once(client: nats.aio.client.Client) -> bool:
    """Whether the server stores an atomic batch with one sync of the disk; before 2.15 a batch cost more than its messages."""
    try:
        version = client.connected_server_version
    except ValueError:
        return False
    return (version.major, version.minor) >= _SYNCS_ONCE_SINCE


def _stream_config(name: str, limits: StreamLimits, takes_batches: bool) -> nats.js.api.StreamConfig:
    return nats.js.api.StreamConfig(
        name=name,
        subjects=list(limits.subjects),
        retention=nats.js.api.RetentionPolicy.WORK_QUEUE if limits.work_queue else nats.js.api.RetentionPolicy.LIMITS,
        max_msgs_per_subject=limits.max_msgs_per_subject,
        max_age=limits.max_age_s,
        max_bytes=limits.max_bytes,
        duplicate_window=limits.duplicate_window_s,
        storage=nats.js.api.StorageType.FILE,
        discard=nats.js.api.DiscardPolicy.NEW if limits.work_queue else nats.js.api.DiscardPolicy.OLD,
        allow_direct=True,
        allow_atomic=takes_batches or None,
    )
