"""Volcano's ``subGroupPolicy`` → parts of a gang.

A policy gathers the pods that its selector matches and that carry all of its label keys; those with equal
values of the keys are one part, of which ``subGroupSize`` pods run together or not at all.
``minSubGroups`` of a policy's parts have to be whole before the gang starts. In the tree of parts every
policy is a part directly below the group, and has its parts below it. A pod belongs to the first policy
that gathers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api import selectors, views
from windlass.api.selectors import from_label_selector
from windlass.api.views import SubGroupPolicy
from windlass.spi.objects import SubGroup
from windlass.spi.topology import TopologyNeed

_SEPARATOR = "/"


def subgroup_of(policies: Iterable[SubGroupPolicy], labels: Mapping[str, str]) -> str:
    """The name of the part that a pod with these labels belongs to; ``""`` for none."""
    for policy in policies:
        if not selector_of(policy).matches(labels):
            continue
        values = [labels.get(key) for key in policy.match_label_keys]
        if None not in values:
            return _SEPARATOR.join([policy.name, *(value or "" for value in values)])
    return ""


def subgroups(
    view: views.PodGroup, pods: Iterable[views.Pod], near: Mapping[str, TopologyNeed] | None = None
) -> tuple[SubGroup, ...]:
    """The policies, and the parts that ``pods`` make up, sorted by name below each policy. ``near``: how near
    to one another the pods of each part of a policy are to be."""
    if not view.subgroup_policies:
        return ()
    sizes = {policy.name: policy.size for policy in view.subgroup_policies}
    near = near or {}
    found = [
        SubGroup(
            policy.name,
            min_subgroups=policy.min_subgroups,
            topology=None if policy.match_label_keys else near.get(policy.name),
        )
        for policy in view.subgroup_policies
    ]
    names = {subgroup_of(view.subgroup_policies, pod.labels) for pod in pods} - {""}
    for name in sorted(names):
        policy = name.partition(_SEPARATOR)[0]
        if name != policy:
            found.append(SubGroup(name, policy, sizes[policy], topology=near.get(policy)))
    return tuple(found)


def selector_of(policy: SubGroupPolicy) -> selectors.Selector:
    """Which pods the policy gathers."""
    return selectors.EVERYTHING if policy.selector is None else from_label_selector(policy.selector)
