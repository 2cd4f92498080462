"""Volcano's ``subGroupPolicy``, translated to sub-groups of a gang.

A policy gathers the pods that match its selector and carry all of its label keys. Pods
with equal values of the keys form one sub-group, of which ``subGroupSize`` pods run
together or not at all. Without keys, all gathered pods form one. ``minSubGroups`` of a
policy's sub-groups have to be complete before the gang starts. In the tree of
sub-groups every policy is directly below the group, and has its own sub-groups below
it. A pod belongs to the first policy that gathers it.

The only sub-group of a policy without keys has the policy's name. The policy itself
then has that name with ``/`` at its end.
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
    """Return the name of the sub-group of a pod with these labels; ``""`` for none."""
    for policy in policies:
        if not selector_of(policy).matches(labels):
            continue
        values = [labels.get(key) for key in policy.match_label_keys]
        if None not in values:
            return _SEPARATOR.join([policy.name, *(value or "" for value in values)])
    return ""


def subgroups(
    view: views.PodGroup, pods: Iterable[views.Pod], topologies: Mapping[str, TopologyNeed] | None = None
) -> tuple[SubGroup, ...]:
    """Return the policies and the sub-groups that ``pods`` form, sorted by name per policy.

    ``topologies``: topology constraint of each sub-group of a policy, by policy.
    """
    if not view.subgroup_policies:
        return ()
    policies = {policy.name: policy for policy in view.subgroup_policies}
    topologies = topologies or {}
    result = [
        SubGroup(_node_of(policy), min_subgroups=policy.min_subgroups) for policy in view.subgroup_policies
    ]
    names = {subgroup_of(view.subgroup_policies, pod.labels) for pod in pods} - {""}
    for name in sorted(names):
        policy = policies[name.partition(_SEPARATOR)[0]]
        result.append(SubGroup(name, _node_of(policy), policy.size, topology=topologies.get(policy.name)))
    return tuple(result)


def _node_of(policy: SubGroupPolicy) -> str:
    """Return the name of a policy in the tree of sub-groups."""
    return policy.name if policy.match_label_keys else policy.name + _SEPARATOR


def selector_of(policy: SubGroupPolicy) -> selectors.Selector:
    """Return the selector of the pods that the policy gathers."""
    return selectors.EVERYTHING if policy.selector is None else from_label_selector(policy.selector)
