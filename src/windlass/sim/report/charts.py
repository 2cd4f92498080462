"""Studies drawn by matplotlib, the optional extra ``plots``.

A picture is drawn from all studies side by side (:data:`TOGETHER`) or from each (:data:`EACH`). Equal studies give
equal bytes: nothing of a picture tells when, or by what version, it was made.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.sim.report.study import FREE, HELD, TAKEN, Distribution, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL = "pip install 'windlass[plots]'"
WIDE = 9.0
"""Inches."""
LANE_INCHES = 0.03
PALETTE = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0",
)  # fmt: skip
EMPTY, PART = "#ffffff", "#d62728"


class PlotsMissing(RuntimeError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("pictures are drawn by matplotlib, which is not installed")


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: ``name`` for files (``utilisation``, ``nodes-kube``), ``title`` and ``words`` for people."""

    name: str
    title: str
    words: str
    draw: Callable[[], Figure]

    def render(self, form: str, dots_per_inch: int = 120) -> bytes:
        """As ``svg`` or ``png``. Raises :class:`PlotsMissing`."""
        matplotlib = _matplotlib()
        out = io.BytesIO()
        nothing = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        with matplotlib.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none", "font.size": 9}):
            self.draw().savefig(out, format=form, dpi=dots_per_inch, metadata=nothing)
        return out.getvalue()


def pictures(studies: Sequence[Study]) -> list[Picture]:
    """All pictures of these studies, in the order of a report."""
    found = [Picture(name, title, words, _together(draw, studies)) for name, title, words, draw in TOGETHER]
    for study in studies:
        found += [
            Picture(f"{name}-{study.policy}", f"{title}: {study.policy}", words, _alone(draw, study))
            for name, title, words, draw in EACH
        ]
    return found


def _together(draw: Callable[[Sequence[Study]], Figure], studies: Sequence[Study]) -> Callable[[], Figure]:
    return lambda: draw(studies)


def _alone(draw: Callable[[Study], Figure], study: Study) -> Callable[[], Figure]:
    return lambda: draw(study)


def _matplotlib() -> Any:
    try:
        import matplotlib  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise PlotsMissing from None
    return matplotlib


def require() -> None:
    """Raises :class:`PlotsMissing` where nothing could be drawn."""
    _matplotlib()


def _figure(height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, list[Axes]]:
    _matplotlib()
    from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]

    figure = Figure(figsize=(WIDE, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", alpha=0.25, linewidth=0.6)
    return figure, list(axes.flat)


def _days(axes: Axes) -> None:
    axes.set_xlabel("days")
    axes.margins(x=0)


def _lines(axes: Axes, studies: Sequence[Study], values: Callable[[Study], Any], label: str) -> None:
    for at, study in enumerate(studies):
        axes.plot(
            study.hours / 24, values(study), color=PALETTE[at % len(PALETTE)], linewidth=1, label=study.policy
        )
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)


def _utilisation(studies: Sequence[Study]) -> Figure:
    figure, (axes,) = _figure(3.0)
    _lines(axes, studies, lambda study: study.used_gpus, "GPUs in use")
    most = max((study.capacity_gpus for study in studies), default=0)
    axes.axhline(most, color="#333333", linewidth=0.8, linestyle=":", label="all")
    axes.legend(ncols=6, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.16))
    _days(axes)
    return figure


def _waiting(studies: Sequence[Study]) -> Figure:
    figure, (jobs, gpus) = _figure(4.4, rows=2, sharex=True)
    _lines(jobs, studies, lambda study: study.waiting_jobs, "jobs that wait")
    _lines(gpus, studies, lambda study: study.waiting_gpus, "GPUs they wait for")
    jobs.legend(ncols=6, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.2))
    jobs.margins(x=0)
    _days(gpus)
    return figure


def _fragmentation(studies: Sequence[Study]) -> Figure:
    figure, (axes,) = _figure(2.6)
    _lines(
        axes,
        studies,
        lambda study: 100 * study.idle_while_waiting_gpus / max(study.capacity_gpus, 1),
        "% of the GPUs",
    )
    axes.legend(ncols=6, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.2))
    _days(axes)
    return figure


def _distributions(studies: Sequence[Study]) -> Figure:
    figure, (queue, completion) = _figure(3.2, columns=2, sharey=True)
    for at, study in enumerate(studies):
        colour = PALETTE[at % len(PALETTE)]
        _curve(queue, study.queue_time, colour, study.policy)
        _curve(completion, study.completion_time, colour, study.policy)
    queue.set_xlabel("queue time, seconds")
    completion.set_xlabel("completion time, seconds")
    queue.set_ylabel("% of the jobs")
    queue.legend(frameon=False, loc="lower right")
    return figure


def _curve(axes: Axes, values: Distribution, colour: str, label: str) -> None:
    axes.plot(
        values.seconds.clip(min=1.0), 100 * values.parts, color=colour, linewidth=1.2, label=label,
        drawstyle="steps-post",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 101)


def _queues(study: Study) -> Figure:
    figure, (axes,) = _figure(2.8)
    axes.stackplot(
        study.hours / 24, study.by_queue, labels=study.queues, colors=PALETTE[: max(len(study.queues), 1)]
    )
    axes.axhline(study.capacity_gpus, color="#333333", linewidth=0.8, linestyle=":")
    axes.set_ylabel("GPUs in use")
    if len(study.queues) > 1:
        axes.legend(ncols=6, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.2))
    _days(axes)
    return figure


def _nodes(study: Study) -> Figure:
    from matplotlib.colors import ListedColormap  # pyright: ignore[reportMissingImports]

    chart = study.chart
    lanes = len(chart.cells)
    figure, (axes,) = _figure(min(1.2 + lanes * LANE_INCHES, 14.0))
    axes.grid(False)
    if lanes:
        colours = [EMPTY, PART, *PALETTE][: TAKEN + len(PALETTE)]
        days = float(study.hours[-1] + study.hours[1] - study.hours[0]) / 24
        axes.imshow(
            chart.cells, cmap=ListedColormap(colours), vmin=FREE, vmax=len(colours) - 1, aspect="auto",
            interpolation="nearest", extent=(0, days, lanes, 0),
        )  # fmt: skip
        some = list(chart.nodes.items())[:: max(1, len(chart.nodes) // 24)]
        axes.set_yticks([lane for _, lane in some], [name for name, _ in some], fontsize=6, va="top")
        if (chart.cells == HELD).any():
            axes.set_title("red: held by gangs in part", fontsize=8, loc="right")
    axes.set_xlabel("days")
    return figure


TOGETHER = (
    ("utilisation", "Utilisation", "GPUs in use; parts of cards count as parts.", _utilisation),
    ("waiting", "Queue", "Jobs that wait, and the GPUs that they wait for.", _waiting),
    (
        "fragmentation", "Fragmentation",
        "GPUs that are idle while at least one job waits: too few, in the wrong places, or kept free.",
        _fragmentation,
    ),
    (
        "distributions", "Distributions",
        "How many of the jobs wait, and take from submission to end, at most so long. Below a second: one second.",
        _distributions,
    ),
)  # fmt: skip
EACH = (
    ("queues", "GPUs by queue", "Who uses the cluster over time.", _queues),
    (
        "nodes", "Who had which card",
        "One line per card, by node; coloured by queue as above. What is shorter than a column takes one.",
        _nodes,
    ),
)  # fmt: skip
