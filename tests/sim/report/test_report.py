"""Reports: what is drawn is what happened, at any length; pages need nothing else and are the same each time."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.metrics import measure
from windlass.sim.replay.outcome import ClusterMoment, EndedJob, JobSpan, ReplayOutcome
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import replay
from windlass.sim.report import charts
from windlass.sim.report.page import Text, page
from windlass.sim.report.study import COLUMNS, HELD, MOST_QUEUES, OTHERS, TAKEN, Study, distribution, study

steps = st.lists(
    st.tuples(st.floats(0.1, 1e5), st.floats(0, 64), st.integers(0, 9), st.floats(0, 99)),
    min_size=1,
    max_size=60,
)


def of(outcome: ReplayOutcome) -> Study:
    return study(measure("p", outcome), outcome)


def job(index: int, queue: str = "q", gpus: int = 1, duration: float = 10.0) -> TraceJob:
    return TraceJob(str(index), 0.0, duration, gpus, queue=queue)


@given(steps)
def test_means_over_columns_are_the_mean_over_time(drawn: list[tuple[float, float, int, float]]) -> None:
    moments, at = [], 0.0
    for length, used, jobs, gpus in drawn:
        moments.append(ClusterMoment(at, used, jobs, gpus))
        at += length
    moments.append(ClusterMoment(at, 0.0, 0, 0.0))
    found = of(ReplayOutcome([], [], moments, capacity_gpus=64))
    pairs = list(pairwise(moments))
    whole = moments[-1].time
    assert found.used_gpus.mean() == pytest.approx(
        sum(a.used_gpus * (b.time - a.time) for a, b in pairs) / max(whole, 1.0), rel=1e-6, abs=1e-6
    )
    idle = sum((64 - a.used_gpus) * (b.time - a.time) for a, b in pairs if a.waiting_jobs)
    assert found.idle_while_waiting_gpus.mean() == pytest.approx(idle / max(whole, 1.0), rel=1e-6, abs=1e-6)


def test_cards_of_nodes_that_are_away_are_drawn_as_idle_nowhere() -> None:
    moments = [ClusterMoment(0.0, 8, 1, 8, 24.0), ClusterMoment(100.0, 8, 1, 8, 24.0)]
    assert of(
        ReplayOutcome([], [], moments, capacity_gpus=64)
    ).idle_while_waiting_gpus.max() == pytest.approx(32.0)


@given(st.lists(st.floats(0, 1e7), max_size=900))
def test_distributions_keep_the_ends_and_ascend(values: list[float]) -> None:
    found = distribution(values)
    assert len(found.seconds) <= 400
    if values:
        assert (found.seconds[0], found.seconds[-1]) == (min(values), max(values))
        assert found.parts[-1] == 1.0
        assert (np.diff(found.seconds) >= 0).all()
        at = len(found.seconds) // 2
        below = sum(1 for value in values if value <= found.seconds[at])
        assert found.parts[at] <= below / len(values) + 1e-9


def test_cards_show_who_had_them_and_what_was_held_in_vain() -> None:
    jobs = [
        EndedJob(job(0, "a", 2), 0.0, 50.0),
        EndedJob(job(1, "b", 1), 50.0, 100.0),
        EndedJob(job(2, "b", 4)),
    ]
    spans = [
        JobSpan(0, 0.0, 50.0, 2, ("n1",)),
        JobSpan(1, 50.0, 100.0, 1, ("n1",)),
        JobSpan(2, 0.0, 100.0, 2, ("n2", "n3"), held=True),
    ]
    found = of(
        ReplayOutcome(
            jobs, spans, [ClusterMoment(0.0, 2, 1, 4), ClusterMoment(100.0, 0, 0, 0)], capacity_gpus=4
        )
    )
    cells, nodes = found.chart.cells, found.chart.nodes
    a, b = (TAKEN + found.queues.index(name) for name in "ab")
    lanes = cells[nodes["n1"] : nodes["n1"] + 2]
    half = cells.shape[1] // 2
    assert (lanes[:, :half] == a).all()
    assert sorted({tuple(sorted(set(row.tolist()))) for row in lanes[:, half:]}) == [(0,), (b,)]
    assert (cells[[nodes["n2"], nodes["n3"]]] == HELD).all()
    assert found.by_queue.sum(axis=0)[0] == 2, "what is held in vain is not in use"


def test_pods_of_several_sizes_have_their_own_cards_on_each_node() -> None:
    """Twelve cards are a pod of eight and one of four, beside which another four have room: no node has more than it
    has."""
    jobs = [TraceJob("wide", 0.0, 100.0, 12, queue="a"), TraceJob("small", 0.0, 100.0, 4, queue="b")]
    outcome = replay(jobs, make_nodes(parse("2x8")), POLICIES["fifo"])
    assert outcome.spans[0].by_node() == {"node-0000": 8, "node-0001": 4}
    found = of(outcome)
    assert (found.chart.nodes, len(found.chart.cells)) == ({"node-0000": 0, "node-0001": 8}, 16)
    a, b = (TAKEN + found.queues.index(name) for name in "ab")
    assert found.chart.cells[:, 0].tolist() == [a] * 12 + [b] * 4


def test_many_queues_are_drawn_as_the_largest_and_the_others() -> None:
    jobs = [EndedJob(job(i, f"q{i:02}", duration=100.0 - i), 0.0, 10.0) for i in range(MOST_QUEUES + 5)]
    spans = [JobSpan(i, 0.0, 10.0, 1, ("n",)) for i in range(len(jobs))]
    found = of(ReplayOutcome(jobs, spans, [ClusterMoment(0.0, len(jobs), 0, 0)], capacity_gpus=20))
    assert found.queues == (*[f"q{i:02}" for i in range(MOST_QUEUES)], OTHERS)
    assert found.by_queue[-1][0] == pytest.approx(5)


def test_a_page_needs_nothing_else_and_is_the_same_each_time() -> None:
    jobs = [EndedJob(job(0, "<b>&"), 0.0, 10.0)]
    outcome = ReplayOutcome(
        jobs, [JobSpan(0, 0.0, 10.0, 1, ("n",))], [ClusterMoment(0.0, 1, 0, 0)], capacity_gpus=2
    )

    def made() -> str:
        return page(
            Text("T<", ["about & so"], ["", "p"], [["x", "1"]], {"p": "a < b"}, {"x": "how many"}),
            charts.pictures([of(outcome)]),
        )

    text = made()
    assert made() == text
    assert "<script" not in text
    outside = [found for found in re.findall(r'(?:src|href)=["\']?([^"\'> ]+)', text) if found[0] != "#"]
    assert all(found.startswith("data:") for found in outside)
    assert "T&lt;" in text
    assert "about &amp; so" in text
    assert "<dt>p</dt><dd>a &lt; b</dd>" in text
    assert "<dt>x</dt><dd>how many</dd>" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_a_page_is_in_the_colours_of_its_reader() -> None:
    jobs = [EndedJob(job(0, "a"), 0.0, 10.0), EndedJob(job(1, "b"), 0.0, 10.0)]
    outcome = ReplayOutcome(
        jobs, [JobSpan(0, 0.0, 10.0, 1, ("n",))], [ClusterMoment(0.0, 1, 0, 0)], capacity_gpus=2
    )
    text = page(Text("t", [], ["", "p"], [["x", "1"]]), charts.pictures([of(outcome)]))
    assert "prefers-color-scheme: dark" in text
    drawn = text[text.index("<svg") :]
    assert "#ffffff" not in drawn
    assert "#000000" not in drawn
    assert "currentColor" in drawn


def test_names_of_policies_are_plain_in_files_and_inside_the_page() -> None:
    jobs = [EndedJob(job(0, "a"), 0.0, 10.0), EndedJob(job(1, "b"), 0.0, 10.0)]
    outcome = ReplayOutcome(
        jobs, [JobSpan(0, 0.0, 10.0, 1, ("n",))], [ClusterMoment(0.0, 1, 0, 0)], capacity_gpus=2
    )
    drawn = study(measure("easy (learned)", outcome), outcome)
    names = [picture.name for picture in charts.pictures([drawn])]
    assert names[-2:] == ["queues-easy-learned", "nodes-easy-learned"]


def test_of_one_queue_the_cards_are_coloured_by_job() -> None:
    jobs = [EndedJob(job(n, "a"), 10.0 * n, 10.0 * n + 10) for n in range(2)]
    spans = [JobSpan(n, 10.0 * n, 10.0 * n + 10, 1, ("n",)) for n in range(2)]
    found = of(
        ReplayOutcome(
            jobs, spans, [ClusterMoment(0.0, 1, 0, 0), ClusterMoment(20.0, 0, 0, 0)], capacity_gpus=1
        )
    )
    assert set(found.chart.cells[0].tolist()) == {TAKEN, TAKEN + 1}
    names = [picture.name for picture in charts.pictures([found])]
    assert "nodes-p" in names
    assert "queues-p" not in names, "it would be the first picture again"


def named(policies: list[str]) -> list[Study]:
    jobs = [EndedJob(job(0, "a"), 0.0, 10.0), EndedJob(job(1, "b"), 0.0, 10.0)]
    outcome = ReplayOutcome(
        jobs, [JobSpan(0, 0.0, 10.0, 1, ("n",))], [ClusterMoment(0.0, 1, 0, 0)], capacity_gpus=2
    )
    return [study(measure(name, outcome), outcome) for name in policies]


def test_of_many_policies_no_two_look_alike_and_the_legend_covers_nothing() -> None:
    """The legend grows the picture: the axes keep their size."""
    few, many = named(["p"]), named([f"policy-{number:02}" for number in range(30)])

    def drawn(studies: list[Study], name: str) -> Any:
        figure = next(one for one in charts.pictures(studies) if one.name == name).draw()
        figure.draw_without_rendering()
        return figure

    for name in ("utilisation", "waiting", "fragmentation", "distributions"):
        small, large = drawn(few, name), drawn(many, name)
        own = [(line.get_color(), line.get_linestyle()) for line in large.axes[0].lines[:30]]
        assert len(set(own)) == 30
        (legend,) = large.legends
        assert len(legend.get_texts()) >= 30
        bottom = legend.get_window_extent().y0
        assert all(axes.get_window_extent().y1 <= bottom + 1 for axes in large.axes)
        for before, after in zip(small.axes, large.axes, strict=True):
            was, now = before.get_window_extent(), after.get_window_extent()
            assert now.width > 0.9 * was.width
            assert now.height > 0.9 * was.height


def test_what_there_is_of_gpus_is_in_the_picture_and_nobody_waits_in_parts() -> None:
    """One GPU of a hundred in use, and nobody waits."""
    outcome = ReplayOutcome(
        [EndedJob(job(0), 0.0, 10.0)],
        [JobSpan(0, 0.0, 10.0, 1, ("n",))],
        [ClusterMoment(0.0, 1, 0, 0)],
        capacity_gpus=100,
    )
    drawn = {one.name: one.draw() for one in charts.pictures([of(outcome)])}
    assert drawn["utilisation"].axes[0].get_ylim()[1] >= 100
    assert all(axes.get_ylim() == (0.0, 1.0) for axes in drawn["waiting"].axes)


def axes_of(studies: list[Study], name: str, at: int = 0) -> Any:
    return next(one for one in charts.pictures(studies) if one.name == name).draw().axes[at]


def test_time_counts_from_the_first_job_in_units_that_fit() -> None:
    """Failures of nodes may come before it."""
    moments = [
        ClusterMoment(100.0, 0, 0, 0, 8.0),
        ClusterMoment(7200.0, 8, 0, 0),
        ClusterMoment(7300.0, 0, 0, 0),
    ]
    came = [EndedJob(TraceJob("a", 7200.0, 100.0, 8), 7200.0, 7300.0)]
    assert list(of(ReplayOutcome(came, [], moments, capacity_gpus=8)).used_gpus) == pytest.approx(
        [8.0] * COLUMNS
    )
    for seconds, unit, last in (
        (100, "seconds", 100),
        (3600, "minutes", 60),
        (86_400, "hours", 24),
        (864_000, "days", 10),
    ):
        one = of(
            ReplayOutcome(
                [], [], [ClusterMoment(0.0, 8, 1, 8), ClusterMoment(seconds, 0, 0, 0)], capacity_gpus=8
            )
        )
        axes = axes_of([one], "utilisation")
        assert axes.get_xlabel() == unit
        assert axes.get_xlim()[1] == pytest.approx(last, rel=0.01)


def test_the_curve_of_a_single_job_is_a_line() -> None:
    one = of(ReplayOutcome([EndedJob(job(0), 0.0, 10.0)], capacity_gpus=8))
    (curve,) = axes_of([one], "distributions", 1).get_lines()
    assert curve.get_xydata().tolist() == [[10.0, 0.0], [10.0, 100.0]]


@pytest.mark.filterwarnings("error")
def test_names_of_queues_may_have_any_letters() -> None:
    """Those of formulas are no formula, those that no font has warn of nothing, those unknown to XML are replaced."""
    names = ("$\\frac$", "_own", "\u7814", "a\x01b\n<c>")
    jobs = [EndedJob(job(at, name), 0.0, 10.0) for at, name in enumerate(names)]
    outcome = ReplayOutcome(
        jobs, [JobSpan(0, 0.0, 10.0, 1, ("n",))], [ClusterMoment(0.0, 1, 0, 0)], capacity_gpus=2
    )
    drawn = {one.name: one for one in charts.pictures([of(outcome)])}
    words = "".join(ElementTree.fromstring(drawn["queues-p"].render("svg")).itertext())
    assert all(name in words for name in ("$\\frac$", "_own", "\u7814", "a\ufffdb\ufffd<c>"))
    assert drawn["queues-p"].render("png").startswith(b"\x89PNG")


def test_long_names_are_shortened_in_pictures() -> None:
    (picture,) = [one for one in charts.pictures(named(["a" * 40 + "b" * 40])) if one.name == "utilisation"]
    drawn = picture.render("svg").decode()
    assert "a" * 13 + "…" + "b" * 14 in drawn
    assert "a" * 20 not in drawn


def test_nothing_happened_is_drawn_too() -> None:
    for picture in charts.pictures([of(ReplayOutcome([]))]):
        assert picture.render("svg").startswith(b"<?xml")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(charts.PlotsMissing):
        charts.require()
