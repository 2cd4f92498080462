"""Pictures of a workflow's graph: for a terminal, and as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

from windlass.cli.workflows.layout import GraphNode
from windlass.workflow import words

SYMBOLS = {
    words.SUCCEEDED: "✔",
    words.FAILED: "✖",
    words.ERROR: "⚠",
    words.RUNNING: "●",
    words.PENDING: "◷",
    words.SKIPPED: "○",
    words.OMITTED: "○",
}
COLOURS = {
    words.SUCCEEDED: "green",
    words.FAILED: "red",
    words.ERROR: "red",
    words.RUNNING: "cyan",
    words.PENDING: "yellow",
    words.SKIPPED: "dim",
    words.OMITTED: "dim",
}
_FILLS = {
    words.SUCCEEDED: "#1a7f37",
    words.FAILED: "#cf222e",
    words.ERROR: "#cf222e",
    words.RUNNING: "#0969da",
    words.PENDING: "#9a6700",
    words.SKIPPED: "#8c959f",
    words.OMITTED: "#8c959f",
}
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    _UP | _DOWN: "│", _LEFT | _RIGHT: "─", _UP: "│", _DOWN: "│", _LEFT: "─", _RIGHT: "─",
    _UP | _RIGHT: "└", _UP | _LEFT: "┘", _DOWN | _RIGHT: "┌", _DOWN | _LEFT: "┐",
    _UP | _LEFT | _RIGHT: "┴", _DOWN | _LEFT | _RIGHT: "┬", _UP | _DOWN | _RIGHT: "├",
    _UP | _DOWN | _LEFT: "┤", _UP | _DOWN | _LEFT | _RIGHT: "┼",
}  # fmt: skip
_GAP = 3
"""Columns between two boxes of a layer."""


def draw(
    boxes: Mapping[str, GraphNode], layers: list[list[str]], paint: Callable[[str, str], str]
) -> list[str]:
    """Return the lines of a picture for a terminal."""
    rows, edges = _with_passages(boxes, layers)
    texts = {key: f"{SYMBOLS.get(box.phase, '?')} {box.text}" for key, box in boxes.items()}
    widths = [sum(len(texts.get(key, "│")) for key in row) + _GAP * (len(row) - 1) for row in rows]
    total = max(widths, default=0)
    centres: dict[tuple[int, str], int] = {}
    lines: list[str] = []
    for number, row in enumerate(rows):
        at = (total - widths[number]) // 2
        parts: list[str] = [" " * at]
        for key in row:
            text = texts.get(key, "│")
            centres[number, key] = at + len(text) // 2
            parts.append(paint(text, COLOURS.get(boxes[key].phase, "")) if key in boxes else text)
            parts.append(" " * _GAP)
            at += len(text) + _GAP
        if number:
            lines += _links(number, edges[number - 1], centres, total)
        lines.append("".join(parts).rstrip())
    return lines


def _with_passages(
    boxes: Mapping[str, GraphNode], layers: list[list[str]]
) -> tuple[list[list[str]], list[list[tuple[str, str]]]]:
    """Return the layers with a passage for each line that crosses one, and the lines between layers."""
    level = {key: number for number, row in enumerate(layers) for key in row}
    rows = [list(row) for row in layers]
    edges: list[list[tuple[str, str]]] = [[] for _ in layers]
    for box in boxes.values():
        for target in box.after:
            source = box.key
            for number in range(level[box.key], level[target]):
                below = target if number + 1 == level[target] else f"{box.key}>{target}@{number}"
                if below != target:
                    rows[number + 1].append(below)
                edges[number].append((source, below))
                source = below
    return rows, edges


def _links(
    number: int, edges: list[tuple[str, str]], centres: Mapping[tuple[int, str], int], width: int
) -> list[str]:
    """Return the lines between two layers. Lines of different boxes do not share a row."""
    sources = list(dict.fromkeys(source for source, _ in edges))
    bent = [
        s for s in sources if any(centres[number - 1, s] != centres[number, t] for o, t in edges if o == s)
    ]
    height = len(bent) + 1
    grid = [[0] * (width + 1) for _ in range(height)]

    def join(row: int, column: int, way: int) -> None:
        grid[row][column] |= way

    for source, target in edges:
        start, end = centres[number - 1, source], centres[number, target]
        turn = bent.index(source) if source in bent else 0
        for row in range(height):
            if row < turn or start == end:
                join(row, start, _UP | _DOWN)
            elif row > turn:
                join(row, end, _UP | _DOWN)
        if start != end:
            join(turn, start, _UP | (_RIGHT if end > start else _LEFT))
            join(turn, end, _DOWN | (_LEFT if end > start else _RIGHT))
            for column in range(min(start, end) + 1, max(start, end)):
                join(turn, column, _LEFT | _RIGHT)
    return ["".join(_LINES.get(cell, " ") for cell in row).rstrip() for row in grid]


def svg(boxes: Mapping[str, GraphNode], layers: list[list[str]], title: str) -> str:
    """Return the picture as an SVG document."""
    height, step, gap = 34, 84, 24
    widths = {key: 9 * len(box.text) + 44 for key, box in boxes.items()}
    total = max((sum(widths[key] for key in row) + gap * (len(row) - 1) for row in layers), default=0) + 40
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(layers):
        x = (total - sum(widths[key] for key in row) - gap * (len(row) - 1)) / 2
        for key in row:
            place[key] = (x, 50 + number * step)
            x += widths[key] + gap
    parts = []
    for box in boxes.values():
        for target in box.after:
            x1, y1 = place[box.key][0] + widths[box.key] / 2, place[box.key][1] + height
            x2, y2 = place[target][0] + widths[target] / 2, place[target][1]
            middle = (y1 + y2) / 2
            parts.append(
                f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}" '
                'fill="none" stroke="#8c959f" stroke-width="1.5"/>'
            )
    for key, (x, y) in place.items():
        box = boxes[key]
        parts.append(
            f"<g><title>{escape(f'{box.text}: {box.phase}')}</title>"
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{widths[key]}" height="{height}" rx="6" fill="#ffffff" '
            f'stroke="{_FILLS.get(box.phase, "#8c959f")}" stroke-width="2"/>'
            f'<text x="{x + 14:.0f}" y="{y + 22:.0f}" fill="{_FILLS.get(box.phase, "#8c959f")}">'
            f"{SYMBOLS.get(box.phase, '?')}</text>"
            f'<text x="{x + 34:.0f}" y="{y + 22:.0f}" fill="#1f2328">{escape(box.text)}</text></g>'
        )
    bottom = 60 + len(layers) * step
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{bottom}" '
        f'viewBox="0 0 {total} {bottom}" font-family="ui-monospace, monospace" font-size="14">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="20" y="28" font-weight="bold" fill="#1f2328">{escape(title)}</text>{"".join(parts)}</svg>\n'
    )
