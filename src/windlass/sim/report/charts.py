"""Studies drawn by matplotlib, the optional extra ``plots``.

A picture is drawn from all studies side by side (:data:`TOGETHER`) or from each (:data:`EACH`). Equal studies give
equal bytes: nothing of a picture tells when, or by what version, it was made.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from windlass.sim.report.study import FREE, HELD, TAKEN, Distribution, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 9.0
"""Inches."""
LANE_INCHES = 0.03
PALETTE = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0",
)  # fmt: skip
EMPTY, PART = (0.0, 0.0, 0.0, 0.0), "#d62728"
INK, PAPER = "#000000", "#ffffff"
"""Colours of axes and bounds, and of the background; a page replaces them by its own."""
TICKS = {1: "1s", 60: "1min", 3600: "1h", 86_400: "1d", 604_800: "1w"}
UNITS = ((1 / 12, 1 / 3600, "seconds"), (3.0, 1 / 60, "minutes"), (96.0, 1.0, "hours"), (inf, 24.0, "days"))
"""Up to so many hours an axis of time counts in units of so many hours, of this name."""
LINES = ("-", "--", ":")
"""One for each turn through the colours."""
LEGEND_COLUMNS, LEGEND_ROW, LETTER, MARK = 6, 0.2, 0.075, 0.55
"""The most entries side by side, and inches: of a row, of a letter, and of an entry's mark with its margin."""
LONGEST = 28
"""Letters of a name that are shown."""
_PATH = re.compile(r' d="[^"]*"')
_LONG = re.compile(r"(\.\d\d)\d+")


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
        told = {"svg.hashsalt": self.name, "svg.fonttype": "none", "font.size": 9, "text.parse_math": False}
        with matplotlib.rc_context(told), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from")  # a box stands for it in PNG
            self.draw().savefig(out, format=form, dpi=dots_per_inch, metadata=nothing)
        return out.getvalue() if form != "svg" else _shorter(out.getvalue().decode()).encode()


def _shorter(svg: str) -> str:
    """The same with coordinates to a hundredth of a point."""
    return _PATH.sub(lambda path: _LONG.sub(r"\1", path[0]), svg)


def pictures(studies: Sequence[Study]) -> list[Picture]:
    """All pictures of these studies, in the order of a report."""
    found = [Picture(name, title, words, _together(draw, studies)) for name, title, words, draw in TOGETHER]
    for study in studies:
        several = len(study.queues) > 1
        found += [
            Picture(
                f"{name}-{_plain(study.policy)}",
                f"{title}: {study.policy}",
                words.format(colour="queue as above" if several else "job"),
                _alone(draw, study),
            )
            for name, title, words, draw in EACH
            if several or draw is not _queues
        ]
    return found


def _plain(name: str) -> str:
    """For files and names inside a page: letters, digits and hyphens."""
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def _together(draw: Callable[[Sequence[Study]], Figure], studies: Sequence[Study]) -> Callable[[], Figure]:
    return lambda: draw(studies)


def _alone(draw: Callable[[Study], Figure], study: Study) -> Callable[[], Figure]:
    return lambda: draw(study)


def _matplotlib() -> Any:
    try:
        import matplotlib  # type: ignore[import-not-found]
    except ImportError:
        raise PlotsMissing from None
    return matplotlib


def require() -> None:
    """Raises :class:`PlotsMissing` where nothing could be drawn."""
    _matplotlib()


def _figure(height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, list[Axes]]:
    _matplotlib()
    from matplotlib.figure import Figure  # type: ignore[import-not-found]

    figure = Figure(figsize=(WIDE, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", alpha=0.25, linewidth=0.6)
    return figure, list(axes.flat)


def _scale(studies: Sequence[Study]) -> tuple[float, str]:
    """By what hours are divided on an axis of time, and what it counts then."""
    last = max((float(study.hours[-1]) for study in studies), default=0.0)
    return next((unit, name) for most, unit, name in UNITS if last <= most)


def _over_time(axes: Axes, studies: Sequence[Study]) -> None:
    axes.set_xlabel(_scale(studies)[1])
    axes.margins(x=0)


def _look_of(at: int) -> dict[str, Any]:
    """Return the style of a policy's line; thirty policies have different styles."""
    return {"color": PALETTE[at % len(PALETTE)], "linestyle": LINES[at // len(PALETTE) % len(LINES)]}


def _legend(figure: Figure, axes: Axes) -> None:
    """Draw the legend of ``axes`` above the figure, and enlarge the figure by its height."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    names = [_short(label) for label in labels]
    columns = int((WIDE - 0.8) / (MARK + LETTER * max(map(len, names))))
    columns = max(1, min(columns, LEGEND_COLUMNS))
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * -(-len(names) // columns))
    figure.legend(handles, names, loc="outside upper left", ncols=columns, frameon=False)


def _label(name: str) -> str:
    """A name as a legend shows it, which leaves out what begins with an underscore; XML knows no control characters."""
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return f" {plain}" if plain.startswith("_") else plain


def _short(name: str) -> str:
    """Names differ at their ends more than in the middle."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}"


def _lines(axes: Axes, studies: Sequence[Study], values: Callable[[Study], Any], label: str) -> None:
    scale, _ = _scale(studies)
    for at, study in enumerate(studies):
        axes.plot(study.hours / scale, values(study), linewidth=1, label=_label(study.policy), **_look_of(at))
    axes.set_ylabel(label)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))


def _utilisation(studies: Sequence[Study]) -> Figure:
    figure, (axes,) = _figure(3.0)
    _lines(axes, studies, lambda study: study.used_gpus, "GPUs in use")
    most = max((study.capacity_gpus for study in studies), default=0)
    axes.axhline(most, color=INK, linewidth=0.8, linestyle=":", label="all GPUs")
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.05 * most))
    _over_time(axes, studies)
    _legend(figure, axes)
    return figure


