"""Controllers of ``apps/v1`` that single-node mode runs."""

from __future__ import annotations

from windlass.controllers.apps.daemonset.controller import DaemonSetController
from windlass.controllers.apps.deployment.controller import DeploymentController
from windlass.controllers.apps.replicaset.controller import ReplicaSetController
from windlass.controllers.apps.statefulset.controller import StatefulSetController
from windlass.controllers.runner import Informers, Reconciler
from windlass.kits.clock import Clock
from windlass.kits.rng import Random


def apps_controllers(informers: Informers, clock: Clock, rng: Random) -> list[Reconciler]:
    """Return one controller for each kind."""
    return [
        ReplicaSetController(informers, clock, rng),
        DeploymentController(informers, clock),
        StatefulSetController(informers, clock),
        DaemonSetController(informers, clock, rng),
    ]
