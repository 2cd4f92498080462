"""Rule by which a pod is protected from eviction for other groups, in words."""

from __future__ import annotations

from windlass.api import views
from windlass.api.annotations import PREEMPTABLE
from windlass.api.preemptibility import EvictionRule, Source, rule_of
from windlass.model.cluster.group_index import WrittenGroup
from windlass.model.groups.podgroups import Classes
from windlass.model.pods.engine_task import is_critical


def protection_of(pod: views.Pod | None, group: WrittenGroup | None, classes: Classes) -> EvictionRule | None:
    """Return the rule for a pod; ``None`` if nothing is stated."""
    if pod is not None and is_critical(pod):
        return EvictionRule(False, "the cluster depends on it")
    pods: list[Source] = [] if pod is None else [("its pod", pod.labels, pod.annotations)]
    above: Source | None = None if group is None else ("its PodGroup", group.labels, group.annotations)
    named = getattr(group, "priority_class", "") or (pod.priority_class if pod is not None else "")
    stated = {PREEMPTABLE: "false"} if classes.protects(named) else {}
    return rule_of(
        pods, above, (f"PriorityClass {named}" if named else "the default PriorityClass", {}, stated)
    )
