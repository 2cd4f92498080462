"""What a run-time model is told of a group."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace as altered

from windlass.api import views
from windlass.model.cluster.group_index import GroupIndex
from windlass.predict.model import Prediction, RunTimeModel, Traits
from windlass.spi.objects import Group


def traits_of(group: Group, shape: str = "") -> Traits:
    """The namespace stands for its owner. ``shape``: as :func:`shape_of` tells it; empty: no pod of it is known."""
    namespace, _, name = group.key.partition("/")
    return Traits(namespace, group.queue, name.removeprefix("pod:"), max(group.min_member, 1), shape=shape)


def foretold(group: Group, model: RunTimeModel, shape: str = "") -> Group:
    """The group with what a model expects of it, where its owner says nothing and anything is known."""
    found = model.predict(traits_of(group, shape)) if group.run_estimate is None else None
    return group if found is None else with_prediction(group, found)


def with_prediction(group: Group, found: Prediction) -> Group:
    """The group with what was learned of it: named as such, so that it is trusted no further than that."""
    seconds, longest = found.seconds, found.at_most
    return altered(group, run_estimate=seconds, run_bound=longest, learned=found.basis, runs=found.runs)


def shape_of(pod: views.Pod) -> str:
    """What a pod asks for, in words that are equal for equal requests."""
    return " ".join(f"{name}={units}" for name, units in sorted(pod.shape.request.items()) if units)


def shape_in(model: GroupIndex, group: str) -> str:
    """That of the first pod of a group that a model knows, which stands for all; empty where there is none yet."""
    pod = next(iter(model.pods_of(group)), None)
    return "" if pod is None else shape_of(pod)


def shapes_in(model: GroupIndex, groups: Iterable[str]) -> dict[str, str]:
    """Group → that, of those of which a pod is known."""
    found = {group: shape_in(model, group) for group in groups}
    return {group: shape for group, shape in found.items() if shape}
