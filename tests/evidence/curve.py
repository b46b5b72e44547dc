"""Curves as an SVG drawing: points over a logarithmic axis, the first one with its values beside it, the others by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

__all__ = ["curve"]

_WIDTH: Final = 640
_HEIGHT: Final = 360
_EDGE: Final = 60
_COLOURS: Final = ("#06c", "#c30", "#090", "#909", "#c80", "#066", "#630", "#333", "#f0a", "#7a0")


def curve(lines: Mapping[str, Sequence[tuple[int, float]]], across: str, up: str) -> str:
    """The drawing of the lines by name, each of points with x above 0, ascending, and y 0 to 100; the first of at least two.

    The axes are named `across` and `up`.
    """
    first = next(iter(lines.values()))
    least, most = math.log(first[0][0]), math.log(first[-1][0])
    high = max(y for points in lines.values() for _, y in points) * 1.1 or 1.0
    floor = _HEIGHT - _EDGE

    def dots_of(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
        return [
            (
                _EDGE + (math.log(x) - least) / (most - least) * (_WIDTH - 2 * _EDGE),
                floor - y / high * (_HEIGHT - 2 * _EDGE),
            )
            for x, y in points
        ]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_EDGE} {_EDGE}V{floor}H{_WIDTH - _EDGE}" fill="none" stroke="#888"/>',
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour, dots = _COLOURS[number % len(_COLOURS)], dots_of(points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        width = 1 if number else 2
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in dots]
        if len(lines) > 1:
            top = _EDGE / 2 + 14 * number
            parts.append(
                f'<text x="{_WIDTH - _EDGE}" y="{top}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
            )
    for (x, y), (value, height) in zip(dots_of(first), first, strict=True):
        parts.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{height:.1f}</text>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{value}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>')
    parts.append(f'<text x="16" y="{_EDGE - 24}">{escape(up)}</text>')
    return "\n".join([*parts, "</svg>", ""])
