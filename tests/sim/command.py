"""The settings of a world as a command line that lives it again, and back: every setting, so that nothing must be guessed."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from typing import Any, Final

from msgspec import json, to_builtins

from colo_sim.world import WorldSettings

MODULE = "tests.sim.replay"
DEFAULTS: Final = WorldSettings(seed=0)
NAMES: Final = WorldSettings.__struct_fields__


def command_of(settings: WorldSettings, until_ms: int | None = None) -> str:
    """What to type to live this world again; of a nested setting what differs from its default."""
    words = ["python", "-m", MODULE]
    for name in NAMES:
        words += [_flag(name), _text(getattr(settings, name))]
    if until_ms is not None:
        words += ["--until", str(until_ms)]
    return shlex.join(words)


def add_settings(parser: ArgumentParser) -> None:
    """One option for every setting of a world; those that are left out have their defaults, but for the seed."""
    for name in NAMES:
        default = getattr(DEFAULTS, name)
        is_nested = not isinstance(default, int)
        parser.add_argument(
            _flag(name),
            dest=name,
            type=_reader(type(default)) if is_nested else int,
            required=name == "seed",
            default=default,
            metavar="JSON" if is_nested else "N",
        )


def settings_of(wanted: Namespace) -> WorldSettings:
    """The settings that were asked for on a command line."""
    return WorldSettings(**{name: getattr(wanted, name) for name in NAMES})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _reader(kind: type[Any]) -> Any:
    def read(text: str) -> Any:
        return json.decode(text.encode(), type=kind)

    return read


def _text(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    default = to_builtins(type(value)())
    differs = {name: part for name, part in to_builtins(value).items() if part != default[name]}
    return json.encode(differs).decode()
