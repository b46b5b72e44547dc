"""The page of all metrics, made from the calls that register them: `python -m tests.repo.metrics_page --write`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tests.repo.tree import ROOT, mentioning, modules, parsed

__all__ = ["PAGE", "Metric", "metrics", "page"]

PAGE: Final = ROOT / "docs" / "metrics.md"
_KINDS: Final = {
    "counter": "counter",
    "gauge": "gauge",
    "waiting": "gauge",
    "histogram": "histogram",
    "timing": "histogram",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
}
_NAME: Final = re.compile(r"colo_[a-z]*(<service>)?[a-z0-9_]*")
_HEAD: Final = """# Metrics

Made from the code by `just metrics`; do not edit. Every process serves its own at `/metrics` (README of each service: Settings,
`http_port`). `colo_<service>_...` exists once for each service in the process, with its name in the place of `<service>`. Labels
are closed sets and never the name of a job, replica or node. [Alerts](../k8s/colo/files/rules/colo.yaml) and their
[runbooks](runbooks) read these.

| metric | kind | labels | says | defined in |
|---|---|---|---|---|
"""


class Metric(NamedTuple):
    """A metric as it is registered: `name` may hold `<service>`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    says: str
    package: str


@cache
def metrics() -> tuple[Metric, ...]:
    """Every metric of the packages, by name."""
    found = {
        metric.name: metric
        for path in mentioning("metrics", modules("apps", "libs", "services"))
        for metric in _of_module(parsed(path), path.relative_to(ROOT).parts[1])
    }
    return tuple(found[name] for name in sorted(found))


def page() -> str:
    """The text of the page."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.says} | {each.package} |"
        for each in metrics()
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _of_module(tree: ast.Module, package: str) -> Iterator[Metric]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and (kind := _KINDS.get(_called(node))):
            name = _name(node.args[0])
            if name and len(node.args) > 1:
                labels = node.args[2] if len(node.args) > 2 else None
                for keyword in node.keywords:
                    labels = keyword.value if keyword.arg == "labels" else labels
                if kind == "counter" and not name.endswith("_total"):
                    name += "_total"  # as the page of a process shows it
                yield Metric(name, kind, _texts(labels), _text(node.args[1]), package)
        # Tables of gauges: (name, what it says, ...) in a loop, or name: (what it says, values of `what`, ...).
        elif (
            isinstance(node, ast.Tuple) and len(node.elts) > 1 and (name := _name(node.elts[0])) and _text(node.elts[1])
        ):
            yield Metric(name, "counter" if name.endswith("_total") else "gauge", (), _text(node.elts[1]), package)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and (name := _name(key)) and isinstance(value, ast.Tuple):
                    yield Metric(name, "gauge", ("what",), _text(value.elts[0]), package)


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _name(node: ast.expr) -> str:
    text = _text(node)
    if isinstance(node, ast.JoinedStr):
        text = "".join(_text(part) if isinstance(part, ast.Constant) else "<service>" for part in node.values)
        text = text if text.startswith("colo_") else f"colo_{text}"
    return text if _NAME.fullmatch(text) else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _texts(node: ast.expr | None) -> tuple[str, ...]:
    return tuple(_text(each) for each in node.elts) if isinstance(node, ast.Tuple) else ()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
