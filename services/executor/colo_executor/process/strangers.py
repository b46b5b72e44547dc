"""Attempts whose groups the kernel has and the journal lacks: a damaged line, a state directory that was lost."""

from collections.abc import Iterator

from colo_common.model.placement import attempt_key
from colo_common.model.qos import QosClass
from colo_executor.cgroup import CgroupTree
from colo_executor.desired import BATCH
from colo_executor.journal_lines import JournalState
from colo_executor.online import is_online
from colo_executor.process.ending import RunningAttempt
from colo_executor.process.found import class_of, placement_in
from colo_executor.process.tier import group_of

__all__ = ["strangers"]


def strangers(journal: JournalState, batch: CgroupTree, online: CgroupTree) -> tuple[list[RunningAttempt], list[str]]:
    """The attempts that only the kernel knows, and a sentence for each group that was not expected.

    A group of batch work that has ended by the journal is removed where it is empty.
    """
    runs, remarks = [], []
    for tree, group, name in _groups(batch, online):
        qos_token = (QosClass.BE, name) if tree is batch else class_of(name)
        placement = None if qos_token is None else placement_in(tree, group, qos_token[1], qos_token[0])
        if qos_token is None or placement is None:
            remarks.append(f"the control group {tree.name}/{group} is no replica of colo and is left alone")
            continue
        key = attempt_key(placement.replica, placement.attempt)
        if key in journal.launched:
            continue
        if key in journal.ended and (is_online(placement) or not tree.remove_now(group)):
            remarks.append(f"{key} has ended by the journal, and its control group {tree.name}/{group} is still there")
            continue
        if key not in journal.ended:
            remarks.append(f"{key} was not in the journal and is adopted by its control group {tree.name}/{group}")
            runs.append(RunningAttempt(placement=placement, token=qos_token[1], tree=tree, group=group, pid=0))
    return runs, remarks


def _groups(batch: CgroupTree, online: CgroupTree) -> Iterator[tuple[CgroupTree, str, str]]:
    for name in batch.children(BATCH):
        yield batch, group_of(name), name
    for name in online.children(""):
        yield online, name, name
