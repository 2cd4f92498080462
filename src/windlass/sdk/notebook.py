"""HTML of a job in a notebook: name, state and reason."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.sdk.job_view import JobView

_COLORS = {"Running": "#1a7f37", "Completed": "#1a7f37", "Failed": "#cf222e", "Cancelled": "#6e7781"}
_WAITING = "#9a6700"
_STYLE = (
    "border:1px solid #d0d7de;border-left:4px solid {color};padding:6px 12px;"
    "font-family:sans-serif;max-width:48em;background:#fff;color:#1f2328"
)


def html_of(view: JobView) -> str:
    """Return the present state as HTML."""
    from windlass.cli.jobs.reasons import brief

    job = view.job()
    state = view.state_of(job)
    rows = [("job", f"{view.namespace}/{view.name}" if view.name else "not submitted yet")]
    if job is not None:
        rows += [("kind", job.kind), ("queue", job.queue), ("GPUs", job.gpus), ("ranks", str(job.members))]
        rows += [("nodes", ", ".join(job.nodes))] if job.nodes else []
    if problem := view.problem:
        rows.append(("error", problem))
    elif job is not None and (reason := brief(job)) not in ("", ", ".join(job.nodes)):
        rows.append(("reason", reason))
    color = _COLORS.get(state, _WAITING)
    lines = "".join(
        f'<tr><td style="text-align:left"><b>{escape(key)}</b></td>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for key, text in rows
    )
    return (
        f'<div style="{_STYLE.format(color=color)}"><b style="color:{color}">{escape(state)}</b>'
        f"<table>{lines}</table></div>"
    )
