"""One connection to NATS that reconnects for ever, and is usable while the streams are as wanted. It configures nothing."""

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from colo_common.adapters.nats_access import NatsAccess, reconnects
from colo_common.adapters.nats_client import ColoClient
from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.adapters.nats_stream_config import StreamWish, stream_difference, syncs_a_batch_once
from colo_common.events.registry import Stream, StreamLimits
from colo_common.model.invalid import InvalidInput
from colo_common.ports import PortError, Refused, Unavailable

__all__ = ["NatsConnection"]

_CONNECT_WAIT_S: Final = 0.1
_FILES_LOOK_S: Final = 2.0
# What the library keeps of files; nkeys and credentials it reads for each connection.
_OF_FILES: Final = ("tls", "user", "password")
_PING_S: Final = 5
# Between two looks at streams that are not as wanted: this long at first, twice as long each time, up to the second one.
_STREAMS_RETRY_S: Final = 0.5
_STREAMS_RETRY_MOST_S: Final = 5.0
# How often an instance that holds a share of the work looks at the streams while it is connected, and for how long it waits.
_STREAMS_LOOK_S: Final = 2.0
_STREAMS_ANSWER_S: Final = 3.0
_CANCELS_MOST: Final = 10
_CANCEL_S: Final = 0.1
# What the server says of a subject that this user has no right to; the connection goes on.
_REFUSED_RIGHT: Final = re.compile(r"permissions violation for (publish|subscription) to ", re.IGNORECASE)


