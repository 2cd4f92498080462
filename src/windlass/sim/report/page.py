"""The report: one HTML page that needs nothing else, neither a network nor a script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from windlass.sim.report.charts import INK, PAPER, Picture

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --over: #f6f8fa;
  --page: #ffffff; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --over: #151b23; --page: #0d1117; } }
@media print { :root { --ink: #000000; --soft: #333333; --line: #999999; --page: #ffffff; }
  h2 { break-after: avoid; } figure { break-inside: avoid; } }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .2rem; }
p { margin: .2rem 0 .8rem; color: var(--soft); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0;
  display: block; overflow-x: auto; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: pre; position: sticky; left: 0;
  background: var(--page); }
tbody tr:hover, tbody tr:hover td:first-child { background: var(--over); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem 0 1rem; }
dt { font-weight: 600; } dd { margin: 0; color: var(--soft); } summary { cursor: pointer; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
figure { margin: 0; overflow-x: auto; } figure svg { width: 100%; min-width: 40rem; height: auto; }
figure svg text { fill: currentColor; }
"""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a page.

    ``about``: lines on the simulated system. ``header``, ``rows``: metrics, a title and one value per policy.
    ``policies``, ``figures``: name → description.
    """

    title: str
    about: Sequence[str]
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    policies: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)


def page(text: Text, pictures: Sequence[Picture]) -> str:
    """The whole page. Raises :class:`~windlass.sim.report.charts.PlotsMissing`."""
    parts = [
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{escape(text.title)}</title>\n<style>{_STYLE}</style>",
        f"<h1>{escape(text.title)}</h1>",
        *[f"<p>{escape(line)}</p>" for line in text.about],
        _table(text.header, text.rows),
        _told("The policies", text.policies),
        _told("What the figures are", text.figures),
        *[_section(picture) for picture in pictures],
        "</html>\n",
    ]
    return "\n".join(parts)


def _told(title: str, words: Mapping[str, str]) -> str:
    """Return a folded section with explanations."""
    if not words:
        return ""
    lines = [f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in words.items()]
    return f"<details><summary>{escape(title)}</summary><dl>{''.join(lines)}</dl></details>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table><thead>", _row(header, "th"), "</thead><tbody>"]
    lines += [_row(row, "td") for row in rows]
    return "\n".join([*lines, "</tbody></table>"])


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _section(picture: Picture) -> str:
    return (
        f"<section><h2>{escape(picture.title)}</h2>\n<p>{escape(picture.words)}</p>\n"
        f"<figure role=img aria-label='{escape(picture.title)}'>{_inline(picture)}</figure></section>"
    )


def _inline(picture: Picture) -> str:
    """As SVG without what stands before its root, in the colours of the page."""
    drawn = picture.render("svg").decode()
    drawn = drawn[drawn.index("<svg") :]
    for colour, instead in ((INK, "currentColor"), (PAPER, "none")):
        drawn = drawn.replace(f": {colour}", f": {instead}")
    # Names inside a picture are made different from those of the others on the page.
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{picture.name}-", drawn)
