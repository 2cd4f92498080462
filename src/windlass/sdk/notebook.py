"""HTML of a future in a notebook: name, state and reason of the job."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.sdk.future import Future

_COLORS = {"Running": "#1a7f37", "Completed": "#1a7f37", "Failed": "#cf222e", "Cancelled": "#6e7781"}
_WAITING = "#9a6700"
_STYLE = "border:1px solid #d0d7de;border-left:4px solid {color};padding:6px 12px;font-family:sans-serif;max-width:48em"


def html_of(future: Future[Any]) -> str:
    """Return the present state as HTML."""
    state = future.state
    rows = [("job", f"{future.namespace}/{future.name}" if future.name else "not submitted yet")]
    job = future.job()
    if job is not None:
        rows += [("queue", job.queue), ("GPUs", job.gpus), ("ranks", str(job.members))]
        rows += [("nodes", ", ".join(job.nodes))] if job.nodes else []
    if future.done() and not future.cancelled() and (error := future.exception()) is not None:
        rows.append(("error", f"{type(error).__name__}: {error}"))
    elif reason := future.reason:
        rows.append(("reason", reason))
    color = _COLORS.get(state, _WAITING)
    lines = "".join(f"<tr><td><b>{escape(key)}</b></td><td>{escape(text)}</td></tr>" for key, text in rows)
    return (
        f'<div style="{_STYLE.format(color=color)}"><b style="color:{color}">{escape(state)}</b>'
        f"<table>{lines}</table></div>"
    )