def _waiting(studies: Sequence[Study]) -> Figure:
    figure, (jobs, gpus) = _figure(4.4, rows=2, sharex=True)
    _lines(jobs, studies, lambda study: study.waiting_jobs, "jobs that wait")
    _lines(gpus, studies, lambda study: study.waiting_gpus, "GPUs they wait for")
    _legend(figure, jobs)
    jobs.margins(x=0)
    _over_time(gpus, studies)
    return figure


def _fragmentation(studies: Sequence[Study]) -> Figure:
    figure, (axes,) = _figure(2.6)
    _lines(
        axes,
        studies,
        lambda study: 100 * study.idle_while_waiting_gpus / max(study.capacity_gpus, 1),
        "% of the GPUs",
    )
    _over_time(axes, studies)
    _legend(figure, axes)
    return figure


def _distributions(studies: Sequence[Study]) -> Figure:
    figure, (queue, completion) = _figure(3.2, columns=2, sharey=True)
    figure.set_layout_engine("constrained", wspace=0.05)
    for at, study in enumerate(studies):
        _curve(queue, study.queue_time, study.policy, _look_of(at))
        _curve(completion, study.completion_time, study.policy, _look_of(at))
    queue.set_xlabel("queue time")
    completion.set_xlabel("completion time")
    queue.set_ylabel("% of the jobs")
    _legend(figure, queue)
    return figure


def _curve(axes: Axes, values: Distribution, label: str, look: Mapping[str, Any]) -> None:
    """Draw a distribution from 0 at the smallest value, so that a single job is a line and not a point."""
    seconds, parts = [*values.seconds[:1], *values.seconds], [*values.parts[:1] * 0, *values.parts]
    axes.plot(
        [max(1.0, at) for at in seconds], [100 * part for part in parts], linewidth=1.2, label=_label(label),
        drawstyle="steps-post", **look,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(list(TICKS), list(TICKS.values()))
    axes.minorticks_off()
    axes.set_ylim(0, 101)


def _queues(study: Study) -> Figure:
    figure, (axes,) = _figure(2.8)
    axes.stackplot(
        study.hours / _scale([study])[0],
        study.by_queue,
        labels=[_label(name) for name in study.queues],
        colors=PALETTE[: max(len(study.queues), 1)],
    )
    axes.axhline(study.capacity_gpus, color=INK, linewidth=0.8, linestyle=":")
    axes.set_ylabel("GPUs in use")
    _over_time(axes, [study])
    _legend(figure, axes)
    return figure


def _nodes(study: Study) -> Figure:
    from matplotlib.colors import ListedColormap  # type: ignore[import-not-found]

    chart = study.chart
    lanes = len(chart.cells)
    figure, (axes,) = _figure(min(1.2 + lanes * LANE_INCHES, 14.0))
    axes.grid(False)
    if lanes:
        colours = [EMPTY, PART, *PALETTE][: TAKEN + len(PALETTE)]
        whole = float(study.hours[-1] + study.hours[1] - study.hours[0]) / _scale([study])[0]
        axes.imshow(
            chart.cells, cmap=ListedColormap(colours), vmin=FREE, vmax=len(colours) - 1, aspect="auto",
            interpolation="nearest", extent=(0, whole, lanes, 0),
        )  # fmt: skip
        some = list(chart.nodes.items())[:: max(1, len(chart.nodes) // 24)]
        axes.set_yticks([lane for _, lane in some], [_short(name) for name, _ in some], fontsize=6, va="top")
        if (chart.cells == HELD).any():
            axes.set_title("red: held by gangs in part", fontsize=8, loc="right")
    axes.set_xlabel(_scale([study])[1])
    return figure


TOGETHER = (
    (
        "utilisation", "Utilisation",
        "GPUs in use, also by gangs in part, which the allocation leaves out; parts of GPUs count as parts.",
        _utilisation,
    ),
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
    ("queues", "GPUs by queue", "Usage of the cluster by queue over time.", _queues),
    (
        "nodes", "GPUs by job",
        "One line per GPU, by node; coloured by {colour}. What is shorter than a column takes one.",
        _nodes,
    ),
)  # fmt: skip
