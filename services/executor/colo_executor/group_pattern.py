"""Paths of control groups with patterns of the shell: which are legal, and which groups they stand for."""

import re
from fnmatch import fnmatchcase
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["check_group_pattern", "covers", "is_match", "is_pattern"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,230}")
_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9_.@*?-]|\[!?[A-Za-z0-9_.@-]+\]){1,231}")
_WILD: Final = re.compile(r"[*?\[]")


def check_group_pattern(path: str, field: str) -> list[str]:
    """The names of the path. Raises InvalidInput for one that could lead elsewhere, or that is neither a name nor a pattern."""
    parts = path.split("/")
    if "\0" in path:
        raise InvalidInput(field, "must have no NUL in it", path)
    if path.startswith("/"):
        raise InvalidInput(field, "must be a path below the cgroup root, and not begin with a slash", path)
    if any(part in (".", "..") for part in parts):
        raise InvalidInput(field, "must not have the names . and .. in it", path)
    if is_pattern(parts[0]):
        raise InvalidInput(field, "must begin with the name of a top group; patterns may follow behind it", path)
    if "**" in path:
        raise InvalidInput(field, "must not have ** in it: a pattern is within one name between slashes", path)
    if not all((_PATTERN if is_pattern(part) else _NAME).fullmatch(part) for part in parts):
        rule = "must be names of letters, digits and _ . @ - between slashes, or patterns of these with * ? and [...]"
        raise InvalidInput(field, rule, path)
    return parts


def is_pattern(path: str) -> bool:
    """Whether the path, or a name of it, stands for any number of groups."""
    return _WILD.search(path) is not None


def is_match(name: str, part: str) -> bool:
    """Whether this part of a pattern stands for a group of that name; names that no policy could write out it leaves out."""
    return _NAME.fullmatch(name) is not None and fnmatchcase(name, part)


def covers(path: str, above: str) -> bool:
    """Whether the path, which may have patterns, can stand for a group within the group `above`, which has none."""
    parts, names = path.split("/"), above.split("/")
    return len(parts) > len(names) and all(map(fnmatchcase, names, parts))
