"""Which groups of online work are read where there are more than can be: those that use most CPU. Who is left out is known."""

import contextlib
import os
from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["BUSY_MCPU", "BusiestGroups", "recent", "used_us"]

BUSY_MCPU: Final = 50
"""From so much CPU use on a group is busy: what idles has nobody who waits."""
_KEPT_MS: Final = 60_000
"""A group that was busy counts for so long, so that the rule of the reflex does not change with every pause of it."""
_HELD: Final = 2
"""One that is not read has to use so many times as much as one that is, so that who is read changes as little as may be."""


class BusiestGroups:
    """Chooses `most` groups of a hierarchy of cgroup v2 at each listing. Reads nothing where there are not more."""

    def __init__(self, root: str, most: int) -> None:
        self._root = root
        self._most = most
        self._chosen: set[str] = set()
        self._used_us: dict[str, int] = {}
        self._listed_at_ms: int | None = None
        self._left_out_at_ms: dict[str, int] = {}

    def choose(self, names: Collection[str], now_ms: int) -> set[str]:
        """The groups to read until the next listing. Never raises OSError."""
        if len(names) <= self._most:
            self._chosen, self._used_us, self._listed_at_ms, self._left_out_at_ms = set(names), {}, None, {}
            return self._chosen
        used_us_now = {name: used_us(os.path.join(self._root, name, "cpu.stat")) for name in names}
        span_ms = 0 if self._listed_at_ms is None else now_ms - self._listed_at_ms
        # The first listing knows only what each used since it was made; later ones know nothing of a group that is new.
        is_first = self._listed_at_ms is None
        more_us = {name: used - self._used_us.get(name, 0 if is_first else used) for name, used in used_us_now.items()}
        self._used_us, self._listed_at_ms = used_us_now, now_ms
        before = self._chosen
        self._chosen = set(
            sorted(
                names, key=lambda name: (-more_us[name] * (_HELD if name in before else 1), name not in before, name)
            )[: self._most]
        )
        busy = {name for name, more in more_us.items() if span_ms > 0 and more >= BUSY_MCPU * span_ms}
        left_out = used_us_now.keys() - self._chosen
        at_ms = self._left_out_at_ms | dict.fromkeys(busy, now_ms)
        self._left_out_at_ms = recent(at_ms, left_out, now_ms)
        return self._chosen

    def left_out(self) -> tuple[str, ...]:
        """The groups that are not read and were busy within the last minute, in order."""
        return tuple(sorted(self._left_out_at_ms))


def used_us(path: str) -> int:
    """The CPU time of a group by its file "cpu.stat" (v2) or "cpuacct.usage" (v1); 0 where it is gone or shows none."""
    with contextlib.suppress(OSError, ValueError):
        # A file object would take three times as long, and there may be hundreds of groups.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, 64).split(b"\n", 1)[0]
        finally:
            os.close(fd)
        return int(text.removeprefix(b"usage_usec ")) if b" " in text else int(text) // 1_000
    return 0


def recent(at_ms: Mapping[str, int], known: Collection[str], now_ms: int) -> dict[str, int]:
    """Those of the groups that are still known, and whose time is within the last minute."""
    return {name: at for name, at in at_ms.items() if name in known and 0 <= now_ms - at < _KEPT_MS}
