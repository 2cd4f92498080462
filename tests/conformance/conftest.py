"""Every test here runs against the embedded server and against a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from clusters import Cluster, eventually
from server_pair import Pair

if TYPE_CHECKING:
    from embeddedkube import EmbeddedKube
    from realkube import RealKube


@pytest.fixture(scope="module")
def both(real_kube: RealKube, embedded_kube: EmbeddedKube) -> Iterator[Pair]:
    """(embedded, real): for tests that hold one answer against the other."""
    pair = Cluster.of_embedded(embedded_kube), Cluster.of_real(real_kube)
    yield pair
    for cluster in pair:
        cluster.close()


@pytest.fixture
def api(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def ns(api: Cluster) -> str:
    """The name of a fresh namespace."""
    return api.new_namespace()


@pytest.fixture
def pods(api: Cluster, ns: str) -> str:
    """The path of the pods in a fresh namespace. There is a node ``n1`` for those that need one."""
    answer = api.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert answer.status in (201, 409), answer.text
    return f"/api/v1/namespaces/{ns}/pods"


@pytest.fixture
def maps(api: Cluster, ns: str) -> str:
    """The path of the config maps in a fresh namespace, after a real cluster has put its own into it."""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    if not api.embedded:
        eventually(lambda: api.get(f"{path}/kube-root-ca.crt").status == 200)
    return path
