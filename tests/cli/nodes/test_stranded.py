"""``windlass node ls``: which idle GPUs nobody can use, and why; and which nodes hold more than they have."""

from __future__ import annotations

import json

import pytest
from example_cluster import container
from fakecluster import FakeCluster, node

from windlass.api.resources import NODES, PODS


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.add(NODES, node("busy", gpus=4, cpu="8"))
    found.add(NODES, node("free", gpus=4, cpu="64"))
    found.add(NODES, node("plain", gpus=0))
    return found


def run(cluster: FakeCluster, name: str, where: str, cpu: str, gpus: int = 0) -> None:
    work = container(gpus)
    work["resources"]["requests"]["cpu"] = cpu
    if not gpus:
        work["resources"] = {"requests": {"cpu": cpu}}
    cluster.add(
        PODS,
        {
            "metadata": {"name": name},
            "spec": {"nodeName": where, "containers": [work], "schedulerName": "windlass"},
            "status": {"phase": "Running"},
        },
    )


def test_cards_without_cpu_beside_them(cluster, windlass):
    run(cluster, "train", "busy", "4", gpus=1)
    run(cluster, "web", "busy", "3")
    done = windlass("node", "ls")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert lines["busy"].split()[2:6] == ["4", "3", "3", "cpu"]
    assert lines["free"].split()[2:5] == ["4", "4", "-"]
    assert lines["plain"].split()[2:5] == ["-", "-", "-"]
    assert done.err == "stranded: 3 of 7 idle GPUs (3 no CPU left on their nodes)\n"
    items = {item["name"]: item for item in json.loads(windlass("node", "ls", "-o", "json").out)["items"]}
    assert items["busy"]["stranded"] == {"gpus": 3.0, "reasons": {"cpu": 3.0}, "fragmentedGpus": 3.0}
    assert items["free"]["stranded"] == {"gpus": 0.0, "reasons": {}, "fragmentedGpus": 0.0}
    assert "stranded" not in items["plain"]


def test_who_holds_a_node_is_not_cut_off_in_a_pipe(cluster, windlass):
    names = [f"a-job-with-a-long-name-{number}" for number in range(4)]
    for name in names:
        run(cluster, name, "free", "100m", gpus=1)
    (line,) = [line for line in windlass("node", "ls").out.splitlines() if line.startswith("free ")]
    assert len(line) > 80
    assert all(f"{name}(1)" in line for name in names)


def test_nothing_is_stranded_where_there_is_room(cluster, windlass):
    run(cluster, "train", "busy", "1", gpus=1)
    done = windlass("node", "ls")
    assert done.err == ""


def test_nodes_without_accelerators_are_not_looked_at(windlass, cluster, monkeypatch):
    for name in ("busy", "free"):
        del cluster.objects[next(key for key in cluster.objects if key[2] == name)]
    monkeypatch.setattr("windlass.cli.nodes.stranded.stranded", lambda *_: pytest.fail("looked at"))
    assert windlass("node", "ls").code == 0


def test_a_node_that_came_back_with_fewer_cards_is_told(cluster, windlass):
    """Two of its four are gone, and the three pods that it ran are there still."""
    for number in range(3):
        run(cluster, f"train-{number}", "busy", "1", gpus=1)
    assert "Overcommitted" not in windlass("node", "ls").out
    status = cluster.objects[(NODES, "", "busy")]["status"]
    for which in ("allocatable", "capacity"):
        status[which]["nvidia.com/gpu"] = "2"
    done = windlass("node", "ls")
    (line,) = [line for line in done.out.splitlines() if line.startswith("busy ")]
    assert line.split()[1:4] == ["Ready,Overcommitted", "2", "0"]
    assert "pods on busy hold 1 GPU more than it has" in done.err
    assert "windlass node drain busy" in done.err
    items = {item["name"]: item for item in json.loads(windlass("node", "ls", "-o", "json").out)["items"]}
    assert items["busy"]["overcommitted"] == "1 GPU more than it has"
    assert "overcommitted" not in items["free"]


@pytest.mark.parametrize("gone", ["0", None])
def test_a_plug_in_that_is_away_is_told_where_the_kubelet_says_so(cluster, windlass, gone):
    """A kubelet lists none of what a plug-in has withdrawn; a resource that no kubelet ever listed is not judged."""
    run(cluster, "train", "busy", "1", gpus=1)
    status = cluster.objects[(NODES, "", "busy")]["status"]
    for which in ("allocatable", "capacity"):
        status[which].pop("nvidia.com/gpu", None)
        if gone is not None:
            status[which]["nvidia.com/gpu"] = gone
    assert ("hold 1 GPU more than it has" in windlass("node", "ls").err) is (gone is not None)


def test_a_card_of_kais_reservation_is_counted_once(cluster, windlass):
    run(cluster, "train", "busy", "1", gpus=4)
    cluster.add(
        PODS,
        {
            "metadata": {"name": "gpu-reservation", "namespace": "kai-resource-reservation"},
            "spec": {"nodeName": "busy", "containers": [container(1)]},
            "status": {"phase": "Running"},
        },
    )
    assert "more than it has" not in windlass("node", "ls").err
