"""Features of a group for run-time models."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace as altered

from windlass.api import views
from windlass.model.cluster.group_index import GroupIndex
from windlass.predict.model import Prediction, RunTimeModel, Traits
from windlass.spi.objects import Group


def traits_of(group: Group, shape: str = "") -> Traits:
    """Return the features of a group. Its namespace represents its owner.

    ``shape``: result of :func:`shape_of`; empty if no pod of it is known.
    """
    namespace, _, name = group.key.partition("/")
    return Traits(namespace, group.queue, name.removeprefix("pod:"), max(group.min_member, 1), shape=shape)


def predicted_group(group: Group, model: RunTimeModel, shape: str = "") -> Group:
    """Return the group with a model's prediction, if there is one and no estimate by its owner."""
    prediction = model.predict(traits_of(group, shape)) if group.run_estimate is None else None
    return group if prediction is None else with_prediction(group, prediction)


def with_prediction(group: Group, prediction: Prediction) -> Group:
    """Return the group with a prediction that is marked as learned, so that it is trusted less."""
    seconds, longest = prediction.seconds, prediction.at_most
    return altered(
        group, run_estimate=seconds, run_bound=longest, learned=prediction.basis, runs=prediction.runs
    )


def shape_of(pod: views.Pod) -> str:
    """Return a pod's request as text; equal for equal requests."""
    return " ".join(f"{name}={units}" for name, units in sorted(pod.shape.request.items()) if units)


def shape_in(model: GroupIndex, group: str) -> str:
    """Return the request of the group's first known pod, for all of them; "" without pods."""
    pod = next(iter(model.pods_of(group)), None)
    return "" if pod is None else shape_of(pod)


def shapes_in(model: GroupIndex, groups: Iterable[str]) -> dict[str, str]:
    """Return the requests of :func:`shape_in` by group, for groups with a known pod."""
    shapes = {group: shape_in(model, group) for group in groups}
    return {group: shape for group, shape in shapes.items() if shape}
