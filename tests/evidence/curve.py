"""A curve as an SVG drawing: points over a logarithmic axis, with their values beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

__all__ = ["curve"]

_WIDTH: Final = 640
_HEIGHT: Final = 360
_EDGE: Final = 60


def curve(points: Sequence[tuple[int, float]], across: str, up: str) -> str:
    """The drawing of at least two points (x above 0, ascending; y 0 to 100), the axes named `across` and `up`."""
    least, most = math.log(points[0][0]), math.log(points[-1][0])
    high = max(y for _, y in points) * 1.1 or 1.0
    dots = [
        (
            _EDGE + (math.log(x) - least) / (most - least) * (_WIDTH - 2 * _EDGE),
            _HEIGHT - _EDGE - y / high * (_HEIGHT - 2 * _EDGE),
        )
        for x, y in points
    ]
    floor = _HEIGHT - _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_EDGE} {_EDGE}V{floor}H{_WIDTH - _EDGE}" fill="none" stroke="#888"/>',
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in dots)}" fill="none" stroke="#06c" stroke-width="2"/>',
    ]
    for (x, y), (value, height) in zip(dots, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#06c"/>')
        parts.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{height:.1f}</text>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{value}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>')
    parts.append(f'<text x="16" y="{_EDGE - 24}">{escape(up)}</text>')
    return "\n".join([*parts, "</svg>", ""])
