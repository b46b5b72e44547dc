"""Finds the subtree that an earlier executor of the same journal had, where the operator has named another one since."""

from collections.abc import Callable, Iterable

from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupTree
from colo_executor.process.tier import ONLINE_SUFFIX

__all__ = ["check_earlier_subtree"]


def check_earlier_subtree(tree: CgroupTree, created: Iterable[str], open_tree: Callable[[str], CgroupTree]) -> None:
    """Raise InvalidInput where replicas run in another subtree than `tree`, of the groups that the journal says were `created`.

    Nobody would look after them, and each would be said to have ended.
    """
    for top in sorted({tree.top_of(path) for path in created} - {tree.name, ""}):
        if any(open_tree(f"{top}{suffix}").pids("") for suffix in ("", ONLINE_SUFFIX)):
            rule = f"must be {top} as long as replicas of this node run there; drain it, or end them with colo node restore"
            raise InvalidInput("process_subtree", rule, tree.name)
