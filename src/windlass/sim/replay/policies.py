"""The policies of a replay by name: how the engine of each is built, and how jobs are told to it.

There is one engine. What tells policies apart are its plugins, its configuration, and whether a job is a gang
or a number of pods that know nothing of one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import inf

from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.model import scheduler_config
from windlass.model.cluster.engine_factory import make_engine
from windlass.plugins.nodes.availability import NodeAvailable
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.plugins.nodes.spread import Spread
from windlass.plugins.queues.dominant_share import DominantShare
from windlass.plugins.queues.model_grouping import MODEL, ModelGrouping
from windlass.plugins.timeshare.classic import LeastAttained, ShortestRemaining
from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.plugins.timeshare.opt_in import TIME_SHARE
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.plugins.timeshare.suspension_cost import CHECKPOINT_EVERY, RESTART_COST
from windlass.sim.jobs import TraceJob
from windlass.sim.policy_list import OF_RUN, ListedPolicy
from windlass.sim.replay.estimates import LEARNED, ORACLE, USER, ReplayEstimates
from windlass.sim.replay.job_progress import RestartCost
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Node
from windlass.spi.plugins import GroupView
from windlass.spi.timeshare import TimeSharing


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """Input of a policy: an oracle reads ``jobs``.

    ``keys``: the engine's name of each job, in the same order. ``checkpoint_seconds``: see
    :class:`~windlass.sim.replay.job_progress.Effort`; ``queues``: True if jobs use the queues of the trace; ``trial``:
    True if the replay only tests whether any job starts, without observers.
    """

    jobs: Sequence[TraceJob]
    keys: Sequence[str]
    nodes: Sequence[Node]
    time_share: bool = True
    restart: RestartCost = field(default_factory=RestartCost)
    checkpoint_seconds: float | None = 0.0
    queues: bool = False
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Singly:
    """Pods that are bound one by one. Every ``patience_seconds`` after its pods were made a job is looked at: if only
    a part of them has its place then, it is given up, and comes again after ``pause_seconds``. ``pod_gpus``: the
    most of one pod; 0: as many as a node has. ``in_turn``: pods of jobs that came at one moment are created in turn,
    as controllers that work side by side create them, and a job in part is never given up."""

    pod_gpus: int = 0
    patience_seconds: float = 1800.0
    pause_seconds: float = 300.0
    in_turn: bool = False


def _as_it_is(group: Group, job: TraceJob) -> Group:
    return group


def _nothing_learned(key: str, job: TraceJob, seconds: float) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ReplayEngine:
    """Engine, and the form in which it receives jobs.

    ``singly``: ``None`` for gangs. ``dialect``: queue API of queues, groups and pods. ``confirms``: the engine
    receives the start of pods, for policies that use it. ``exact``: the engine receives the end time of a job once it
    runs, and its remaining time when it returns. ``dress``: adds the policy's facts to the group of an arriving job (a
    run time, an annotation). ``ended``: called with an ended job (after its key in ``PolicyContext.keys``) and its run
    time in seconds without stops.
    """

    engine: Engine
    singly: Singly | None = None
    dialect: Dialect = Dialect.WINDLASS
    confirms: bool = False
    exact: bool = False
    dress: Callable[[Group, TraceJob], Group] = _as_it_is
    ended: Callable[[str, TraceJob, float], None] = _nothing_learned


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """Policy of a replay.

    ``timed``: builds the policy for another kind of run times than exact ones
    (:data:`~windlass.sim.replay.estimates.RUN_TIMES`); ``None`` if it uses none. ``shares``: True if jobs that opted
    in share time. ``pod_gpus``: maximum GPUs of one pod; 0: as requested.
    """

    name: str
    summary: str
    make: Callable[[PolicyContext], ReplayEngine]
    timed: Callable[[str, PolicyContext], ReplayEngine] | None = None
    shares: bool = False
    pod_gpus: int = 0

    @property
    def oracle(self) -> bool:
        """True if it knows the exact run times, which no real scheduler does."""
        return self.timed is not None

    def by(self, run_times: str) -> ReplayPolicy:
        """The same by run times of one kind; itself where it goes by none."""
        if self.timed is None:
            return self
        return replace(self, name=f"{self.name} ({run_times})", make=partial(self.timed, run_times))

    def unshared(self) -> ReplayPolicy:
        """Policy for a trace without time-sharing."""
        return replace(
            self,
            name=f"{self.name} (unshared)",
            make=lambda setting: self.make(replace(setting, time_share=False)),
            shares=False,
        )


QUIET = EngineConfig(actions=("allocate",), backfill="none", reports=False)
"""Configuration without explanations, which a replay of a month does not read."""


def _packed(*more: object, backfill: str = "none") -> Engine:
    """Groups by age, after what ``more`` says of their order, on the fullest nodes that take them."""
    config = replace(QUIET, backfill=backfill)
    return Engine(config, [NodeAvailable(), ResourcesFit(), Binpack(), *more])


def _spread() -> Engine:
    """The same on the emptiest nodes."""
    return Engine(QUIET, [NodeAvailable(), ResourcesFit(), Spread()])


class Shortest:
    """Order by expected run time, shortest first; unknown run times last."""

    name = "shortest"

    def group_key(self, group: GroupView) -> float:
        seconds = group.spec.run_estimate
        return inf if seconds is None else seconds


def _reserving(backfill: str, run_times: str, setting: PolicyContext) -> ReplayEngine:
    known = ReplayEstimates(run_times, setting.keys, setting.jobs)
    exact = run_times == ORACLE
    return ReplayEngine(
        _packed(backfill=backfill), confirms=True, exact=exact, dress=known.dress, ended=known.ended
    )


def _shortest(run_times: str, setting: PolicyContext) -> ReplayEngine:
    known = ReplayEstimates(run_times, setting.keys, setting.jobs)
    return ReplayEngine(_packed(Shortest()), dress=known.dress, ended=known.ended)


def shared(policy: Callable[[PolicyContext], TimeSharing]) -> Callable[[PolicyContext], ReplayEngine]:
    """Jobs that opted in are suspended for one another, by the ranks of a policy; queues, where there are some, take
    turns by their shares."""

    def make(setting: PolicyContext) -> ReplayEngine:
        config = replace(QUIET, actions=("allocate", "timeshare"))
        turns = [DominantShare()] if setting.queues else []
        plugins = [NodeAvailable(), ResourcesFit(), Binpack(), *turns, policy(setting)]
        return ReplayEngine(Engine(config, plugins), confirms=True, dress=_opting_in(setting))

    return make


def _opting_in(setting: PolicyContext) -> Callable[[Group, TraceJob], Group]:
    def dress(group: Group, job: TraceJob) -> Group:
        agrees = setting.time_share if job.time_share is None else job.time_share
        notes = {**group.annotations, TIME_SHARE: "true" if agrees else "false"}
        every = setting.checkpoint_seconds if job.checkpoint_seconds is None else job.checkpoint_seconds
        if every is not None:
            notes[CHECKPOINT_EVERY] = _duration(every)
        restart = setting.restart.of(job)
        if restart:
            notes[RESTART_COST] = _duration(restart)
        return altered(group, annotations=notes)

    return dress


@lru_cache(maxsize=1024)
def _duration(seconds: float) -> str:
    return f"{seconds:.9f}s"


def at_rate(group: Group, every: float | None, rate: float) -> Group:
    """The group as it says of itself how often it saves its work, if it does after ``every`` seconds of work at that
    rate."""
    if not every or not rate or CHECKPOINT_EVERY not in group.annotations:
        return group
    said = _duration(every / rate)
    if group.annotations[CHECKPOINT_EVERY] == said:
        return group
    return altered(group, annotations={**group.annotations, CHECKPOINT_EVERY: said})


def _with_model(group: Group, job: TraceJob) -> Group:
    return altered(group, annotations={MODEL: job.model}) if job.model else group


def _remaining(run_times: str, setting: PolicyContext, *, weighed: bool) -> ReplayEngine:
    return _by_estimates(run_times, setting, ShortestRemaining(weighed=weighed))


def _predicted(run_times: str, setting: PolicyContext) -> ReplayEngine:
    return _by_estimates(run_times, setting, PredictedSharing())


def _by_estimates(run_times: str, setting: PolicyContext, policy: TimeSharing) -> ReplayEngine:
    known = ReplayEstimates(run_times, setting.keys, setting.jobs)
    made = shared(lambda _: policy)(setting)
    consent = made.dress
    return replace(made, dress=lambda group, job: known.dress(consent(group, job), job), ended=known.ended)


def configured(text: str, dialect: Dialect) -> Callable[[PolicyContext], ReplayEngine]:
    """The engine of a scheduler configuration."""
    return lambda _: _engine_of(scheduler_config.parse(text).config, dialect)


def _engine_of(config: SchedulerConfig, dialect: Dialect, more: Sequence[object] = ()) -> ReplayEngine:
    base = replace(QUIET, claim_pause_seconds=0.0)
    engine = make_engine(config, lambda _: None, base=base, more=more)
    return ReplayEngine(engine, dialect=dialect, confirms=True)


def as_configured(
    name: str,
    summary: str,
    config: SchedulerConfig,
    *,
    learned: bool = True,
    shares: bool = True,
    more: Callable[[], Sequence[object]] = tuple,
) -> ReplayPolicy:
    """Return the policy of a cluster with this scheduler configuration.

    It uses the run times that owners state and, if ``learned``, those of earlier runs. ``shares``: True if jobs that
    opted in share time. ``more``: new plugins in addition to those of the configuration.
    """

    def make(setting: PolicyContext) -> ReplayEngine:
        known, consent = ReplayEstimates(USER, setting.keys, setting.jobs), _opting_in(setting)
        made = _engine_of(config, Dialect.VOLCANO if config.tiers else Dialect.WINDLASS, more())
        ended = known.ended if learned else _nothing_learned
        return replace(made, dress=lambda group, job: known.dress(consent(group, job), job), ended=ended)

    return ReplayPolicy(name, summary, make, shares=shares)


VOLCANO = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""Volcano's configuration as its chart installs it."""
KAI = """\
actions: "allocate, consolidation, reclaim, preempt, stalegangeviction"
configurations:
- name: backfill
  arguments:
    reservations: none
    aging: 0s
"""
"""KAI's actions; in its queues its own rules hold."""
KAI_LIKE = "kai-like"

