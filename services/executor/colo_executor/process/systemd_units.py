"""Properties of systemd's units: what systemd owns it writes again at each reload, by what the unit says.

Asked and set by systemctl, which reaches systemd also where no message bus runs; each call has a time limit, and after one that did
not answer nothing more is asked in that round. What is set lasts until the next boot (--runtime).
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from colo_executor.cgroup import CgroupError
from colo_executor.knobs import Knob
from colo_executor.unit_properties import property_of, property_path, property_text, shown_text

__all__ = ["SystemdUnits", "units_of_this_machine"]

_KINDS: Final = (".service", ".slice", ".scope")
_LIMIT_S: Final = 10.0
_SHOWN_AS: Final = {"CPUQuota": "CPUQuotaPerSecUSec"}
_PATH: Final = "/usr/bin:/bin"


class SystemdUnits:
    """The units of one systemd. `systemctl` runs it with these words and returns what it prints; it raises CgroupError.

    `changing` is called with name and old value of a property before it is first set.
    """

    def __init__(self, systemctl: Callable[[Sequence[str]], str], changing: Callable[[str, str], None]) -> None:
        self._systemctl = systemctl
        self._changing = changing
        self._noted: set[str] = set()

    def keep(self, group: str, version: int, values: Mapping[Knob, int | str]) -> None:
        """Set the properties of the unit that owns the group, if one does, so that a reload writes these values.

        Raises CgroupError when systemd refuses it or does not answer.
        """
        unit = self.unit_of(group)
        wanted = {property_of(knob, version): property_text(knob, version, value) for knob, value in values.items()}
        wanted.pop("", None)
        if not unit or not wanted:
            return
        for name in wanted:
            path = property_path(unit, name)
            if path not in self._noted:
                self._changing(path, self._shown(unit, name))
                self._noted.add(path)
        self._set(unit, wanted)

    def put_back(self, unit: str, name: str, value: str) -> None:
        """Give the property the value from before. A unit that is gone has none. Raises CgroupError."""
        if self._systemctl(["show", "--property=LoadState", "--value", "--", unit]).strip() == "loaded":
            self._set(unit, {name: value})
        self._noted.discard(property_path(unit, name))

    def unit_of(self, group: str) -> str:
        """The unit that owns the group, "" when none does. Raises CgroupError."""
        name = group.rpartition("/")[2]
        if not name.endswith(_KINDS):
            return ""
        owned = self._systemctl(["show", "--property=ControlGroup", "--value", "--", name]).strip()
        return name if owned == f"/{group}" else ""

    def _shown(self, unit: str, name: str) -> str:
        return shown_text(
            name,
            self._systemctl(["show", f"--property={_SHOWN_AS.get(name, name)}", "--value", "--", unit]).strip(),
        )

    def _set(self, unit: str, values: Mapping[str, str]) -> None:
        words = [f"{name}={value}" for name, value in sorted(values.items())]
        self._systemctl(["set-property", "--runtime", "--", unit, *words])


def units_of_this_machine(cgroup_root: str, changing: Callable[[str, str], None]) -> SystemdUnits | None:
    """The units of the systemd that runs here; None where none does, or these are not this machine's control groups."""
    program = shutil.which("systemctl", path=_PATH)
    if program is None or cgroup_root != "/sys/fs/cgroup" or not os.path.isdir("/run/systemd/system"):
        return None
    path = program

    def systemctl(words: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                [path, *words],
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
                stdin=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": _PATH, "LC_ALL": "C", "SYSTEMD_PAGER": ""},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CgroupError(f"systemctl {' '.join(words)}: {error}") from error
        if done.returncode:
            raise CgroupError(f"systemctl {' '.join(words)}: {done.stderr.strip()[:300]}")
        return done.stdout

    return SystemdUnits(systemctl, changing)
