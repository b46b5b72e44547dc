"""The rules of cgroup v1's devices controller: which device files the processes of a group may open.

A group lists what is open ("c 1:3 rwm", one rule a line) and refuses the rest, or it says "a *:* rwm" and refuses what it does not
list. The list is read only: it changes by writes to devices.allow and devices.deny (linux/Documentation/admin-guide/cgroup-v1/
devices.rst).
"""

import re
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["ALL", "access_writes", "check_rules", "rules_in"]

ALL: Final = "a *:* rwm"
"""Every device is open, but for those that an earlier write may have denied, which the kernel does not show."""
_RULE: Final = re.compile(r"([bc] (?:[0-9]{1,10}|\*):(?:[0-9]{1,10}|\*)) (r?w?m?)", re.ASCII)
_MODES: Final = "rwm"


def check_rules(text: str, field: str) -> str:
    """The rules, one a line. Raises InvalidInput for one that the kernel would not show so."""
    if text == ALL:
        return text
    for line in text.splitlines():
        match = _RULE.fullmatch(line)
        if match is None or not match[2]:
            raise InvalidInput(field, 'must be rules such as "c 1:3 rwm", one a line', line)
    return text


def rules_in(text: str) -> dict[str, frozenset[str]] | None:
    """What is open, by type and numbers ("c 1:3"): r, w and m. None where everything is; lines of another form are left out."""
    if ALL in text.splitlines():
        return None
    found: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        match = _RULE.fullmatch(line.strip())
        if match is not None:
            found[match[1]] = found.get(match[1], frozenset()) | frozenset(match[2])
    return found


def access_writes(shown: str, wanted: str) -> tuple[tuple[str, str], ...]:
    """File and text of each write that leads from the rules that the kernel shows to the wanted ones.

    What is open before and after stays open all the time; only where everything was open nothing is for a moment.
    """
    now, aim = rules_in(shown), rules_in(wanted)
    if aim is None:
        return () if now is None else (("devices.allow", "a"),)
    closed = [("devices.deny", "a")] if now is None else []
    now = now or {}
    opened = [("devices.allow", _rule(name, access)) for name, access in aim.items() if access - now.get(name, set())]
    extra = {name: access - aim.get(name, set()) for name, access in now.items()}
    return (*closed, *opened, *(("devices.deny", _rule(name, access)) for name, access in extra.items() if access))


def _rule(name: str, access: frozenset[str]) -> str:
    return f"{name} {''.join(mode for mode in _MODES if mode in access)}"
