"""Properties of systemd's units: what systemd owns it writes again at each reload, by what the unit says.

Asked and set by systemctl, which reaches systemd also where no message bus runs; each call has a time limit, and after one that did
not answer nothing more is asked in that round. What is set lasts until the next boot (--runtime), in a file of systemd's below
/run. `systemctl revert` would remove that file with everything else that an operator set for the unit, and nothing in systemd takes
back one property; so the value is set back, and then the one file is removed.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from colo_executor.cgroup import CgroupError
from colo_executor.knob_table import Knob
from colo_executor.unit_properties import UnitProperty, property_of, property_path, property_text, shown_text

__all__ = ["SystemdUnits", "units_of_this_machine"]

_KINDS: Final = (".service", ".slice", ".scope")
_LIMIT_S: Final = 10.0
_SHOWN_AS: Final = {"CPUQuota": "CPUQuotaPerSecUSec"}
_PATH: Final = "/usr/bin:/bin"
_FILES: Final = ("system.control", "transient", "system")
"""Where systemd keeps what is set with --runtime: of units with a file, of transient ones, and before v235 of all."""
_HEADER: Final = 'created via "systemctl set-property"'
_HEADER_WITHIN: Final = 200


class SystemdUnits:
    """The units of one systemd. `systemctl` runs it with these words and returns what it prints; it raises CgroupError.

    `changing` is called with name and old value of a property before it is first set. `run` is where systemd keeps files until the
    next boot.
    """

    def __init__(
        self,
        systemctl: Callable[[Sequence[str]], str],
        changing: Callable[[str, str], None],
        run: str = "/run/systemd",
    ) -> None:
        self._systemctl = systemctl
        self._changing = changing
        self._run = run
        self._noted: set[str] = set()
        self._back: dict[UnitProperty, str | None] = {}

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
        is_there = self._systemctl(["show", "--property=LoadState", "--value", "--", unit]).strip() == "loaded"
        if is_there:
            self._set(unit, {name: value})
        self._back[unit, name] = value if is_there else None
        self._noted.discard(property_path(unit, name))

    def remove_files(self) -> None:
        """Remove the files that setting the properties left, of those that were put back, and let systemd forget them.

        A unit that has not its old value then had a file from before, and gets the value as that was, by `set-property`. Where
        this process may not write there, or systemd does not reload in time, the file stays until the next boot with the old value.
        Raises CgroupError.
        """
        back, self._back = self._back, {}
        removed = [each for each in back if self._remove_file(*each)]
        if not removed:
            return
        is_reloaded = False
        with contextlib.suppress(CgroupError):
            self._systemctl(["daemon-reload"])
            is_reloaded = True
        for unit, name in removed:
            value = back[unit, name]
            if value is not None and not (is_reloaded and self._shown(unit, name) == value):
                self._set(unit, {name: value})

    def _remove_file(self, unit: str, name: str) -> bool:
        """Remove systemd's file of the property, and its directory when that is empty; False where there was none of its making."""
        is_removed = False
        for directory in (os.path.join(self._run, each, f"{os.path.basename(unit)}.d") for each in _FILES):
            path = os.path.join(directory, f"50-{name}.conf")
            with contextlib.suppress(OSError):
                with open(path, encoding="utf-8", errors="replace") as file:
                    if _HEADER not in file.read(_HEADER_WITHIN):
                        continue
                os.unlink(path)
                is_removed = True
                os.rmdir(directory)
        return is_removed

    def unit_of(self, group: str) -> str:
        """The unit that owns the group, "" when none does. Raises CgroupError."""
        name = group.rpartition("/")[2]
        if not name.endswith(_KINDS):
            return ""
        owned = self._systemctl(["show", "--property=ControlGroup", "--value", "--", name]).strip()
        return name if owned == f"/{group}" else ""

    def has(self, group: str, name: str) -> str | None:
        """What the property of the unit that owns the group is, "" where it is not set; None for no unit. Raises CgroupError."""
        unit = self.unit_of(group)
        return self._shown(unit, name) if unit else None

    def group_of(self, unit: str) -> str:
        """The path of the group that the unit has now, without a first "/"; "" for a unit without one. Raises CgroupError."""
        shown = self._systemctl(["show", "--property=ControlGroup", "--value", "--", unit])
        return shown.strip().removeprefix("/")

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
