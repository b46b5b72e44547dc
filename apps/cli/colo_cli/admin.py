"""`colo admin init|upgrade|check`: the streams that every service needs, made by one command and by nothing else."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from msgspec import Struct

from colo_cli.failure import Failure
from colo_cli.output import Format, SettingWords, counted, print_data, print_table
from colo_common.adapters.nats_streams import StreamState, check_streams, make_streams
from colo_common.events.registry import STREAMS_VERSION
from colo_common.model.duration import format_duration
from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import bytes_text
from colo_common.ports import PortError
from colo_common.runtime.access import nats_access_of, stream_wish_of
from colo_common.runtime.settings import BadSettings, Common, load

__all__ = ["admin_settings", "check", "init", "upgrade"]

_COLUMNS: Final = ("STREAM", "KEEPS", "FOR", "REPLICAS", "VERSION", "HOLDS", "MESSAGES", "CONSUMERS", "STATE")


class AdminReport(Struct, frozen=True, kw_only=True):
    """The streams as they are, and the version that this program makes."""

    version: int
    streams: tuple[StreamState, ...]


def init(*settings: SettingWords, output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table") -> int:
    """Create the streams that are missing; those that exist stay as they are.

    Args:
        settings: settings of a service that say where NATS is, how many servers keep a stream and how much disk there is:
            --nats-url, --stream-replicas, --stream-disk-bytes, --nats-creds-file, --config and more, or COLO_NATS_URL and so on.
        output: table, json or yaml.
    """
    common = admin_settings(settings)
    return _shown(lambda: make_streams(nats_access_of(common), stream_wish_of(common), upgrade=False), output)


def upgrade(*settings: SettingWords, output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table") -> int:
    """Create the streams that are missing and bring the others to this version's limits; a newer version's stay as they are.

    Args:
        settings: the same ones as for `colo admin init`; without --stream-disk-bytes the disk stays what was stated before, and no
            stream is kept by fewer servers than before.
        output: table, json or yaml.
    """
    common = admin_settings(settings)
    return _shown(lambda: make_streams(nats_access_of(common), stream_wish_of(common), upgrade=True), output)


def check(*settings: SettingWords, output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table") -> int:
    """Show the streams and how they differ from what this version wants; changes nothing.

    Args:
        settings: the same ones as for `colo admin init`.
        output: table, json or yaml.
    """
    common = admin_settings(settings)
    return _shown(lambda: check_streams(nats_access_of(common), stream_wish_of(common)), output)


def admin_settings(words: Sequence[str]) -> Common:
    """The settings that the words, the environment and the file say. Raises Failure with everything that is wrong."""
    try:
        return load(Common, "admin", words, os.environ)
    except BadSettings as error:
        raise Failure(str(error), 2) from error


def _shown(ask: Callable[[], Coroutine[None, None, list[StreamState]]], output: Format) -> int:
    """Print the streams; 1 when one of them is not as wanted."""
    try:
        states = asyncio.run(ask())
    except InvalidInput as error:
        raise Failure(str(error), 2) from error
    except PortError as error:
        raise Failure(str(error)) from error
    wrong = [state for state in states if state.problem]
    if output != "table":
        report = AdminReport(version=STREAMS_VERSION, streams=tuple(states))
        print_data(msgspec.to_builtins(report), output)
        return 1 if wrong else 0
    print_table(_COLUMNS, [_row(state) for state in states], "no streams")
    for state in wrong:
        print(state.problem)
    if wrong:
        print(f"{counted(len(wrong), 'stream')} of {len(states)} not as wanted")
    return 1 if wrong else 0


def _row(state: StreamState) -> list[str]:
    if not state.exists:
        return [state.stream, *[""] * 7, "missing"]
    found = "behind: " + ", ".join(state.behind) if state.behind else "ok"
    return [
        state.stream,
        bytes_text(state.max_bytes),
        format_duration(state.max_age_s * 1_000) if state.max_age_s else "ever",
        str(state.replicas),
        str(state.version),
        bytes_text(state.size_bytes),
        str(state.messages),
        str(state.consumers),
        "differs" if state.problem else state.changed or found,
    ]
