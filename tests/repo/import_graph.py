"""The import graph of the product as a picture: `python -m tests.repo.import_graph` prints docs/imports.md, `--write` writes it.

Boxes are packages (a service, an app, a layer of colo_common, a folder of the scheduler), arrows are imports between them, and the
number on an arrow is how many modules of the one import the other. It is read from the source, so it is true by construction;
`--check` exits with 1 when the file is not what the source says.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.repo.tree import ROOT, dotted, modules, parsed, statements

FILE: Final = ROOT / "docs" / "imports.md"
DEEP: Final = ("colo_scheduler",)
"""Packages whose folders are drawn one by one."""

Graph = Mapping[str, frozenset[str]]


@cache
def product_graph() -> Graph:
    """Return, for each module of apps, libs and services, the modules of the product that it imports."""
    paths = {dotted(path): path for path in modules("apps", "libs", "services")}
    return {name: frozenset(_imports(path, paths) - {name}) for name, path in sorted(paths.items())}


def _imports(path: Path, known: Mapping[str, Path]) -> set[str]:
    found = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            inner = {f"{node.module}.{each.name}" for each in node.names}
            # A name of a package is either a module in it or something that its __init__ defines.
            found |= (inner & known.keys()) or {node.module}
    return found


def longest_chain(graph: Graph, package: str) -> tuple[str, ...]:
    """Return the longest chain of imports inside a package, its modules from the importer down; the first one by name of equals.

    Modules that import one another in a circle count as one, so that a circle does not make the chain endless.
    """
    inner = {name: sorted(each for each in seen if _is_in(each, package)) for name, seen in graph.items()}
    best: dict[str, tuple[str, ...]] = {}

    def chain(name: str, above: frozenset[str]) -> tuple[str, ...]:
        if name not in best:
            below = (chain(each, above | {name}) for each in inner[name] if each not in above)
            best[name] = (name, *max(below, key=len, default=()))
        return best[name]

    return max((chain(name, frozenset()) for name in sorted(inner) if _is_in(name, package)), key=len, default=())


def circles(graph: Graph) -> list[tuple[str, str]]:
    """Return the pairs of modules that import each other, directly or through others; the smaller name stands first."""
    reached = {name: _reached(graph, name) for name in graph}
    return [(one, two) for one in graph for two in sorted(reached[one]) if one < two and one in reached[two]]


def _reached(graph: Graph, name: str) -> set[str]:
    found: set[str] = set()
    open_ = [name]
    while open_:
        for each in graph[open_.pop()]:
            if each not in found:
                found.add(each)
                open_.append(each)
    return found


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _box(name: str, inside: str | None) -> str:
    """Return the box of a module: its service or app, its layer of colo_common, or (`inside` a package) its folder there."""
    parts = name.split(".")
    if inside is not None:
        return parts[1] if len(parts) > 1 else parts[0]
    return ".".join(parts[:2]) if parts[0] == "colo_common" and len(parts) > 1 else parts[0]


def _arrows(graph: Graph, inside: str | None) -> Counter[tuple[str, str]]:
    arrows: Counter[tuple[str, str]] = Counter()
    for name, seen in graph.items():
        if inside is not None and not _is_in(name, inside):
            continue
        targets = {_box(each, inside) for each in seen if inside is None or _is_in(each, inside)}
        for target in targets - {_box(name, inside)}:
            arrows[_box(name, inside), target] += 1
    return arrows


def _drawn(arrows: Mapping[tuple[str, str], int]) -> list[str]:
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {one.replace(".", "_")}["{one}"]' for one in sorted({each for pair in arrows for each in pair})]
    lines += [
        f"    {one.replace('.', '_')} -->|{count}| {two.replace('.', '_')}"
        for (one, two), count in sorted(arrows.items())
    ]
    return [*lines, "```"]


def document() -> str:
    """Return the text of docs/imports.md."""
    graph = product_graph()
    lines = [
        "# Imports",
        "",
        "Made by `python -m tests.repo.import_graph --write` from the source; a test keeps it true.",
        "An arrow says that modules of one box import modules of the other, and how many do.",
        "",
        *_drawn(_arrows(graph, None)),
    ]
    for package in DEEP:
        chain = longest_chain(graph, package)
        lines += [
            "",
            f"## {package}",
            "",
            *_drawn(_arrows(graph, package)),
            "",
            f"The longest chain of imports has {len(chain)} modules: {' -> '.join(_short(chain))}.",
        ]
    return "\n".join(lines) + "\n"


def _short(names: Iterable[str]) -> list[str]:
    return [f"`{name.split('.', 1)[-1]}`" for name in names]


def main(arguments: list[str]) -> int:
    """Print, write or check the document; 0 done, 1 not up to date, 2 wrong call."""
    text = document()
    match arguments:
        case []:
            sys.stdout.write(text)
        case ["--write"]:
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(text)
        case ["--check"]:
            return 0 if FILE.is_file() and FILE.read_text() == text else 1
        case _:
            sys.stderr.write("usage: python -m tests.repo.import_graph [--write|--check]\n")
            return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
