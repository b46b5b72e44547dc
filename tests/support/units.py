"""The unit files and configuration that docs/install.md has people copy, as tests read them and run what they start."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["CONFIGURATION", "UNITS", "Unit", "relocated"]

UNITS: Final = Path(__file__).parents[2] / "examples" / "systemd"
CONFIGURATION: Final = ("colo.yaml", "nats.conf", "redis.conf")


class Unit:
    """One unit file: its settings in order, a key that is given twice twice."""

    def __init__(self, name: str) -> None:
        self.name = name
        lines = (UNITS / name).read_text().splitlines()
        pairs = [line.partition("=")[::2] for line in lines if "=" in line and not line.startswith("#")]
        self._settings = [(key.strip(), value.strip()) for key, value in pairs]

    def all(self, key: str) -> list[str]:
        """Every value of the key."""
        return [value for each, value in self._settings if each == key]

    def one(self, key: str) -> str:
        """The value of a key that is given once."""
        (value,) = self.all(key)
        return value

    def command(self, instance: str = "") -> list[str]:
        """The words of ExecStart=, for an instance of a template."""
        return shlex.split(self.one("ExecStart").replace("%i", instance))

    def environment(self) -> dict[str, str]:
        """What Environment= sets."""
        return dict(setting.partition("=")[::2] for setting in self.all("Environment"))

    def capabilities(self) -> list[str]:
        """The names in CapabilityBoundingSet=, as setpriv writes them: lower case, without "cap_"."""
        return [name.lower().removeprefix("cap_") for name in self.one("CapabilityBoundingSet").split()]


def relocated(text: str, places: Mapping[str, str]) -> str:
    """The text with each of these paths, addresses and words replaced, the longest first."""
    for old in sorted(places, key=len, reverse=True):
        text = text.replace(old, places[old])
    return text
