"""Nodes with measured loads under the plug-in ``rescheduling``, in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tier_configurations import config

from windlass.engine.decision import Decision
from windlass.engine.deltas import GroupUpserted
from windlass.plugins.volcano.evictions.rescheduling import Rescheduling
from windlass.spi.inputs import NodeLoad
from windlass.spi.objects import Dialect, Group, Needs, Task, TaskState
from windlass.testing import Scene
from windlass.testing.scene import GIB, NAMESPACE

TIERS = "priority gang conformance rescheduling | predicates nodeorder"
FIVE_MINUTES = 300.0


def arguments(low: float = 20, target: float = 50, **more: Any) -> dict[str, Any]:
    params = {
        "thresholds": {"cpu": low, "memory": low},
        "targetThresholds": {"cpu": target, "memory": target},
    }
    return {"interval": "5m", "strategies": [{"name": "lowNodeUtilization", "params": params}], **more}


def relief_scene(given: Mapping[str, Any] | None = None, tiers: str = TIERS) -> Scene:
    """The clock of the policy has begun: somebody is moved five minutes later."""
    scene = Scene(config=config("allocate shuffle", tiers, rescheduling=dict(given or arguments())))
    scene.cycle()
    return scene


def policy_of(scene: Scene) -> Rescheduling:
    (found,) = [p for p in scene.engine.state.plugins.plugins if isinstance(p, Rescheduling)]
    return found


def run_on(
    scene: Scene,
    group: str,
    places: Sequence[str],
    *,
    cpu: float = 1,
    memory_gib: float = 0,
    least: int = 1,
    priority: int = 0,
    group_is: Mapping[str, Any] | None = None,
    **task_is: Any,
) -> None:
    """Pods ``GROUP-0`` … that run there."""
    key = f"{NAMESPACE}/{group}"
    spec = Group(key, uid=key, min_member=least, priority=priority, admitted=True, **(group_is or {}))
    scene.engine.apply([GroupUpserted(spec)])
    asked = {"cpu": round(cpu * 1000), "memory": round(memory_gib * GIB)}
    request = tuple(sorted((name, units) for name, units in asked.items() if units))
    needs = task_is.pop("needs", None) or Needs(request, namespace=NAMESPACE, dialect=Dialect.VOLCANO)
    for at, node in enumerate(places):
        name = f"{key}-{at}"
        scene._enter(
            Task(
                name, name, key, needs, index=at, priority=priority, node=node,
                state=TaskState.RUNNING, **task_is,
            )
        )  # fmt: skip


def measure(scene: Scene, at: float | None = None, **loads: tuple[float, float]) -> None:
    """Percent of cpu and memory, by node."""
    moment = scene.now if at is None else at
    policy_of(scene).take_loads({name: NodeLoad(*load, moment) for name, load in loads.items()})


def pass_interval(scene: Scene, seconds: float = FIVE_MINUTES, **loads: tuple[float, float]) -> Decision:
    """The next round, with these figures."""
    measure(scene, scene.now + seconds, **loads)
    return scene.cycle(seconds)
