"""The report: one HTML page that needs nothing else, neither a network nor a script."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape

from windlass.sim.report.charts import Picture

_STYLE = """
:root { color-scheme: light; font: 15px/1.5 system-ui, sans-serif; color: #1f2328; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .2rem; }
p { margin: .2rem 0 .8rem; color: #59636e; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0;
  display: block; overflow-x: auto; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid #d1d9e0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tbody tr:hover { background: #f6f8fa; }
figure { margin: 0; } figure svg, figure img { width: 100%; height: auto; }
@media print { h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""


def page(
    title: str, about: Sequence[str], header: Sequence[str], rows: Sequence[Sequence[str]], pictures: Sequence[Picture]
) -> str:  # fmt: skip
    """The whole page. ``about``: lines on what was simulated. ``rows``: the figures, a title and one value per
    policy. Raises :class:`~windlass.sim.report.charts.PlotsMissing`."""
    parts = [
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        *[f"<p>{escape(line)}</p>" for line in about],
        _table(header, rows),
        *[_section(picture) for picture in pictures],
        "</html>\n",
    ]
    return "\n".join(parts)


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
    """Charts of cells are many and small: as PNG; all else as SVG without what stands before its root."""
    if picture.name.startswith("nodes-"):
        data = base64.b64encode(picture.render("png")).decode()
        return f"<img alt='{escape(picture.title)}' src='data:image/png;base64,{data}'>"
    drawn = picture.render("svg").decode()
    drawn = drawn[drawn.index("<svg") :]
    # Names inside a picture are made different from those of the others on the page.
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{picture.name}-", drawn)
