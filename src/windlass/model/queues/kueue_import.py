"""Import of Kueue's queues as queues of Windlass. Pure, from published objects.

The API is ``kueue.x-k8s.io``, v1beta1 and v1beta2.

| Kueue | Windlass |
|---|---|
| Cohort, also one that is only named | a queue above its members; deserves their sum
and its own quota |
| ClusterQueue | a queue; ``deserved`` is the nominal quota, over all flavors |
| ``lendingLimit`` | ``guarantee``: the nominal quota minus the limit; of a Cohort, that
of all below it |
| ``borrowingLimit`` | ``capability``: the nominal quota plus the limit (plus nothing
without a cohort) |
| ``reclaimWithinCohort`` | ``reclaimable``: false if no queue of the cohort reclaims |
| ``queueingStrategy`` | ``dequeueStrategy``: ``fifo`` or ``traverse`` |
| ``fairSharing.weight`` | ``weight``, in integers of the same ratio |
| LocalQueue | the queue of its namespace, if there is exactly one |
| waiting Workload | a PodGroup with its minimum and its queue |

A note reports everything without a counterpart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Any

from windlass.api import quantities
from windlass.api.annotations import PROVISIONING_CLASS, QUEUE_NAME_VOLCANO
from windlass.api.resources import NAMESPACES, POD_GROUPS, QUEUES

Json = dict[str, Any]
Amounts = dict[str, int]
GROUP = "kueue.x-k8s.io"
KINDS = ("Cohort", "ClusterQueue", "LocalQueue", "ResourceFlavor", "Workload")
MAX_WEIGHT = 65535
_TAKEN = ("root", "default")


@dataclass(slots=True)
class KueueImport:
    """Imported objects.

    They are queues, parents first, then namespaces (only the fields to patch), then
    PodGroups.
    """

    queues: list[Json] = field(default_factory=list)
    namespaces: list[Json] = field(default_factory=list)
    groups: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def translate(objects: Iterable[Mapping[str, Any]]) -> KueueImport:
    """Translate Kueue's objects.

    Raises :class:`~windlass.api.quantities.QuantityError` on an invalid amount, and
    ``ValueError`` on a cycle of cohorts. Both name the object.
    """
    return _Work(objects).done()


@dataclass(slots=True)
class _Quota:
    """Quota over all flavors, in engine units.

    ``borrowed`` only contains resources that are limited in every flavor.
    """

    nominal: Amounts = field(default_factory=dict)
    borrowed: Amounts = field(default_factory=dict)
    kept: Amounts = field(default_factory=dict)
    lent: dict[tuple[str, str], int] = field(default_factory=dict)
    """Resource and flavor → lending limit, if there is one."""
    by_flavor: dict[tuple[str, str], int] = field(default_factory=dict)
    """Resource and flavor → the nominal quota."""
    flavors: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class _Work:
    def __init__(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._kinds: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in KINDS}
        for obj in objects:
            if str(obj.get("apiVersion", "")).startswith(f"{GROUP}/") and obj.get("kind") in self._kinds:
                self._kinds[str(obj["kind"])].append(obj)
        self._out = KueueImport()
        self._specs = {_name(obj): obj.get("spec") or {} for obj in self._kinds["ClusterQueue"]}
        self._cohorts: dict[str, Mapping[str, Any]] = {
            _name(obj): obj.get("spec") or {} for obj in self._kinds["Cohort"]
        }
        for spec in (*self._specs.values(), *list(self._cohorts.values())):
            above = _cohort_of(spec)
            if above:
                self._cohorts.setdefault(above, {})
        for kind, specs in (("ClusterQueue", self._specs), ("Cohort", self._cohorts)):
            for name, spec in specs.items():
                try:
                    _quota(spec)
                    _weight(spec)
                except quantities.QuantityError as error:
                    raise quantities.QuantityError(f"{kind} {name}: {error}") from error

    def done(self) -> KueueImport:
        self._weights = self._whole_weights()
        totals = {name: self._total(name, ()) for name in self._cohorts}
        for name in self._by_depth():
            self._out.queues.append(self._cohort(name, totals[name]))
        for name in sorted(self._specs):
            self._out.queues.append(self._cluster_queue(name))
        self._local_queues()
        self._flavors()
        for obj in self._kinds["Workload"]:
            self._workload(obj)
        return self._out

    def _note(self, text: str) -> None:
        if text not in self._out.notes:
            self._out.notes.append(text)

    # ------------------------------------------------------------------ names and trees

    def _queue_name(self, name: str) -> str:
        return f"kueue-{name}" if name in _TAKEN else name

    def _cohort_name(self, name: str) -> str:
        return f"cohort-{name}" if name in self._specs or name in _TAKEN else name

    def _above(self, cohort: str) -> str:
        return str(self._cohorts[cohort].get("parentName") or self._cohorts[cohort].get("parent") or "")

    def _depth(self, cohort: str) -> int:
        path = [cohort]
        while above := self._above(path[-1]):
            if above in path:
                raise ValueError(f"cohorts form a cycle: {', '.join([*path, above])}")
            path.append(above)
        return len(path)

    def _root(self, cohort: str) -> str:
        while above := self._above(cohort):
            cohort = above
        return cohort

    def _by_depth(self) -> list[str]:
        return sorted(self._cohorts, key=lambda name: (self._depth(name), name))

    # ------------------------------------------------------------------ amounts

    def _total(self, cohort: str, visited: tuple[str, ...]) -> Amounts:
        """Return the sum of the quotas of a cohort and of all its members."""
        total: Amounts = dict(_quota(self._cohorts[cohort]).nominal)
        for spec in self._specs.values():
            if _cohort_of(spec) == cohort:
                _add(total, _quota(spec).nominal)
        for below in self._cohorts:
            if self._above(below) == cohort and below not in visited:
                _add(total, self._total(below, (*visited, cohort)))
        return total

    def _whole_weights(self) -> dict[str, int]:
        """Return integer weights by ``ClusterQueue NAME`` and ``Cohort NAME``, in the same ratio."""
        written = {
            **{f"ClusterQueue {name}": _weight(spec) for name, spec in self._specs.items()},
            **{f"Cohort {name}": _weight(spec) for name, spec in self._cohorts.items()},
        }
        scale = lcm(*(weight.denominator for weight in written.values())) if written else 1
        weights: dict[str, int] = {}
        for key, weight in written.items():
            whole = int(weight * scale)
            if not 1 <= whole <= MAX_WEIGHT:
                self._note(
                    f"{key}: weight {weight} cannot be represented exactly; {min(max(whole, 1), MAX_WEIGHT)} is used"
                )
            weights[key] = min(max(whole, 1), MAX_WEIGHT)
        return weights

    # ------------------------------------------------------------------ queues

    def _cohort(self, name: str, total: Amounts) -> Json:
        above = self._above(name)
        spec: Json = {
            "weight": self._weights[f"Cohort {name}"],
            "parent": self._cohort_name(above) if above else "root",
            "reclaimable": self._taken_back(name),
        }
        if total:
            spec["deserved"] = _texts(total)
        quota = _quota(self._cohorts[name])
        if above and (unlent := self._kept_below(name, quota)):
            spec["guarantee"] = {"resource": _texts(unlent)}
        if total and not above:
            spec["capability"] = _texts(total)
        elif quota.borrowed:
            spec["capability"] = _texts(
                {key: total.get(key, 0) + more for key, more in quota.borrowed.items()}
            )
        return _queue(self._cohort_name(name), spec)

    def _kept_below(self, cohort: str, quota: _Quota) -> Amounts:
        """Return the part of a cohort's quota, with its members, that is not lent to its siblings."""
        unlent: Amounts = {}
        for (resource, flavor), limit in quota.lent.items():
            nominal = sum(
                _quota(spec).by_flavor.get((resource, flavor), 0)
                for spec in (*self._specs.values(), *self._cohorts.values())
                if self._is_within(spec, cohort)
            )
            nominal += quota.by_flavor.get((resource, flavor), 0)
            if nominal > limit:
                _add(unlent, {resource: nominal - limit})
        return unlent

    def _is_within(self, spec: Mapping[str, Any], cohort: str) -> bool:
        """Return whether a ClusterQueue or a Cohort is below a cohort, at any depth."""
        above = _cohort_of(spec)
        while above and above != cohort:
            above = self._above(above)
        return bool(above)

    def _cluster_queue(self, name: str) -> Json:
        source = self._specs[name]
        quota, cohort = _quota(source), _cohort_of(source)
        spec: Json = {
            "weight": self._weights[f"ClusterQueue {name}"],
            "parent": self._cohort_name(cohort) if cohort else "root",
            "reclaimable": self._taken_back(cohort) if cohort else False,
            "dequeueStrategy": "fifo" if source.get("queueingStrategy") == "StrictFIFO" else "traverse",
        }
        if quota.nominal:
            spec["deserved"] = _texts(quota.nominal)
        guaranteed = {key: units for key, units in quota.kept.items() if units}
        if guaranteed:
            spec["guarantee"] = {"resource": _texts(guaranteed)}
        if not cohort and quota.nominal:
            spec["capability"] = _texts(quota.nominal)
        elif quota.borrowed:
            limits = {key: quota.nominal[key] + more for key, more in quota.borrowed.items()}
            spec["capability"] = _texts(limits)
        self._remarks(name, source, quota)
        return _queue(self._queue_name(name), spec)

    def _remarks(self, name: str, spec: Mapping[str, Any], quota: _Quota) -> None:
        where = f"ClusterQueue {name}"
        if self._queue_name(name) != name:
            self._note(
                f"{where} becomes queue {self._queue_name(name)}: {name} is a built-in queue of Windlass"
            )
        for resource, flavors in sorted(quota.flavors.items()):
            if len(flavors) > 1:
                several = ", ".join(sorted(flavors))
                self._note(
                    f"{where}: the quotas of {resource} in flavors {several} are added up, flavors have no limits"
                )
        if (spec.get("stopPolicy") or "None") != "None":
            queue = self._queue_name(name)
            self._note(f"{where} is stopped ({spec['stopPolicy']}): windlass queue set {queue} state=Closed")
        if spec.get("namespaceSelector"):
            self._note(f"{where}: namespaceSelector is not imported; any namespace may name the queue")
        if spec.get("admissionChecks") or spec.get("admissionChecksStrategy"):
            self._note(
                f"{where}: its admission checks are not evaluated; to request all of its nodes or none, annotate it"
                f" with {PROVISIONING_CLASS}"
            )
        policy = spec.get("preemption") or {}
        if (policy.get("withinClusterQueue") or "Never") == "Never":
            self._note(
                f"{where}: work of higher priority preempts lower in a queue, unless the latter is preemptable=false"
            )

    def _taken_back(self, cohort: str) -> bool:
        """Return whether any queue in the whole tree of cohorts reclaims borrowed quota."""
        root = self._root(cohort)
        for spec in self._specs.values():
            own_cohort = _cohort_of(spec)
            policy = (spec.get("preemption") or {}).get("reclaimWithinCohort") or "Never"
            if own_cohort and self._root(own_cohort) == root and policy != "Never":
                return True
        return False

    # ------------------------------------------------------------------ other kinds

    def _local_queues(self) -> None:
        homes: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for obj in self._kinds["LocalQueue"]:
            homes[str(obj["metadata"].get("namespace", ""))].append(obj)
        for namespace, local_queues in sorted(homes.items()):
            if len(local_queues) > 1:
                names = ", ".join(sorted(_name(obj) for obj in local_queues))
                self._note(
                    f"namespace {namespace} has several LocalQueues ({names}): jobs have to name their queue"
                )
                continue
            queue = self._queue_of(local_queues[0])
            if not queue:
                continue
            metadata = {"name": namespace, "annotations": {QUEUE_NAME_VOLCANO: queue}}
            self._out.namespaces.append(
                {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": metadata}
            )

    def _queue_of(self, local: Mapping[str, Any]) -> str:
        """Return the queue of a LocalQueue's ClusterQueue; ``""`` and a note if that is missing."""
        name = str((local.get("spec") or {}).get("clusterQueue", ""))
        if name in self._specs:
            return self._queue_name(name)
        where = f"LocalQueue {local['metadata'].get('namespace', '')}/{_name(local)}"
        self._note(f"{where}: its ClusterQueue {name!r} does not exist, so the queue of its jobs is unknown")
        return ""

    def _flavors(self) -> None:
        for obj in self._kinds["ResourceFlavor"]:
            labels = (obj.get("spec") or {}).get("nodeLabels") or {}
            if labels:
                selector = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
                self._note(f"ResourceFlavor {_name(obj)}: its jobs need the node selector {selector}")

    def _workload(self, obj: Mapping[str, Any]) -> None:
        """Add a PodGroup for a waiting Workload. Admitted ones run on and need none."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        done = any(
            entry.get("type") == "Finished" and entry.get("status") == "True"
            for entry in status.get("conditions") or ()
        )
        if status.get("admission") or done or spec.get("active") is False:
            return
        namespace, sets = str(obj["metadata"]["namespace"]), spec.get("podSets") or ()
        local = {
            (_name(entry), entry["metadata"].get("namespace")): entry for entry in self._kinds["LocalQueue"]
        }
        local_queue = local.get((str(spec.get("queueName", "")), namespace))
        if local_queue is None:
            self._note(
                f"Workload {namespace}/{_name(obj)}: its LocalQueue {spec.get('queueName', '')!r} does not exist"
            )
            return
        queue = self._queue_of(local_queue)
        if not queue:
            return
        least = sum(int(entry.get("minCount") or entry.get("count") or 1) for entry in sets)
        group: Json = {"minMember": least, "queue": queue}
        priority_class, own = _priority(spec)
        if priority_class and own:
            self._note(
                f"WorkloadPriorityClass {priority_class} has no counterpart: create a PriorityClass instead"
            )
        elif priority_class:
            group["priorityClassName"] = priority_class
        self._out.groups.append(
            {
                "apiVersion": POD_GROUPS.api_version,
                "kind": POD_GROUPS.kind,
                "metadata": {"name": _name(obj), "namespace": namespace},
                "spec": group,
            }
        )


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _cohort_of(spec: Mapping[str, Any]) -> str:
    """Return the cohort of a ClusterQueue (v1beta2, v1beta1), or the parent of a Cohort."""
    for field_name in ("cohortName", "cohort", "parentName", "parent"):
        if spec.get(field_name):
            return str(spec[field_name])
    return ""


def _weight(spec: Mapping[str, Any]) -> Fraction:
    """Return ``fairSharing.weight``; 1 if missing."""
    written = (spec.get("fairSharing") or {}).get("weight")
    return Fraction(1) if written is None else Fraction(quantities.parse(str(written)))


def _priority(spec: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the class of a Workload, and whether it is one of Kueue's own (v1beta2, v1beta1)."""
    reference = spec.get("priorityClassRef") or {}
    if reference:
        return str(reference.get("name", "")), reference.get("kind") == "WorkloadPriorityClass"
    return str(spec.get("priorityClassName") or ""), spec.get(
        "priorityClassSource"
    ) == f"{GROUP}/workloadpriorityclass"


def _quota(spec: Mapping[str, Any]) -> _Quota:
    quota = _Quota()
    unlimited: set[str] = set()
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for entry in flavor.get("resources") or ():
                name, place = str(entry["name"]), (str(entry["name"]), str(flavor["name"]))
                nominal = _units(name, entry.get("nominalQuota", 0))
                quota.flavors[name].add(str(flavor["name"]))
                quota.by_flavor[place] = nominal
                quota.nominal[name] = quota.nominal.get(name, 0) + nominal
                if entry.get("borrowingLimit") is None:
                    unlimited.add(name)
                else:
                    more = _units(name, entry["borrowingLimit"])
                    quota.borrowed[name] = quota.borrowed.get(name, 0) + more
                if entry.get("lendingLimit") is not None:
                    quota.lent[place] = _units(name, entry["lendingLimit"])
                    unlent = max(0, nominal - quota.lent[place])
                    quota.kept[name] = quota.kept.get(name, 0) + unlent
    for name in unlimited:
        quota.borrowed.pop(name, None)
    return quota


def _units(name: str, written: Any) -> int:
    return quantities.to_units(name, str(written))


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, units in more.items():
        total[name] = total.get(name, 0) + units


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantities.from_units(name, units) for name, units in sorted(amounts.items())}


def _queue(name: str, spec: Json) -> Json:
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
