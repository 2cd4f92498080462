"""Options of the scheduler service."""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.api import annotations as names
from windlass.api.views import DEFAULT_SCHEDULER
from windlass.model.autoscaling.provisioning import NONE
from windlass.model.cluster.ownership import OtherScheduler
from windlass.spi.configuration import SchedulerConfig

EMBEDDED_NAMES = (*names.SCHEDULER_NAMES, DEFAULT_SCHEDULER)
"""Scheduler names served in single-node mode, with that of the default scheduler."""
OWN_NAMESPACE = "kube-system"
"""Default namespace of the leases and of learned run times."""


@dataclass(frozen=True, slots=True)
class ReservationPodOptions:
    """Pods that reserve whole devices for the pods that share them.

    ``image``: of Windlass itself.
    ``runtime_class``: in which a container sees its devices. Empty: the node's default.
    ``seconds``: maximum time until a device is known.
    ``cdi``: devices are named to containers by CDI.
    """

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str = "nvidia"
    seconds: float = 60.0
    cdi: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of the scheduler service. Times are in seconds.

    ``policy``: the configuration at the start.
    ``config_map``: whether the ConfigMap ``volcano-system/volcano-scheduler-config``
    replaces it.
    ``own_namespace``: where learned run times are stored.
    ``wait_for_group``: scheduler names. Their bare pods get their PodGroup from another
    controller.
    ``wait_for_owner``: the same for pods that another operator created.
    ``other_schedulers``: those that still run and hand their queues over one by one
    (:mod:`windlass.model.cluster.ownership`).

    ``debounce_seconds``: how long changes are collected before a cycle. Longer under
    pressure.
    ``assume_seconds``: after this time, a bind not shown by the informers is looked up.
    ``gang_seconds``: after this time without progress, the bound members of a gang
    below its minimum are evicted.
    ``quiet_seconds``: how long a group must have waited before its reason is written.
    ``rewrite_seconds``: interval between two writes of a reason.
    ``pod_rewrite_seconds``: the same for its pods.

    ``await_volumes``: whether a pod waits for the volumes of its claims. Not in
    single-node mode, where no controller provisions any.
    ``yield_seconds``: how long a pending pod of another scheduler has precedence on
    nodes where it would not fit together with Windlass' pods
    (:mod:`windlass.scheduler.commit.yield_to_others`).
    ``max_yield_seconds``: maximum time for which a bind is held back in this way.
    ``reservation_pods``: how whole devices are reserved for pods that share them.
    ``None``: they are not, and only Windlass knows of shares.

    ``estimate_seconds``: interval between simulated estimates of starts
    (:mod:`windlass.scheduler.estimates.start_estimates`). 0 turns them off.
    ``estimate_samples``: number of simulations per estimate.

    ``provisioning_class``: class of the ProvisioningRequests of queues that name none
    (:mod:`windlass.scheduler.autoscaling.provisioning`), or ``none``.
    ``provisioning_retries``: maximum number of repeated requests.
    ``provisioning_backoff_seconds``: time after the first failed request. It doubles
    after each further one, up to ``provisioning_backoff_max_seconds``.
    """

    policy: SchedulerConfig = field(default_factory=SchedulerConfig)
    config_map: bool = False
    own_namespace: str = OWN_NAMESPACE
    scheduler_names: tuple[str, ...] = names.SCHEDULER_NAMES
    wait_for_group: tuple[str, ...] = ("volcano",)
    wait_for_owner: tuple[str, ...] = ()
    other_schedulers: tuple[OtherScheduler, ...] = ()
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
    yield_seconds: float = 11.0
    max_yield_seconds: float = 40.0
    bind_guard: bool = False
    reservation_pods: ReservationPodOptions | None = None
    sync_warning_seconds: float = 30.0
    estimate_seconds: float = 15.0
    estimate_samples: int = 10
    provisioning_class: str = NONE
    provisioning_retries: int = 3
    provisioning_backoff_seconds: float = 60.0
    provisioning_backoff_max_seconds: float = 1800.0


class LiveOptions:
    """The options in force. :meth:`SchedulerService.adjust` replaces ``current``."""

    __slots__ = ("current",)

    def __init__(self, current: SchedulerOptions) -> None:
        self.current = current
