"""Policies that a configuration may add.

Scores can be added in a tier for Volcano's queues, or on top of any policy for all pods
outside KAI's queues. Time-sharing orders replace the default one. An admission applies to
all pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from windlass.kits import durations
from windlass.plugins.devices.fgd import Fgd
from windlass.plugins.devices.gpu_aware import GpuAware, weights_of
from windlass.plugins.devices.scarcity import Scarcity
from windlass.plugins.queues.low_priority_gate import NODES, LowPriorityGate
from windlass.plugins.queues.model_grouping import WINDOW_SECONDS, ModelGrouping
from windlass.plugins.timeshare.classic import LeastAttained, ShortestRemaining
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.spi.configuration import PluginOption
from windlass.spi.objects import Dialect

Make = Callable[[PluginOption, Collection[Dialect]], list[object]]


def _gpu_aware(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    weights = weights_of(option)
    return [GpuAware(weights, dialects)] if any(weights.values()) else []


def _fgd(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    weight = option.weight("weight", 100.0)
    return [Fgd(weight, dialects)] if weight else []


def _scarcity(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    weight = option.weight("weight", 1.0)
    return [Scarcity(weight, dialects)] if weight else []


def _las(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    return [LeastAttained()]


def _srtf(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    return [ShortestRemaining()]


def _srsf(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    return [ShortestRemaining(weighed=True)]


def _predicted(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    return [PredictedSharing()]


def _model_grouping(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    window = option.arguments.get("window", f"{WINDOW_SECONDS:g}s")
    try:
        return [ModelGrouping(durations.parse(str(window)), dialects)]
    except ValueError:
        raise ValueError(f"{option.name}: window {window!r} is not a duration above 0, such as 1h") from None


def _low_priority_gate(option: PluginOption, dialects: Collection[Dialect]) -> list[object]:
    nodes = option.arguments.get("nodes", NODES)
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
        raise ValueError(f"{option.name}: nodes {nodes!r} is not a whole number of at least 1")
    return [LowPriorityGate(nodes)]


ON_TOP: Mapping[str, Make] = {
    "gpu-aware": _gpu_aware,
    "fgd": _fgd,
    "scarcity": _scarcity,
    "las": _las,
    "srtf": _srtf,
    "srsf": _srsf,
    "predicted": _predicted,
    "model-grouping": _model_grouping,
    "low-priority-gate": _low_priority_gate,
}
"""Name → factory of the plugins of an option, for pods of some queue APIs."""
