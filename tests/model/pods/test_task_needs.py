"""Pod → needs and task: semantics, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import namespace, pod, priority_class

from windlass.api import views
from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.spi.objects import (
    Expression,
    Needs,
    NodeGroups,
    NodeTerm,
    PodTerm,
    Scoring,
    SpreadTerm,
    Task,
    TaskState,
    Toleration,
    WeightedPodTerm,
)


def view(**kwargs: Any) -> views.Pod:
    return views.decode_pod(views.encode(pod("a", **kwargs)))


def translate(*pods: dict[str, Any], spaces: list[dict[str, Any]] | None = None) -> dict[str, Task]:
    model = ClusterModel(["windlass"])
    for space in spaces or []:
        model.objects.upsert_namespace(views.decode_namespace(views.encode(space)))
    for obj in pods:
        model.objects.upsert_pod(views.decode_pod(views.encode(obj)))
    return {d.task.key: d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)}


def needs(**spec: Any) -> Needs:
    return translate(pod("a", **spec))["default/a"].needs


def anti_affinity(labels: dict[str, str], **term: Any) -> dict[str, Any]:
    return {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname", **term}
            ]
        }
    }


def node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    }


def test_plain_needs_are_equal_across_namespaces_and_labels() -> None:
    tasks = translate(
        pod("a", labels={"app": "x"}), pod("b", namespace="other", labels={"app": "y"}), pod("c", requests={})
    )
    assert tasks["default/a"].needs is tasks["other/b"].needs
    assert tasks["default/a"].needs == Needs(request=(("nvidia.com/gpu", 1000),))
    assert tasks["default/c"].needs == Needs()


def test_node_affinity() -> None:
    found = needs(
        affinity=node_affinity(
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
            {},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        )
    )
    assert found.node_terms == (
        NodeTerm((Expression("zone", "In", ("a", "b")),)),
        NodeTerm((), (Expression("metadata.name", "In", ("n1",)),)),
    )
    assert needs(affinity=node_affinity({})).node_terms == ()  # an empty term matches no node
    assert needs(affinity={}).node_terms is None


def test_tolerations() -> None:
    found = needs(tolerations=[{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoExecute"}])
    assert found.tolerations == (Toleration("", "Exists"), Toleration("k", "Equal", "v", "NoExecute"))


def test_labels_and_namespace_count_once_an_affinity_can_select_on_them() -> None:
    tasks = translate(
        pod("a", labels={"app": "x", "other": "1"}),
        pod("b", labels={"app": "x", "other": "2"}),
        pod("c", labels={"app": "x"}, affinity=anti_affinity({"app": "x"})),
    )
    assert tasks["default/a"].needs is tasks["default/b"].needs
    assert tasks["default/a"].needs.labels == (("app", "x"),)
    assert tasks["default/a"].needs.namespace == "default"
    assert tasks["default/c"].needs.anti_affinity == (
        PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname"),
    )


def test_a_new_selector_renews_the_needs_of_pods_known_before() -> None:
    model = ClusterModel(["windlass"])
    model.objects.upsert_pod(view(labels={"app": "x"}))
    model.take()
    late = pod("b", affinity=anti_affinity({"app": "x"}))
    model.objects.upsert_pod(views.decode_pod(views.encode(late)))
    tasks = {d.task.key: d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)}
    assert tasks["default/a"].needs.labels == (("app", "x"),)


def test_namespace_selectors_become_names_and_follow_the_namespaces() -> None:
    spaces = [namespace("default"), namespace("red", {"team": "r"}), namespace("blue", {"team": "b"})]
    chosen = anti_affinity({"app": "x"}, namespaceSelector={"matchLabels": {"team": "r"}}, namespaces=["x"])
    term = translate(pod("a", affinity=chosen), spaces=spaces)["default/a"].needs.anti_affinity[0]
    assert term.namespaces == ("red", "x")
    everywhere = anti_affinity({"app": "x"}, namespaceSelector={})
    term = translate(pod("a", affinity=everywhere), spaces=spaces)["default/a"].needs.anti_affinity[0]
    assert term.namespaces == ("blue", "default", "red")
    nowhere = anti_affinity({"app": "x"}, namespaceSelector={"matchLabels": {"team": "none"}})
    term = translate(pod("a", affinity=nowhere), spaces=spaces)["default/a"].needs.anti_affinity[0]
    assert term.selector is None  # selects nothing, not the pod's own namespace

    model = ClusterModel(["windlass"])
    model.objects.upsert_pod(view(affinity=everywhere))
    model.take()
    model.objects.upsert_namespace(views.decode_namespace(views.encode(namespace("new"))))
    (renewed,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert renewed.needs.anti_affinity[0].namespaces == ("new",)


def test_match_label_keys_take_the_pods_own_values() -> None:
    affinity = anti_affinity({"app": "x"}, matchLabelKeys=["rev"], mismatchLabelKeys=["tenant"])
    task = translate(pod("a", labels={"rev": "7", "tenant": "t"}, affinity=affinity))["default/a"]
    assert task.needs.anti_affinity[0].selector == (
        Expression("app", "In", ("x",)),
        Expression("rev", "In", ("7",)),
        Expression("tenant", "NotIn", ("t",)),
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"affinity": node_affinity({"matchExpressions": [{"key": "z", "operator": "Is"}]})},
            "nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            {"affinity": node_affinity({"matchExpressions": [{"key": "z", "operator": "In"}]})},
            "nodeSelectorTerms[0].matchExpressions[0].values",
        ),
        (
            {
                "affinity": node_affinity(
                    {"matchExpressions": [{"key": "z", "operator": "Gt", "values": ["x"]}]}
                )
            },
            "nodeSelectorTerms[0].matchExpressions[0].values[0]",
        ),
        (
            {
                "affinity": node_affinity(
                    {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["1"]}]}
                )
            },
            "nodeSelectorTerms[0].matchFields[0].key",
        ),
        ({"affinity": anti_affinity({}, topologyKey="")}, "[0].topologyKey"),
        (
            {
                "affinity": anti_affinity(
                    {}, labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
                )
            },
            "[0].labelSelector.matchExpressions[0].operator",
        ),
        ({"tolerations": [{"operator": "Like"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [{"value": "x"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [{"key": "k", "effect": "Never"}]}, "spec.tolerations[0].effect"),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        (
            {"containers": [{"resources": {"requests": {"cpu": "x"}}}]},
            "spec.containers[0].resources.requests[cpu]",
        ),
    ],
)
def test_contradictory_field_is_explained(spec: dict[str, Any], field: str) -> None:
    model = ClusterModel(["windlass"])
    model.objects.upsert_pod(view(**spec))
    assert not [d for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    explanation = model.explanation("default/pod:a")
    assert explanation is not None
    assert explanation.code == "Misconfigured"
    assert field in explanation.message
    assert explanation.waiting_helps == "no"


def test_bound_pod_with_an_invalid_field_still_holds_resources() -> None:
    task = translate(pod("a", node="n1", tolerations=[{"operator": "Like"}]))["default/a"]
    assert (task.node, task.state, task.needs.request) == (
        "n1",
        TaskState.RUNNING,
        (("nvidia.com/gpu", 1000),),
    )


def test_priority_comes_from_the_pod_else_from_its_class() -> None:
    model = ClusterModel(["windlass"])
    model.objects.upsert_pod(view(priorityClassName="high"))
    model.objects.upsert_class(views.decode_priority_class(views.encode(priority_class("high", 500))))
    (task,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert task.priority == 500
    model.objects.upsert_class(views.decode_priority_class(views.encode(priority_class("high", 700))))
    (task,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert task.priority == 700
    assert translate(pod("b", priority=3, priorityClassName="high"))["default/b"].priority == 3


def test_spread_constraints() -> None:
    found = needs(
        labels={"app": "x", "rev": "7", "other": "y"},
        topologySpreadConstraints=[
            {
                "topologyKey": "zone",
                "maxSkew": 2,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "x"}},
                "matchLabelKeys": ["rev", "absent"],
                "minDomains": 3,
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "Honor",
            },
            {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    )
    assert found.spread == (
        SpreadTerm(
            "zone",
            2,
            True,
            (Expression("app", "In", ("x",)), Expression("rev", "In", ("7",))),
            3,
            False,
            True,
        ),
        SpreadTerm("rack", 1, False, None),
    )
    assert (found.labels, found.namespace) == ((("app", "x"), ("rev", "7")), "default")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"maxSkew": 0}, "maxSkew: Invalid value: 0"),
        ({"topologyKey": ""}, "topologyKey: Required value"),
        ({"whenUnsatisfiable": "Never"}, 'whenUnsatisfiable: Unsupported value: "Never"'),
        ({"minDomains": 0}, "minDomains: Invalid value: 0"),
        ({"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}, "minDomains: Invalid value: 2"),
        ({"nodeTaintsPolicy": "Maybe"}, 'nodeTaintsPolicy: Unsupported value: "Maybe"'),
    ],
)
def test_contradictory_spread_constraint_is_reported(change: dict[str, Any], field: str) -> None:
    hard = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **change}
    model = ClusterModel(["windlass"])
    model.objects.upsert_pod(view(topologySpreadConstraints=[hard]))
    model.take()
    told = model.explanation("default/pod:a")
    assert told is not None
    assert told.code == "Misconfigured"
    assert f"spec.topologySpreadConstraints[0].{field}" in told.message


def test_preferences_about_other_pods() -> None:
    term = {
        "weight": 7,
        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}},
    }
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    found = needs(labels={"app": "x"}, affinity={"podAntiAffinity": wish, "podAffinity": wish})
    expected = (WeightedPodTerm(7, PodTerm((Expression("app", "In", ("x",)),), "zone")),)
    assert found.preferred_affinity == found.preferred_anti_affinity == expected
    assert found.labels == (("app", "x"),)


def test_annotations_about_nodes() -> None:
    def annotated(**annotations: str) -> Needs:
        marked = pod("a", annotations={f"volcano.sh/{name}": text for name, text in annotations.items()})
        return translate(marked)["default/a"].needs

    assert annotated(**{"revocable-zone": "*"}).revocable_zone == "*"
    assert annotated(**{"revocable-zone": "rz1", "preemptable": "true"}).revocable_zone == ""
    assert [annotated(preemptable=text).revocable_zone for text in ("true", "1", "no")] == ["*", "*", ""]
    strategy = {"resource-strategy-scoring-type": "MostAllocated"}
    weights = {"resource-strategy-weight": '{"nvidia.com/gpu": 2, "cpu": 1}'}
    assert annotated(**strategy, **weights).scoring == Scoring(
        "MostAllocated", (("cpu", 1), ("nvidia.com/gpu", 2))
    )
    assert annotated(**strategy).scoring == Scoring("MostAllocated")
    assert annotated(**strategy, **{"resource-strategy-weight": "[1]"}).scoring == Scoring("MostAllocated")
    assert annotated(**weights).scoring is None


def test_queue_determines_the_node_groups_of_its_pods() -> None:
    def queue_of(name: str, parent: str = "", affinity: Any = None, limits: str = "") -> views.QueueObject:
        notes = {"volcano.sh/nodegroup-resource-limits": limits} if limits else {}
        spec = {"parent": parent, **({"affinity": affinity} if affinity else {})}
        obj = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
        return views.decode_queue(views.encode(obj))

    near = {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}
    far = {"preferredDuringSchedulingIgnoredDuringExecution": ["b"]}
    names = {"nodeGroupAffinity": near, "nodeGroupAntiAffinity": far}
    model = ClusterModel(["windlass"])
    model.objects.upsert_queue(queue_of("top", affinity=names))
    model.objects.upsert_queue(queue_of("leaf", "top", limits='{"a": {"cpu": "2", "nvidia.com/gpu": 1}}'))
    model.objects.upsert_pod(view(annotations={"scheduling.volcano.sh/queue-name": "leaf"}))

    def groups() -> NodeGroups | None:
        (task,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
        return task.needs.node_groups

    limits = (("a", (("cpu", 2000), ("nvidia.com/gpu", 1000))),)
    assert groups() == NodeGroups(
        required=("a",), anti_preferred=("b",), inherited=True, queue="leaf", limits=limits
    )
    model.objects.upsert_queue(queue_of("leaf", "top", affinity={"nodeGroupAffinity": near}, limits="[]"))
    assert groups() == NodeGroups(required=("a",), queue="leaf", limits_unreadable=True)
    model.objects.upsert_queue(queue_of("top"))
    model.objects.upsert_queue(queue_of("leaf", "top"))
    assert groups() is None
