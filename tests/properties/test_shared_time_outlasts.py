"""A new leader continues time-sharing from the objects and the stored counts alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest
from example_counts import FUZZ
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.timesharing import counts_text
from windlass.engine.timesharing.attained_service import TimeAccount
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.records import attained_service
from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.plugins.timeshare.opt_in import TIME_SHARE
from windlass.plugins.timeshare.suspension_cost import CHECKPOINT_EVERY, RESTART_COST
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.whatif.play_forward import Forward, ForwardState, state_of
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import AttainedService, Group, Needs, Queue, Task
from windlass.spi.timeshare import PersistentCounts, RunSegment

NOW = 1_000_000.0
GPU = "nvidia.com/gpu"
TRIES = 12
"""Maximum number of comparisons with another engine in one history; each one loads
everything."""


def engine() -> Engine:
    return make_engine(SchedulerConfig(), base=EngineConfig(reports=False))


def read_back(past: AttainedService, created: float) -> AttainedService | None:
    """Return the attained service as a new leader reads it."""
    notes = {name: text for name, text in attained_service.written(past).items() if text is not None}
    return attained_service.attained_service_of(notes, created)


class Handed:
    """Engine that continues, compared with one started from the objects whenever
    nothing is to be decided.

    ``behind``: the counts are those of that many cycles ago.
    """

    def __init__(self, behind: int) -> None:
        self.engine = engine()
        self.plain_preempt_actions, self.state = self.engine.plain_preempt_actions, self.engine.state
        self.told: list[Delta] = []
        self.marked_pods: set[str] = set()
        """Tasks of which something was decided, and not yet told that it is so."""
        self.pasts: dict[str, AttainedService | None] = {}
        self.compared = 0
        self.suspended = 0
        self._behind = behind
        self._tries = 0
        self._texts: list[str | None] = []

    def apply(self, deltas: Iterable[Delta]) -> None:
        found = list(deltas)
        self.told += found
        for delta in found:
            if isinstance(delta, TaskUpserted):
                self.marked_pods.discard(delta.task.key)
        self.engine.apply(found)

    def cycle(self, now: float) -> Decision:
        decision = self.engine.cycle(now)
        time_sharing = self.engine.state.time_sharing
        for group in dict.fromkeys(e.group for e in decision.evictions if e.action == "timeshare"):
            past = time_sharing.attained_service(group)
            assert past is not None
            self.suspended += 1
            self.pasts[group] = read_back(past, time_sharing.accounts[group].segment.group.created)
            assert self.pasts[group] is not None
        self._texts.append(counts_text.as_text(time_sharing))
        self.marked_pods |= {each.task for each in (*decision.binds, *decision.evictions)}
        if not self.marked_pods and self._tries < TRIES:
            self._tries += 1
            self.compare(now)
        return decision

    def compare(self, now: float) -> None:
        state = state_of(self.told, now)
        for key, group in state.groups.items():
            state.groups[key] = altered(group, past=self.pasts.get(key))
        anew = engine()
        text = self._texts[max(len(self._texts) - 1 - self._behind, 0)]
        if text is not None:
            counts_text.load(anew.state.time_sharing, text, now)
        anew.apply(state.deltas())
        decision = anew.cycle(now)
        if (
            decision.binds or decision.evictions
        ):  # by the seconds that were not written, or what it does not remember
            return
        self.compared += 1
        mine, others = self.engine.state.time_sharing.accounts, anew.state.time_sharing.accounts
        assert mine.keys() == others.keys()
        for key, one in mine.items():
            self.alike(one, others[key], now)
        self.counted_alike(anew)

    def alike(self, one: TimeAccount, other: TimeAccount, now: float) -> None:
        mine, others = as_of(one, now), as_of(other, now)
        assert shape(others) == shape(mine)
        assert others.attained == pytest.approx(mine.attained, abs=2.0)
        assert others.waited == pytest.approx(mine.waited, abs=2.0)
        # Records hold whole seconds, and ranks change at bounds of attained time: the rest of a segment is compared.
        others.attained, others.waited = mine.attained, mine.waited
        judge = LearnedSharing()
        judge.resume(cast(PersistentCounts, self.engine.state.plugins.time_sharing).counts())
        assert judge.rank(others).value == pytest.approx(judge.rank(mine).value, rel=1e-5)
        if mine.started is None and max(one.rests_until, other.rests_until) > now:
            assert other.rests_until == pytest.approx(one.rests_until, abs=1.0)

    def counted_alike(self, anew: Engine) -> None:
        mine = cast(PersistentCounts, self.engine.state.plugins.time_sharing).counts()
        others = cast(PersistentCounts, anew.state.plugins.time_sharing).counts()
        for one, other in zip(mine.every, others.every, strict=True):
            assert all(a >= b for a, b in zip(one, other, strict=True))
        if not self._behind:
            assert others == mine


def shape(segment: RunSegment) -> tuple[object, ...]:
    """Return the values that must be equal; ``resumed`` matters for running groups only."""
    runs = segment.started is not None
    return runs, runs and segment.resumed, segment.suspensions, segment.devices


def as_of(time_account: TimeAccount, now: float) -> RunSegment:
    """The stint, brought up to a moment, as a policy sees it that never saw it before."""
    segment, since = time_account.segment, now if time_account.since is None else time_account.since
    runs = segment.started is not None
    return RunSegment(
        segment.group,
        segment.devices,
        segment.attained + (now - since if runs else 0.0),
        segment.waited + (0.0 if runs else now - since),
        segment.suspensions,
        started=segment.started,
        resumed=segment.resumed,
    )


@st.composite
def crowds(draw: st.DrawFn) -> ForwardState:
    """More work than fits, of which much has come before."""
    found = ForwardState(NOW)
    found.nodes.update({node.name: node for node in make_nodes(parse("2x4"))})
    for name in ("root", "default"):
        found.queues[name] = Queue(name)
    for number in range(draw(st.integers(3, 9))):
        key = f"ns/g{number}"
        pods = draw(st.sampled_from((1, 1, 2)))
        gpus = draw(st.sampled_from((1, 2, 4)))
        notes = {TIME_SHARE: "true", CHECKPOINT_EVERY: draw(st.sampled_from(("0s", "0s", "5m")))}
        notes |= draw(st.sampled_from(({}, {}, {RESTART_COST: "20s"})))
        created = NOW - draw(st.sampled_from((0.0, 3.7, 5000.0)))
        seconds = draw(st.sampled_from((70.3, 700.0, 2500.6, 9000.0, 40_000.0)))
        group = Group(
            key,
            min_member=pods,
            created=created,
            uid=key,
            admitted=True,
            annotations=notes,
            run_estimate=seconds,
        )
        found.groups[key] = group
        for at in range(pods):
            needs = Needs(((GPU, gpus * 1000),))
            task = Task(f"{key}-{at}", f"{key}-{at}", key, needs, created=created)
            found.tasks[task.key] = task
    return found


def went_on(state: ForwardState, behind: int) -> Handed:
    handed = Handed(behind)
    Forward(state, cast(Engine, handed), lambda group, elapsed, limit: group.run_estimate).run()
    return handed


@settings(max_examples=12 if FUZZ else 3, deadline=None)
@given(crowds(), st.sampled_from((0, 0, 1, 4)))
def test_who_begins_anew_ranks_everybody_as_who_went_on(state: ForwardState, behind: int) -> None:
    went_on(state, behind)


def test_that_is_held_for_groups_that_were_suspended() -> None:
    """Check that the property covers suspended groups."""
    state = ForwardState(NOW)
    state.nodes.update({node.name: node for node in make_nodes(parse("1x4"))})
    state.queues.update({name: Queue(name) for name in ("root", "default")})
    for number, seconds in enumerate((9000.4, 9000.0, 9000.0, 800.6)):
        key = f"ns/g{number}"
        notes = {TIME_SHARE: "true", CHECKPOINT_EVERY: "0s"}
        state.groups[key] = Group(
            key, created=NOW - number, uid=key, admitted=True, annotations=notes, run_estimate=seconds
        )
        state.tasks[f"{key}-0"] = Task(f"{key}-0", key, key, Needs(((GPU, 4000),)), created=NOW - number)
    handed = went_on(state, 0)
    assert handed.suspended >= 3
    assert handed.compared >= 8
