"""Plots as SVG, drawn on the server: curves of a metric, and how far confidences can be believed.

No script and no library draws them, so they are there under the strictest Content-Security-Policy and on paper, and
what they say stands beside them as text. Colours and dashes are classes (static/training/plots.css), never attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 22, 10, 30
# Of one line; the plot is some 300 units wide, and each piece of it shows four points at most.
MOST_PIECES = 100
MOST_DOTS = 40  # a line of so few points shows each
N_STYLES = 6  # of lines: colour, dash and the form of the dots

Words = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """A named line through the points (xs[i], ys[i]); a y that is not finite breaks it."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on units from `start` to `end`, with ticks at round values."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[float] = field(default_factory=list)

    def at(self, value: float) -> float:
        # By halves: the difference of two very large numbers is no number.
        return self.start + (self.end - self.start) * ((value / 2 - self.low / 2) / (self.high / 2 - self.low / 2))


def scale(values: Iterable[float], start: float, end: float, n_ticks: int = 4) -> Scale:
    """A scale with room for all the values; of a single value one that has it in the middle."""
    known = [value for value in values if isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if not low < high or (high / 2 - low / 2) <= abs(high) * 1e-12:
        room = abs(low) / 2 or 1.0
        low, high = max(low - room, -1.7e308), min(low + room, 1.7e308)
    return Scale(low, high, start, end, list(_ticks(low, high, n_ticks)))


def _ticks(low: float, high: float, n: int) -> Iterator[float]:
    """Round values (1, 2 or 5 times a power of ten) within the bounds, about n of them."""
    rough = (high / n) - (low / n)
    power = 10.0 ** floor(log10(rough)) if rough > 0 and isfinite(rough) else 0.0
    if not power:
        yield from (low, high)
        return
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    if last - first > 3 * n:  # values so near to one another that a float cannot tell the steps apart
        yield from (low, high)
        return
    for number in range(first, last + 1):
        yield number * step


def thinned(line: Line) -> Line:
    """The line, or of many points so many pieces' first, lowest, highest and last; a piece of gaps stays a gap."""
    n = len(line.ys)
    if n <= 4 * MOST_PIECES:
        return line
    kept: list[int] = []
    for number in range(MOST_PIECES):
        first, end = number * n // MOST_PIECES, (number + 1) * n // MOST_PIECES
        known = [(y, first + at) for at, y in enumerate(line.ys[first:end]) if isfinite(y)]
        kept += sorted({known[0][1], min(known)[1], max(known)[1], known[-1][1]}) if known else [first]
    return Line(line.name, [line.xs[at] for at in kept], [line.ys[at] for at in kept])


def curves(plot_id: str, title: str, description: str, lines: Sequence[Line], words: Words) -> str:
    """One chart with a line for each of `lines`; `words` write a number of the axes. Well-formed XML."""
    drawn = [thinned(line) for line in lines]
    across = scale([x for line in drawn for x in line.xs], LEFT, WIDTH - RIGHT)
    up = scale([y for line in drawn for y in line.ys], HEIGHT - BOTTOM, TOP)
    body = [*_axes(across, up, words)]
    for number, line in enumerate(drawn):
        body += _line(line, number % N_STYLES, across, up)
    return _svg(plot_id, title, description, body)


def _line(line: Line, style: int, across: Scale, up: Scale) -> Iterator[str]:
    for stretch in _stretches(line):
        places = [(across.at(x), up.at(y)) for x, y in stretch]
        if len(places) > 1:
            written = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline class="line s{style}" points="{written}"/>'
        if len(places) == 1 or len(line.ys) <= MOST_DOTS:
            yield from (_dot(x, y, style) for x, y in places)


def _stretches(line: Line) -> Iterator[list[tuple[float, float]]]:
    stretch: list[tuple[float, float]] = []
    for x, y in zip(line.xs, line.ys, strict=True):
        if isfinite(x) and isfinite(y):
            stretch.append((x, y))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _dot(x: float, y: float, style: int) -> str:
    """A circle, a square or a diamond: told apart without colours."""
    kind = f'class="dot s{style}"'
    if style % 3 == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'
    if style % 3 == 1:
        return f'<rect {kind} x="{x - 2.4:.1f}" y="{y - 2.4:.1f}" width="4.8" height="4.8"/>'
    return f'<path {kind} d="M{x:.1f} {y - 3.4:.1f}l3.4 3.4l-3.4 3.4l-3.4 -3.4z"/>'


def sample(style: int) -> str:
    """A short piece of a line of that style, for a legend; what it means stands beside it."""
    style %= N_STYLES
    line = f'<polyline class="line s{style}" points="1,6 31,6"/>'
    return f'<svg class="plot sample" viewBox="0 0 32 12" aria-hidden="true">{line}{_dot(16, 6, style)}</svg>'


def _axes(across: Scale, up: Scale, words: Words) -> Iterator[str]:
    for tick in up.ticks:
        y = up.at(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick up" x="{LEFT - 5}" y="{y + 4:.1f}">{escape(words(tick))}</text>'
    for tick in across.ticks:
        x = across.at(tick)
        yield f'<line class="notch" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        yield f'<text class="tick across" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}">{escape(words(tick))}</text>'
    yield f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'


@dataclass(frozen=True)
class Bin:
    """Predictions of about one confidence: how sure they are on average, and how many are right."""

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


def reliability(plot_id: str, title: str, description: str, bins: Sequence[Bin], words: Words) -> str:
    """A bar for each bin as high as the share that is right, over the diagonal on which a calibrated model's stand.

    How far the bar is from its bin's own confidence is marked by a line to a dot there.
    """
    across = Scale(0.0, 1.0, LEFT, WIDTH - RIGHT, [0.0, 0.25, 0.5, 0.75, 1.0])
    up = Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP, [0.0, 0.25, 0.5, 0.75, 1.0])
    body = [*_axes(across, up, words)]
    for entry in bins:
        left, right, top = across.at(entry.low), across.at(entry.high), up.at(entry.accuracy)
        body.append(
            f'<rect class="bar" x="{left + 1:.1f}" y="{top:.1f}" width="{max(1.0, right - left - 2):.1f}" '
            f'height="{max(0.0, HEIGHT - BOTTOM - top):.1f}"/>'
        )
    ends = f'x1="{across.at(0):.1f}" y1="{up.at(0):.1f}" x2="{across.at(1):.1f}" y2="{up.at(1):.1f}"'
    body.append(f'<line class="diagonal" {ends}/>')
    for entry in bins:
        x, sure = across.at(entry.confidence), up.at(entry.confidence)
        body.append(f'<line class="gap" x1="{x:.1f}" x2="{x:.1f}" y1="{up.at(entry.accuracy):.1f}" y2="{sure:.1f}"/>')
        body.append(_dot(x, sure, 2))
    return _svg(plot_id, title, description, body)


def _svg(plot_id: str, title: str, description: str, body: Iterable[str]) -> str:
    named = f'aria-labelledby="{plot_id}-title {plot_id}-desc"'
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {named}>'
        f'<title id="{plot_id}-title">{_text(title)}</title><desc id="{plot_id}-desc">{_text(description)}</desc>'
        f"{''.join(body)}</svg>"
    )


def _text(text: str) -> str:
    """Escaped, and without what XML cannot hold."""
    return escape("".join(letter for letter in text if letter.isprintable()))
