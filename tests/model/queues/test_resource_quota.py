"""ResourceQuotas as the engine lets groups in by."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.api import views
from windlass.engine.deltas import NamespaceQuotaRemoved, NamespaceQuotaUpserted
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.queues.resource_quota import quota_of
from windlass.spi.objects import NamespaceQuota


def view(hard: dict[str, str], **spec: Any) -> views.ResourceQuota:
    obj = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "ns", "uid": "u"},
        "spec": {"hard": hard, **spec},
    }
    return views.decode_resource_quota(msgspec.json.encode(obj))


def test_the_requests_of_pods_are_read() -> None:
    hard = {
        "cpu": "4",
        "requests.cpu": "2",
        "requests.memory": "1Gi",
        "requests.nvidia.com/gpu": "3",
        "pods": "7",
        "count/pods": "6",
        "limits.cpu": "1",
        "requests.storage": "5Gi",
        "count/jobs.batch": "1",
    }
    expected = {"cpu": 2000, "memory": 1 << 30, "nvidia.com/gpu": 3000, "pods": 6}
    assert quota_of(view(hard)) == NamespaceQuota("ns/q", expected)


@pytest.mark.parametrize(
    "quota",
    [
        view({"cpu": "1"}, scopes=["BestEffort"]),
        view(
            {"cpu": "1"},
            scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]},
        ),
        view({"services": "1"}),
        view({}),
    ],
)
def test_quotas_that_do_not_cover_all_pods(quota: views.ResourceQuota) -> None:
    assert quota_of(quota) is None


def test_changes_reach_the_engine() -> None:
    model = ClusterModel(("volcano",))
    quota = view({"pods": "1"})
    model.objects.upsert_quota(quota)
    told = NamespaceQuotaUpserted(NamespaceQuota("ns/q", {"pods": 1}))
    assert told in model.take()
    assert told not in model.take()
    model.resend()
    assert told in model.take()
    model.objects.upsert_quota(view({"services": "1"}))
    assert NamespaceQuotaRemoved("ns/q") in model.take()
    model.objects.remove_quota(quota)
    assert NamespaceQuotaRemoved("ns/q") in model.take()
    model.objects.remove_quota(quota)
    assert not [delta for delta in model.take() if isinstance(delta, NamespaceQuotaRemoved)]
