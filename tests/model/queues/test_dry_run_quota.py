"""Pods of a dump that a ResourceQuota would not permit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import pod

from windlass.api.quantities import QuantityError
from windlass.model.queues.dry_run_quota import NamespaceQuotas


def quota(name: str = "q", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def at(minute: int) -> dict[str, str]:
    return {"creationTimestamp": f"2026-01-01T11:{minute:02}:00Z"}


def test_bound_pods_come_first_then_the_oldest() -> None:
    pods = [pod("young", metadata=at(3)), pod("old", metadata=at(1)), pod("bound", node="n", metadata=at(5))]
    counted = NamespaceQuotas([quota(hard={"pods": "2"})], pods)
    assert list(counted.withheld) == ["default/young"]
    told = counted.withheld["default/young"]
    assert told.message == (
        "pod default/young would not be created: ResourceQuota default/q has 0 pods left, and it needs 1"
    )


def test_other_namespaces_finished_pods_and_unread_names_do_not_count() -> None:
    pods = [pod("a", namespace="other"), pod("b", phase="Succeeded"), pod("c")]
    hard = {"pods": "1", "configmaps": "0", "limits.nvidia.com/gpu": "0"}
    assert NamespaceQuotas([quota(hard=hard)], pods).withheld == {}
    assert NamespaceQuotas([], pods).withheld == {}


def test_every_quota_must_permit_a_pod() -> None:
    quotas = [quota("wide", hard={"pods": "9"}), quota("narrow", hard={"requests.cpu": "500m", "pods": "3"})]
    pods = [
        pod("a", requests={"cpu": "300m"}),
        pod("b", requests={"cpu": "300m"}),
        pod("c", requests={"cpu": "200m"}),
    ]
    counted = NamespaceQuotas(quotas, pods)
    assert list(counted.withheld) == ["default/b"]
    (blocker,) = counted.withheld["default/b"].blockers
    assert (blocker.resource, blocker.needed, blocker.available) == ("requests.cpu", "300m", "200m")


def test_deleted_pod_releases_its_quota() -> None:
    counted = NamespaceQuotas([quota(hard={"pods": "1"})], [pod("a", node="n"), pod("b"), pod("c")])
    assert list(counted.withheld) == ["default/b", "default/c"]
    assert counted.retry() == []
    counted.release("default/b")
    counted.release("default/a")
    counted.release("default/a")
    assert counted.retry() == ["default/c"]
    assert counted.withheld == {}


def test_unreadable_amount_is_rejected() -> None:
    with pytest.raises(QuantityError):
        NamespaceQuotas([quota(hard={"pods": "many"})], [])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12), st.integers(0, 10))
def test_admitted_pending_pods_never_exceed_the_quota(pods: list[tuple[int, bool]], hard: int) -> None:
    objects = [
        pod(f"p{i}", requests={"nvidia.com/gpu": str(gpus)}, node="n" if bound else "")
        for i, (gpus, bound) in enumerate(pods)
    ]
    counted = NamespaceQuotas([quota(hard={"requests.nvidia.com/gpu": str(hard)})], objects)
    held = sum(gpus for gpus, bound in pods if bound)
    let = sum(
        gpus for i, (gpus, bound) in enumerate(pods) if not bound and f"default/p{i}" not in counted.withheld
    )
    assert held + let <= max(hard, held)
    for i, (gpus, _) in enumerate(pods):
        if f"default/p{i}" in counted.withheld:
            assert gpus > 0
