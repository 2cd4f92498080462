"""Explanations of the groups that wait at the end of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.reasons import Explanation
from windlass.cli.simulate.plan import make_engine
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.model.dryrun.dry_run import DryRun
from windlass.spi.configuration import SchedulerConfig

NOW = 1_767_268_800.0


def explained(
    objects: Iterable[dict[str, Any]], config: SchedulerConfig | None = None
) -> dict[str, Explanation]:
    """Plan the objects until nothing changes. Return group → explanation, by the group's own name."""
    model = ClusterModel(EVERY_SCHEDULER)
    load(model, ((str(at), obj) for at, obj in enumerate(objects)), strict=True)
    plan = DryRun(model, make_engine(config or SchedulerConfig()), NOW).run(until_stable=True)
    return {waiting.group.rpartition("/")[2].rpartition(":")[2]: waiting.why for waiting in plan.waiting}
