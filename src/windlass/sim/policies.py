"""The policies of a replay by name: how the engine of each is built, and how jobs are told to it.

There is one engine. What tells policies apart are its plugins, its configuration, and whether a job is a gang
or a number of pods that know nothing of one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.kits.rng import Random
from windlass.plugins.availability import NodeAvailable
from windlass.plugins.binpack import Binpack
from windlass.plugins.resources import ResourcesFit
from windlass.plugins.spread import Spread
from windlass.sim.jobs import TraceJob
from windlass.sim.progress import RestartCost
from windlass.spi.objects import Group, Node
from windlass.spi.plugins import GroupView


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy may know beforehand: an oracle looks at ``jobs``. ``keys``: the engine's name of each job,
    in the same order."""

    jobs: Sequence[TraceJob]
    keys: Sequence[str]
    nodes: Sequence[Node]
    random: Random
    time_share: bool = True
    restart: RestartCost = field(default_factory=RestartCost)


@dataclass(frozen=True, slots=True)
class Singly:
    """Pods that are bound one by one: a job of which only a part has its place holds that for
    ``patience_seconds``, is then given up, and comes again after ``pause_seconds``. ``pod_gpus``: the most of one
    pod; 0: as many as a node has."""

    pod_gpus: int = 0
    patience_seconds: float = 1800.0
    pause_seconds: float = 300.0


def _as_it_is(group: Group, job: TraceJob) -> Group:
    return group


@dataclass(frozen=True, slots=True)
class Made:
    """An engine, and how it is told of jobs. ``singly``: ``None`` for gangs. ``pooled``: all jobs stand in one queue,
    whatever the trace says. ``confirms``: the engine is told when pods run, for policies that look at that.
    ``dress``: what else the policy says of a job's group (a run time, an annotation)."""

    engine: Engine
    singly: Singly | None = None
    pooled: bool = True
    confirms: bool = False
    dress: Callable[[Group, TraceJob], Group] = _as_it_is


@dataclass(frozen=True, slots=True)
class Policy:
    """``oracle``: it knows run times that nobody knows in life."""

    name: str
    summary: str
    make: Callable[[Setting], Made]
    oracle: bool = False


def _engine(backfill: str, *more: object) -> Engine:
    """Gangs by age on the fullest nodes; ``more``: what comes before in the order."""
    config = EngineConfig(actions=("allocate",), backfill=backfill, explanations=False)
    return Engine(config, [NodeAvailable(), ResourcesFit(), Binpack(), *more])


def _fifo(setting: Setting) -> Made:
    return Made(_engine("strict"))


def _fifo_backfill(setting: Setting) -> Made:
    return Made(_engine("none"))


class Shortest:
    """Whoever runs shortest goes first: an oracle."""

    name = "shortest"

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def group_key(self, group: GroupView) -> float:
        return self._seconds[group.spec.key]


def _sjf(setting: Setting) -> Made:
    seconds = {key: job.duration_seconds for key, job in zip(setting.keys, setting.jobs, strict=True)}
    return Made(_engine("none", Shortest(seconds)))


def _kube(setting: Setting) -> Made:
    config = EngineConfig(actions=("allocate",), backfill="none", explanations=False)
    return Made(Engine(config, [NodeAvailable(), ResourcesFit(), Spread()]), Singly())


def _kube_pack(setting: Setting) -> Made:
    return Made(_engine("none"), Singly())


def _kube1(setting: Setting) -> Made:
    config = EngineConfig(actions=("allocate",), backfill="none", explanations=False)
    return Made(Engine(config, [NodeAvailable(), ResourcesFit(), Spread()]), Singly(pod_gpus=1))


def _timed(group: Group, job: TraceJob) -> Group:
    return replace(group, run_estimate=job.duration_seconds)


def _easy(setting: Setting) -> Made:
    return Made(_engine("easy"), confirms=True, dress=_timed)


def _conservative(setting: Setting) -> Made:
    return Made(_engine("conservative"), confirms=True, dress=_timed)


_ALL = (
    Policy("kube", "pod by pod, pods of up to a node, spread", _kube),
    Policy("kube-pack", "pod by pod, most allocated node first", _kube_pack),
    Policy("kube1", "pod by pod, pods of one GPU, spread", _kube1),
    Policy("sjf", "shortest first, oracle", _sjf, oracle=True),
    Policy("easy", "", _easy, oracle=True),
    Policy("conservative", "", _conservative, oracle=True),
    Policy("fifo", "gangs by age; nobody passes the first", _fifo),
    Policy("fifo-backfill", "gangs by age; who does not fit is passed by whoever fits", _fifo_backfill),
)

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _ALL}
