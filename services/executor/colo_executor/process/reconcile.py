"""Puts back kept values that another program changed, in an order that the kernel accepts."""

from typing import Final

from colo_common.events.enforcement import KnobValue
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree, Drifted
from colo_executor.knobs import Knob, text_of
from colo_executor.local import Drift
from colo_executor.order import KnobWrite, cpuset_writes, quota_writes

__all__ = ["changed_values", "put_back"]

_SETS: Final = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)
_ORDERED: Final = (*_SETS, Knob.CPU_QUOTA)
"""The knobs whose values depend on those of the parent and the children of a group."""


def put_back(tree: CgroupTree, drifted: tuple[Drifted, ...]) -> Drift:
    """Write the kept values back. Reports the corrected files, and a sentence for each file that could not be corrected.

    The caller must hold the locks of the tree.
    """
    failed: list[str] = []
    for drift in drifted:
        # The period of a quota must be written before it; the other values depend on nothing.
        if drift.write.knob not in _ORDERED:
            _write(tree, (drift.write,), failed)
    for knob in _ORDERED:
        if any(drift.write.knob is knob for drift in drifted):
            _write_in_order(tree, knob, failed)
    still = {drift.file for drift in tree.drifted(dict.fromkeys(drift.write.path for drift in drifted))}
    corrected = tuple(
        KnobValue(path=drift.file, value=_text(tree, drift), before=drift.shown)
        for drift in drifted
        if drift.file not in still
    )
    lost = [
        f"{drift.file}: shows {drift.shown!r} and not {_text(tree, drift)!r}"
        for drift in drifted
        if drift.file in still
    ]
    return Drift(knobs=corrected, failed=tuple(failed or lost))


def changed_values(tree: CgroupTree) -> Drift:
    """The values that another program changed, and what would be written in their place; nothing is written."""
    return Drift(
        knobs=tuple(
            KnobValue(path=drift.file, value=_text(tree, drift), before=drift.shown) for drift in tree.drifted()
        )
    )


def _text(tree: CgroupTree, drift: Drifted) -> str:
    return text_of(drift.write.knob, tree.version, drift.write.value)


def _write_in_order(tree: CgroupTree, knob: Knob, failed: list[str]) -> None:
    kept = tree.kept(knob)
    try:
        writes = _set_writes(tree, knob, kept) if knob in _SETS else _quota_writes(tree, kept)
    except (CgroupError, OSError, InvalidInput, ValueError) as error:
        failed.append(str(error))
        return
    _write(tree, writes, failed)
    for write in kept.values():
        # The value of a step on the way is not the one to keep.
        tree.keep(write)


def _set_writes(tree: CgroupTree, knob: Knob, kept: dict[str, KnobWrite]) -> tuple[KnobWrite, ...]:
    target = {path: CpuSet.parse(str(write.value), path) for path, write in kept.items() if tree.exists(path)}
    return cpuset_writes(knob, {path: CpuSet.parse(tree.value(knob, path), path) for path in target}, target)


def _quota_writes(tree: CgroupTree, kept: dict[str, KnobWrite]) -> tuple[KnobWrite, ...]:
    target = {path: int(write.value) for path, write in kept.items() if tree.exists(path)}
    return quota_writes({path: tree.quota_us(path) for path in target}, target)


def _write(tree: CgroupTree, writes: tuple[KnobWrite, ...], failed: list[str]) -> None:
    for write in writes:
        try:
            tree.write(write)
        except FileNotFoundError:
            # The group was deleted, or the file itself, which then counts as not put back.
            continue
        except (CgroupError, OSError) as error:
            failed.append(str(error))