class NatsConnection:
    """The NATS client, whether it is usable, and the problem while it is not.

    `generation` counts connects and reconnects; listeners follow it with `wait_usable` and `wait_other_generation`. `on_lost` is
    called when the connection breaks, and `on_refused` with "publish" or "subscription" when the user has no right to a subject.
    """

    def __init__(self, access: NatsAccess, name: str, streams: Mapping[Stream, StreamLimits], wish: StreamWish) -> None:
        self._access = access
        self._rng = random.Random()
        self.client = ColoClient()
        self.generation = 0
        self.on_lost: Callable[[], None] = lambda: None
        self.on_refused: Callable[[str], None] = lambda _right: None
        #: Whether the server takes atomic batches; None until the first connection.
        self.takes_batches: bool | None = None
        self._name = name
        self._streams = streams
        self._wish = wish
        self._log = structlog.get_logger(source="nats").bind(server=access.shown)
        self._problem: PortError = Unavailable(f"NATS at {access.shown} was not reached yet")
        self._usable = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Whether the last look of `watch_streams` found them as wanted; True before the first one.
        self._has_streams = True
        self._logged_complaint = ""
        self._is_away = False
        self._options: dict[str, Any] = {}

    def start(self) -> None:
        """Connect in the background. Raises InvalidInput for an address or a file that breaks a rule."""
        self._options = self._access.options_for(self.client)
        self._spawn(self._connect())
        if self._access.files:
            self._spawn(self._follow_files([Path(each) for each in self._access.files]))

    async def wait_usable(self) -> None:
        """Return when connected and the streams are as wanted."""
        await self._usable.wait()

    async def wait_settled(self) -> None:
        """Return when usable; raise Refused when the server was reached and cannot serve (no JetStream)."""
        while not self._usable.is_set():
            if isinstance(self._problem, Refused):
                raise self._own_problem()
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
            raise self._own_problem()

    def _own_problem(self) -> PortError:
        """The present problem, as an error of whoever asks: one that another call got says which messages that one has left."""
        return type(self._problem)(*self._problem.args)

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

    @property
    def has_streams(self) -> bool:
        """Whether a server is reached and the streams can be used there, as far as is known."""
        return self.client.is_connected and self._usable.is_set() and self._has_streams

    def watch_streams(self) -> None:
        """Look every two seconds from now on whether the streams can still be used, for `has_streams`.

        Whoever is connected may lose the right to them, and its server JetStream or the other servers.
        """
        self._spawn(self._keep_looking())

    def doubt_streams(self, problem: PortError) -> None:
        """Look at the streams again before this connection is used, since the server took no message for one of them."""
        if self._usable.is_set():
            self._usable.clear()
            self._set_problem(problem)
            self._spawn(self._become_usable(self.generation))

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

    async def _follow_files(self, paths: Sequence[Path]) -> None:
        """Connect again when a file of the credentials or certificates has changed and the server takes the new ones.

        Until then the connection that was made with those before goes on.
        """
        known, is_new, is_logged = _changed_at(paths), False, False
        while True:
            await asyncio.sleep(_FILES_LOOK_S)
            now = _changed_at(paths)
            if now != known and 0 not in now:
                known, is_new, is_logged = now, True, False
            if not is_new:
                continue
            if not self.client.is_connected:
                # It tries to connect again and again in any case.
                self._take_files()
            elif await self._is_let_in() and self._take_files():
                self._log.info("credentials-changed")
                await self.client.force_reconnect()
                is_new = False
            elif not is_logged:
                self._log.info("credentials-not-known-yet", effect="those before are used on")
                is_logged = True

    def _take_files(self) -> bool:
        """Make the next connection with what the files have now; False while that breaks a rule."""
        try:
            options = self._access.options()
        except InvalidInput:
            return False
        self.client.options.update({name: options[name] for name in _OF_FILES if name in options})
        return True

    async def _is_let_in(self) -> bool:
        """Whether the server takes what the files have now."""
        client = ColoClient()
        try:
            options = self._access.options_for(client) | {"name": f"{self._name}-new", "allow_reconnect": False}
            await client.connect(**options, error_cb=_ignore, connect_timeout=2)
        except (InvalidInput, *NATS_ERRORS):
            return False
        else:
            return True
        finally:
            with suppress(AssertionError, *NATS_ERRORS):
                await client.close()

    async def _on_connected(self) -> None:
        self.generation += 1
        self._logged_complaint = ""
        self._notify()
        self._spawn(self._become_usable(self.generation))

    async def _become_usable(self, generation: int) -> None:
        """Check the streams until that succeeds or the connection was replaced."""
        wait_s = _STREAMS_RETRY_S
        while self.generation == generation and self.client.is_connected:
            try:
                await self._check_streams()
            except PortError as error:
                self._set_problem(error)
            else:
                self._usable.set()
                self._is_away = False
                self._notify()
                self._log.info("nats-connected", generation=generation)
                return
            await asyncio.sleep(wait_s * self._rng.uniform(0.5, 1))
            wait_s = min(2 * wait_s, _STREAMS_RETRY_MOST_S)

    async def _keep_looking(self) -> None:
        while True:
            await self._usable.wait()
            try:
                async with asyncio.timeout(_STREAMS_ANSWER_S):
                    await self._check_streams()
            except (PortError, TimeoutError) as error:
                if self._has_streams and self._usable.is_set():
                    self._log.warning("streams-out-of-reach", error=str(error) or "no answer in time")
                self._has_streams = False
            else:
                self._has_streams = True
            await asyncio.sleep(_STREAMS_LOOK_S)

    async def _on_disconnected(self) -> None:
        self.on_lost()
        if self.client.is_closed or not self._usable.is_set():
            return
        self._usable.clear()
        self._set_problem(Unavailable(f"NATS at {self._access.shown} is not connected"))

    async def _on_error(self, error: Exception) -> None:
        refused = _REFUSED_RIGHT.search(str(error))
        if refused is not None:
            self.on_refused(refused[1].lower())
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

    async def _check_streams(self) -> None:
        """Raise Unavailable with one sentence when a stream is missing or not as wanted."""
        jetstream = self.client.jetstream(timeout=5)
        found = await asyncio.gather(*(self._present(jetstream, stream) for stream in self._streams))
        for (stream, limits), present in zip(self._streams.items(), found, strict=True):
            difference = stream_difference(stream.value, present, limits, self._wish)
            if difference:
                raise Unavailable(difference)
        takes_batches = syncs_a_batch_once(self.client)
        if not takes_batches and self.takes_batches is not False:
            self._log.info("nats-without-batches", why="the server is before 2.15", effect="syncs for each message")
        self.takes_batches = takes_batches and all(present is not None and present.allow_atomic for present in found)

    async def _present(self, jetstream: JetStreamContext, stream: Stream) -> StreamConfig | None:
        try:
            return (await jetstream.stream_info(stream.value)).config
        except NotFoundError:
            return None
        except NATS_ERRORS as error:
            raise port_error(error, f"stream {stream.value}") from error

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ignore(_error: Exception) -> None:
    """What the library says of a connection that is only a question."""


def _changed_at(paths: Sequence[Path]) -> list[int]:
    """When each file was changed last, 0 while it is not there."""
    found = []
    for path in paths:
        try:
            found.append(path.stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return found
