"""What the scheduler service may be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.api import annotations as names
from windlass.api.views import DEFAULT_SCHEDULER
from windlass.model.autoscaling.provisioning import NONE
from windlass.model.cluster.ownership import OtherScheduler
from windlass.spi.configuration import SchedulerConfig

EMBEDDED_NAMES = (*names.SCHEDULER_NAMES, DEFAULT_SCHEDULER)
"""In embedded mode Windlass is also the cluster's own scheduler."""


OWN_NAMESPACE = "kube-system"
"""Where the leases and what is learned lie, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class ReservationPodOptions:
    """``image``: of Windlass itself. ``runtime_class``: in which a container sees its cards; empty: the nodes' own.
    ``seconds``: so long may a card take to be named. ``cdi``: cards are named to containers as CDI names them."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str = "nvidia"
    seconds: float = 60.0
    cdi: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Times in seconds. ``beside``: schedulers that still run and hand their queues over one by one
    (:mod:`windlass.model.cluster.ownership`).

    ``debounce_seconds``: how long changes are collected before a cycle, longer in a rush. ``assume_seconds``: after
    this a bind that was not seen is looked up. ``gang_seconds``: how long a gang may stand between its first bind
    and its minimum without progress before its bound members are evicted. ``quiet_seconds``: so long
    must a group have waited before its reason is written; ``rewrite_seconds`` lies between two writes of it,
    ``pod_rewrite_seconds`` on its pods. ``wait_for_group``: scheduler names whose bare pods get their
    PodGroup from somebody else. ``policy``: what the scheduler begins with;
    ``config_map``: whether the ConfigMap ``volcano-system/volcano-scheduler-config`` changes it.
    ``own_namespace``: where what is learned is kept. ``await_volumes``: whether a pod waits for the volumes that
    its claims are given when it is placed; not in a box, where nobody makes any. ``turn_seconds``: so long has a pod
    of another scheduler that waits precedence on nodes where it would not fit beside ours
    (:mod:`windlass.scheduler.commit.yield_to_others`), together not longer than ``turn_most_seconds``.
    ``estimate_seconds``: so long lies between two estimates of starts by simulation
    (:mod:`windlass.scheduler.estimates.start_estimates`), 0 for none; ``estimate_samples``: how often each plays the
    cluster forward. ``card_pods``: how cards that device plug-ins hand out whole are held for those who share them;
    ``None``: they are not, and nobody but Windlass knows of shares. ``provisioning_class``: by which class gangs of
    queues that say nothing else ask for nodes (:mod:`.nodesasked`), or ``none``; asked anew ``provisioning_retries``
    times at most, ``provisioning_backoff_seconds`` after the first that failed, twice as long after each further one,
    up to ``provisioning_backoff_max_seconds``."""

    policy: SchedulerConfig = field(default_factory=SchedulerConfig)
    config_map: bool = False
    own_namespace: str = OWN_NAMESPACE
    scheduler_names: tuple[str, ...] = names.SCHEDULER_NAMES
    wait_for_group: tuple[str, ...] = ("volcano",)
    beside: tuple[OtherScheduler, ...] = ()
    debounce_seconds: float = 0.003
    assume_seconds: float = 30.0
    gang_seconds: float = 30.0
    quiet_seconds: float = 0.5
    rewrite_seconds: float = 5.0
    pod_rewrite_seconds: float = 30.0
    bind_concurrency: int = 32
    bind_concurrency_max: int = 128
    write_concurrency: int = 4
    await_volumes: bool = True
    turn_seconds: float = 11.0
    turn_most_seconds: float = 40.0
    bind_guard: bool = False
    card_pods: ReservationPodOptions | None = None
    sync_warning_seconds: float = 30.0
    estimate_seconds: float = 15.0
    estimate_samples: int = 10
    provisioning_class: str = NONE
    provisioning_retries: int = 3
    provisioning_backoff_seconds: float = 60.0
    provisioning_backoff_max_seconds: float = 1800.0