_Make = Callable[[PolicyContext], ReplayEngine]
_MAKES: Mapping[str, _Make] = {
    "fifo": lambda _: ReplayEngine(_packed(backfill="strict")),
    "fifo-backfill": lambda _: ReplayEngine(_packed()),
    "model-grouping": lambda _: ReplayEngine(_packed(ModelGrouping()), dress=_with_model),
    "windlass": shared(lambda _: LearnedSharing()),
    "default": as_configured("default", "", SchedulerConfig()).make,
    "las": shared(lambda _: LeastAttained()),
    "predicted": partial(_predicted, LEARNED),
    "kube": lambda _: ReplayEngine(_spread(), Singly()),
    "kube-pack": lambda _: ReplayEngine(_packed(), Singly()),
    "kube1": lambda _: ReplayEngine(_spread(), Singly(pod_gpus=_POD_GPUS["kube1"])),
    "kube-wait": lambda _: ReplayEngine(_spread(), Singly(pod_gpus=_POD_GPUS["kube-wait"], in_turn=True)),
    "volcano-like": configured(VOLCANO, Dialect.VOLCANO),
    KAI_LIKE: configured(KAI, Dialect.KAI),
}
_TIMED: Mapping[str, Callable[[str, PolicyContext], ReplayEngine]] = {
    "easy": partial(_reserving, "easy"),
    "conservative": partial(_reserving, "conservative"),
    "sjf": _shortest,
    "srtf": partial(_remaining, weighed=False),
    "srsf": partial(_remaining, weighed=True),
}
"""Unless told otherwise they know the truth."""
_POD_GPUS = {"kube1": 1, "kube-wait": 1}
_SHARES = frozenset(("windlass", "default", "las", "predicted", "srtf", "srsf"))


def _of(listed: ListedPolicy) -> ReplayPolicy:
    name = listed.name
    timed = _TIMED.get(name)
    make = _MAKES[name] if timed is None else partial(timed, ORACLE)
    return ReplayPolicy(name, listed.summary, make, timed, name in _SHARES, _POD_GPUS.get(name, 0))


POLICIES: Mapping[str, ReplayPolicy] = {name: _of(listed) for name, listed in OF_RUN.items()}
