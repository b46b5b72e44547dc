"""Puts back kept values that another program changed, in an order that the kernel accepts."""

import contextlib
from collections.abc import Collection
from typing import Final

from colo_common.events.enforcement import KnobValue
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree, Drifted
from colo_executor.knob_table import Knob
from colo_executor.knobs import text_of
from colo_executor.local import Drift
from colo_executor.order import KnobWrite, ordered_writes

__all__ = ["changed_values", "put_back", "values_of"]

_TOGETHER: Final = (
    (Knob.CPUSET_CPUS,),
    (Knob.CPUSET_MEMS,),
    (Knob.CPU_QUOTA, Knob.CPU_PERIOD, Knob.CPU_BURST),
    (Knob.CPU_WEIGHT, Knob.CPU_IDLE),
    (Knob.MEMORY_LIMIT, Knob.MEMORY_SWAP_LIMIT),
)
"""Knobs that depend on each other, or on those of the parent and the children of a group: they are put back together."""
_ORDERED: Final = frozenset(knob for knobs in _TOGETHER for knob in knobs)


def put_back(tree: CgroupTree, drifted: tuple[Drifted, ...], yields: Collection[str] = ()) -> Drift:
    """Write the kept values back. Reports the corrected files, and a sentence for each file that could not be corrected.

    What has changed in the groups `yields` is reported as yielded and stays. The caller must hold the locks of the tree.
    """
    failed: list[str] = []
    yielded = tuple(_value(tree, drift) for drift in drifted if drift.write.path in yields)
    drifted = tuple(drift for drift in drifted if drift.write.path not in yields)
    for drift in drifted:
        if drift.write.knob not in _ORDERED:
            _write(tree, (drift.write,), failed)
    for knobs in _TOGETHER:
        if any(drift.write.knob in knobs for drift in drifted):
            _write_in_order(tree, knobs, failed, yields)
    still = {drift.file for drift in tree.drifted(dict.fromkeys(drift.write.path for drift in drifted))}
    corrected = tuple(_value(tree, drift) for drift in drifted if drift.file not in still)
    lost = [
        f"{drift.file}: shows {drift.shown!r} and not {_text(tree, drift)!r}"
        for drift in drifted
        if drift.file in still
    ]
    return Drift(knobs=corrected, failed=tuple(failed or lost), yielded=yielded)


def changed_values(tree: CgroupTree) -> Drift:
    """The values that another program changed, and what would be written in their place; nothing is written."""
    return Drift(knobs=tuple(_value(tree, drift) for drift in tree.drifted()))


def _value(tree: CgroupTree, drift: Drifted) -> KnobValue:
    return KnobValue(path=drift.file, value=_text(tree, drift), before=drift.shown)


def _text(tree: CgroupTree, drift: Drifted) -> str:
    return text_of(drift.write.knob, tree.version, drift.write.value)


def _write_in_order(tree: CgroupTree, knobs: tuple[Knob, ...], failed: list[str], yields: Collection[str]) -> None:
    kept = {knob: tree.kept(knob) for knob in knobs}
    target: dict[str, dict[Knob, int | str]] = {}
    have: dict[str, dict[Knob, int | str]] = {}
    try:
        for path in dict.fromkeys(path for writes in kept.values() for path in writes):
            if tree.exists(path):
                target[path] = {knob: writes[path].value for knob, writes in kept.items() if path in writes}
                have[path] = values_of(tree, path, knobs)
                if path in yields:
                    target[path] = {knob: have[path].get(knob, value) for knob, value in target[path].items()}
        # A file that is gone while its group is not counts as not put back.
        shown = {path: {knob: values[knob] for knob in values if knob in have[path]} for path, values in target.items()}
        writes = ordered_writes(have, shown)
    except (CgroupError, OSError, InvalidInput, ValueError) as error:
        failed.append(str(error))
        return
    _write(tree, writes, failed)
    for path, values in target.items():
        for knob in knobs:
            if knob in values:
                # The value of a step on the way is not the one to keep.
                tree.keep(kept[knob][path])
            else:
                tree.forget(path, knob)


def values_of(tree: CgroupTree, path: str, knobs: tuple[Knob, ...]) -> dict[Knob, int | str]:
    """The values of these knobs now, of those that the kernel has."""
    found: dict[Knob, int | str] = {}
    for knob in knobs:
        with contextlib.suppress(FileNotFoundError):
            if (value := tree.read(knob, path)) is not None:
                found[knob] = value
    return found


def _write(tree: CgroupTree, writes: tuple[KnobWrite, ...], failed: list[str]) -> None:
    for write in writes:
        try:
            tree.write(write)
        except FileNotFoundError:
            # The group was deleted, or the file itself, which then counts as not put back.
            continue
        except (CgroupError, OSError) as error:
            failed.append(str(error))
