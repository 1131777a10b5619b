"""One chart of lines as SVG text: pure, no dependency, the same bytes for the same figures.

Colours are those of the reader's scheme: the style asks for light or dark. Lines differ in their dashes as well as in their
colours, and have their names at the side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 96, 350, 46, 56
TICKS = 6
DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 2")

_STYLE = """
:root { --ink: #1f2328; --soft: #6e7781; --grid: #d0d7de; --ground: #ffffff;
 --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #cf222e; --c5: #57606a; --c6: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #8d96a0; --grid: #30363d; --ground: #0d1117;
 --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #ff7b72; --c5: #8b949e; --c6: #d29922; } }
.ground { fill: var(--ground); } .grid { stroke: var(--grid); } .line { fill: none; stroke-width: 2; }
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .soft { fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; }
"""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """One axis: its label, how a value is written, and whether its scale is logarithmic."""

    label: str
    shown: Callable[[float], str] = lambda value: f"{value:,.4g}"
    logarithmic: bool = False


def chart(title: str, x: Axis, y: Axis, lines: Mapping[str, Points]) -> str:
    """Return the SVG of lines by name. On a logarithmic axis, points that are not above 0 are left out.

    Raises:
        ValueError: no line has a point.
    """
    kept = {name: [point for point in points if _fits(point, x, y)] for name, points in lines.items()}
    everything = [point for points in kept.values() for point in points]
    if not everything:
        raise ValueError("nothing to draw")
    across = _Scale(x, [px for px, _ in everything], LEFT, WIDTH - RIGHT)
    up = _Scale(y, [py for _, py in everything], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        *_grid(across, up),
        *(part for number, (name, points) in enumerate(kept.items()) for part in _line(number, name, points, across, up)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """From values to places: linear from 0, or logarithmic between powers of ten."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self.axis, self._start, self._end = axis, start, end
        if axis.logarithmic:
            low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
            self._low, self._high = float(low), float(max(high, low + 1))
            self.ticks = [10.0**power for power in range(low, int(self._high) + 1)]
        else:
            step = _step(max(max(values), 1e-9))
            self._low, self._high = 0.0, step * math.ceil(max(max(values), 1e-9) / step)
            self.ticks = [step * number for number in range(round(self._high / step) + 1)]

    def __call__(self, value: float) -> float:
        """Return the place of a value in the picture."""
        value = math.log10(value) if self.axis.logarithmic else value
        return round(self._start + (value - self._low) / (self._high - self._low) * (self._end - self._start), 1)


def _step(most: float) -> float:
    """Return a round distance (1, 2 or 5 times a power of ten) that makes at most TICKS ticks up to `most`."""
    power = 10.0 ** math.floor(math.log10(most / TICKS))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * TICKS >= most)


def _fits(point: tuple[float, float], x: Axis, y: Axis) -> bool:
    return all(value > 0 or not axis.logarithmic for value, axis in zip(point, (x, y), strict=True))


def _grid(across: _Scale, up: _Scale) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for value in across.ticks:
        at = across(value)
        parts.append(f'<line class="grid" x1="{at}" y1="{TOP}" x2="{at}" y2="{bottom}"/>')
        parts.append(
            f'<text class="soft" x="{at}" y="{bottom + 18}" text-anchor="middle">{escape(across.axis.shown(value))}</text>'
        )
    for value in up.ticks:
        at = up(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{right}" y2="{at}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{escape(up.axis.shown(value))}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 14}" text-anchor="middle">{escape(across.axis.label)}</text>')
    parts.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(up.axis.label)}</text>')
    return parts


def _line(number: int, name: str, points: Points, across: _Scale, up: _Scale) -> list[str]:
    stroke = f'style="stroke: var(--c{number % 7})" stroke-dasharray="{DASHES[number % len(DASHES)]}"'
    path = " ".join(f"{across(px)},{up(py)}" for px, py in points)
    at, left = TOP + 8 + 20 * number, WIDTH - RIGHT + 12
    return [
        f'<polyline class="line" {stroke} points="{path}"/>',
        *(
            f'<circle cx="{across(px)}" cy="{up(py)}" r="2.5" style="fill: var(--c{number % 7})"/>'
            for px, py in points
            if len(points) <= 12
        ),
        f'<line class="line" {stroke} x1="{left}" y1="{at}" x2="{left + 24}" y2="{at}"/>',
        f'<text x="{left + 30}" y="{at + 4}">{escape(name)}</text>',
    ]
