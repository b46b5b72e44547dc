"""Who changed a kernel file, as far as its path and the properties of systemd's units tell. Pure rules.

The kernel keeps no author of a value, so a writer is named only where something else than the value speaks for it.
"""

from collections.abc import Iterable
from typing import Final

from colo_common.events.enforcement import KnobValue, LikelyWriter
from colo_common.model.invalid import InvalidInput
from colo_executor.knob_table import PERIOD_US, UNLIMITED, Knob, file_of
from colo_executor.knobs import value_of
from colo_executor.unit_properties import property_of, property_text

__all__ = ["asked_unit", "kubelet_writers", "writer_by_property"]

_POD_TREES: Final = ("kubepods", "kubepods.slice")
_KINDS: Final = (".service", ".slice", ".scope")
_DEFAULT: Final = {"CPUWeight": "100"}
"""What systemd writes for a property that is not set, where that is not "" in its words."""
_KNOB_OF: Final = {place[1]: knob for knob in Knob if property_of(knob, 2) and (place := file_of(knob, 2)) is not None}


def kubelet_writers(knobs: Iterable[KnobValue]) -> tuple[LikelyWriter, ...]:
    """The changes in the tree of Kubernetes pods, in which a kubelet and its container runtime write again and again."""
    return tuple(
        LikelyWriter(
            path=knob.path,
            writer="kubelet",
            evidence="a kubelet and its container runtime own the tree of pods that it is in",
        )
        for knob in knobs
        if any(part in _POD_TREES for part in knob.path.split("/"))
    )


def asked_unit(path: str) -> tuple[str, Knob] | None:
    """The group of cgroup v2 that is a unit by its name, and the knob, of a file that systemd writes by a property; else None."""
    group, _, name = path.rpartition("/")
    knob = _KNOB_OF.get(name)
    return (group, knob) if knob is not None and group.endswith(_KINDS) else None


def writer_by_property(knob: Knob, change: KnobValue, unit: str, has: str) -> LikelyWriter | None:
    """Whether systemd wrote the value that was found (`change.before`): it did where the unit's property `has` just that.

    None where the two cannot be compared.
    """
    name = property_of(knob, 2)
    try:
        found = _property_for(knob, change.before)
    except (InvalidInput, ValueError):
        return None
    shown = f"{name} of {unit} is {has or 'not set'}"
    if found == (has or _DEFAULT.get(name, "")):
        evidence = f"{shown}, as was found: systemctl set-property, a reload, or a start of the unit"
        return LikelyWriter(path=change.path, writer="systemd", evidence=evidence)
    return LikelyWriter(path=change.path, writer="unknown", evidence=f"{shown}: systemd did not write what was found")


def _property_for(knob: Knob, shown: str) -> str:
    """The value of the property for which systemd writes what the file shows."""
    if knob is Knob.CPU_WEIGHT:
        return shown
    if knob is Knob.CPU_QUOTA:
        quota, _, period = shown.partition(" ")
        value = UNLIMITED if quota == "max" else int(quota) * PERIOD_US // int(period or PERIOD_US)
        return property_text(knob, 2, value)
    return property_text(knob, 2, value_of(knob, 2, shown))
