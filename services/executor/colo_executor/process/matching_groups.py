"""The control groups that a path with patterns of the shell stands for. No link is followed."""

from typing import Final

from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.group_pattern import is_match, is_pattern

__all__ = ["matching_groups"]

_ON_THE_WAY_MOST: Final = 65_536


def matching_groups(tree: CgroupTree, path: str, most: int) -> tuple[str, ...]:
    """The groups that the path within the tree stands for now, in order. Raises CgroupError for more than `most`."""
    found = [""]
    for part in path.split("/") if path else []:
        if is_pattern(part):
            found = [_join(group, name) for group in found for name in tree.children(group) if is_match(name, part)]
        else:
            found = [_join(group, part) for group in found]
        if len(found) > _ON_THE_WAY_MOST:
            raise CgroupError(f"leads through more than {_ON_THE_WAY_MOST} groups; name them more narrowly")
    there = tuple(group for group in sorted(found) if tree.exists(group))
    if len(there) > most:
        raise CgroupError(
            f"matches {len(there)} groups, and {most} may be; name them more narrowly. Nothing is changed there"
        )
    return there


def _join(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name
