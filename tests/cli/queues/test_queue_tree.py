"""``windlass queue tree``: two APIs side by side, why shares are what they are, who lends to whom."""

from __future__ import annotations

import json

import example_cluster
import pytest
from fakecluster import FakeClient, FakeCluster

from windlass.api import annotations
from windlass.api.errors import not_found
from windlass.api.resources import KAI_QUEUES, NODES, PODS, QUEUES

GPU = "nvidia.com/gpu"


def share(fair: int, held: int, why: str, asked: int | None = None) -> dict[str, str]:
    """The annotation that the scheduler writes."""
    amounts = {"fairShare": fair, "allocated": held, "requested": held if asked is None else asked}
    record = {which: {GPU: str(n)} if n else {} for which, n in amounts.items()}
    return {annotations.QUEUE_SHARE: json.dumps({**record, "why": {GPU: why}})}


def kai_queue(name: str, quota: int, **rest) -> dict:
    any_amount = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    gpu = {"quota": quota, "limit": -1, "overQuotaWeight": 2}
    spec = {"resources": {"gpu": gpu, "cpu": any_amount, "memory": any_amount}, **rest.pop("spec", {})}
    return {"metadata": {"name": name, **rest}, "spec": spec}


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


@pytest.fixture
def told(cluster):
    """The scheduler has said what the queues' shares are."""
    for name, record in (
        ("root", share(12, 3, "12: what the queues of the other API leave")),
        ("default", share(3, 3, "3: 3 of the surplus by weight 1 of 4, all that it requests")),
        ("research", share(8, 0, "8: 4 deserved + 4 of the surplus by weight 3 of 4, its limit is 8", 20)),
    ):
        cluster.objects[(QUEUES, "", name)]["metadata"]["annotations"] = record
    cluster.add(
        KAI_QUEUES, kai_queue("org", -1, annotations=share(6, 6, "6: 6 deserved, all that it requests"))
    )
    below = {"spec": {"parentQueue": "org", "priority": 7}}
    cluster.add(
        KAI_QUEUES, kai_queue("a", 2, annotations=share(5, 6, "5: 2 deserved + 3 of the surplus"), **below)
    )
    cluster.add(KAI_QUEUES, kai_queue("b", 4, **below))
    return cluster


def test_both_apis_stand_side_by_side(windlass, told):
    lines = windlass("queue", "tree").out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[1 : lines.index("")]}
    # QUEUE STATE GPUS WAITING FAIR-SHARE GUARANTEE DESERVED LIMIT BORROWED WEIGHT PRIORITY RUNNING PENDING
    assert rows["kai/org"][2:11] == ["6", "0", "6", "-", "any", "-", "-", "2", "100"]
    assert rows["kai/a"][2:11] == ["6", "0", "5", "-", "2", "-", "4", "2", "7"]
    assert rows["kai/b"][2:11] == ["0", "0", "-", "-", "4", "-", "-", "2", "7"]
    assert rows["volcano/research"][2:11] == ["0", "20", "8", "2", "4", "8", "-", "3", "10"]
    assert next(line for line in lines if line.startswith("  kai/")).startswith("  kai/a ")


def test_shares_are_explained_and_loans_told(windlass, told):
    out = windlass("queue", "tree").out
    assert "\nFair shares of nvidia.com/gpu:\n" in out
    assert "  volcano/research  8: 4 deserved + 4 of the surplus by weight 3 of 4, its limit is 8\n" in out
    assert "                    borrows 4: 4 of kai/b\n" in out
    assert out.endswith(
        "\nBoth APIs share the cluster: the fair share of nvidia.com/gpu is 6 for all root queues of KAI"
        " together, and 12 for Volcano's root.\n"
    )
    assert "Fair shares of cpu" not in windlass("queue", "tree", "--resource", "cpu").out


def test_structured_output_has_everything(windlass, told):
    items = {q["name"]: q for q in json.loads(windlass("queue", "tree", "-o", "json").out)["items"]}
    assert items["kai/a"]["borrowed"] == {GPU: {"kai/b": "4"}}
    assert items["kai/a"]["fair_share"] == {GPU: "5"}
    assert items["kai/a"]["parent"] == "kai/org"
    assert items["volcano/research"]["why"][GPU].startswith("8: 4 deserved")
    names = windlass("queue", "ls", "-o", "name").out.split()
    assert "queue.scheduling.run.ai/a" in names
    assert "queue.scheduling.volcano.sh/research" in names


def test_with_kai_alone_names_are_plain(windlass, cluster):
    for name in ("research", "night"):
        del cluster.objects[(QUEUES, "", name)]
    for key in [key for key in cluster.objects if key[0].plural in ("jobs", "pods", "podgroups")]:
        del cluster.objects[key]
    cluster.add(KAI_QUEUES, kai_queue("org", 3))
    out = windlass("queue", "tree").out
    assert [line.split()[0] for line in out.splitlines()] == ["QUEUE", "org"]


def test_a_server_without_kai_is_no_error(windlass, cluster, monkeypatch):
    plain = FakeClient.list

    def refuse(self, resource, *rest, **more):
        if resource is KAI_QUEUES:
            raise not_found(resource, "")
        return plain(self, resource, *rest, **more)

    monkeypatch.setattr(FakeClient, "list", refuse)
    done = windlass("queue", "tree")
    assert done.code == 0
    assert "root" in done.out


def test_what_the_scheduler_wrote_may_be_unreadable(windlass, cluster):
    cluster.objects[(QUEUES, "", "research")]["metadata"]["annotations"] = {annotations.QUEUE_SHARE: "{no"}
    assert windlass("queue", "tree").code == 0


def test_queues_of_one_name_count_their_own_jobs(windlass, told):
    told.add(KAI_QUEUES, kai_queue("research", 2, annotations=share(2, 2, "2: 2 deserved")))
    before = json.loads(windlass("queue", "ls", "-o", "json").out)["items"]
    spec = {
        "schedulerName": "kai-scheduler",
        "nodeName": "n1",
        "containers": [{"name": "c", "resources": {"limits": {GPU: "2"}}}],
    }
    metadata = {"name": "lone", "namespace": "default", "labels": {annotations.QUEUE_NAME_KAI: "research"}}
    told.add(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    after = json.loads(windlass("queue", "ls", "-o", "json").out)["items"]
    changed = {q["name"]: q["running"] for q in after if q not in before}
    assert changed == {"kai/research": 1}


def test_the_shares_shown_are_of_the_accelerators_that_most_are_due_of(windlass, cluster):
    amounts = {"amd.com/gpu": "2", GPU: "20"}
    record = {
        "fairShare": amounts,
        "allocated": amounts,
        "requested": amounts,
        "why": dict.fromkeys(amounts, "told"),
    }
    cluster.objects[(QUEUES, "", "root")]["metadata"]["annotations"] = {
        annotations.QUEUE_SHARE: json.dumps(record)
    }
    out = windlass("queue", "tree").out
    assert f"Fair shares of {GPU}:" in out
    assert "amd.com/gpu" not in out


def test_parts_of_cards_count_as_parts_in_queues(windlass, cluster):
    before = {item["name"]: item for item in json.loads(windlass("queue", "tree", "-o", "json").out)["items"]}
    qgpu = {"tke.cloud.tencent.com/qgpu-core": "30"}
    for name, limits, notes in (("cores", qgpu, {}), ("half", {}, {"gpu-fraction": "0.5"})):
        made = {
            "metadata": {"name": name, "namespace": "default", "annotations": notes},
            "spec": {"nodeName": "box", "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": "Running"},
        }
        cluster.add(PODS, made)
    after = {item["name"]: item for item in json.loads(windlass("queue", "tree", "-o", "json").out)["items"]}
    held = [float(found["default"]["allocated"][GPU]) for found in (before, after)]
    assert held[1] - held[0] == pytest.approx(0.8)
    assert not [name for name in after["default"]["allocated"] if "qgpu" in name]
    assert after["default"]["waiting"] == before["default"]["waiting"]


def test_what_no_queue_or_no_parent_holds_is_told(windlass, cluster) -> None:
    """Nobody keeps a cluster's administrator from deleting a queue in which work runs."""
    assert windlass("queue", "tree").err == ""
    for name, parent in (("team", "gone"), ("up", "down"), ("down", "up"), ("leaf", "down")):
        cluster.add(QUEUES, {"metadata": {"name": name}, "spec": {"parent": parent}})
    del cluster.objects[(QUEUES, "", "research")]
    for word in ("tree", "ls"):
        told = windlass("queue", word).err
        assert sorted(told.splitlines()) == [
            "Warning: queue down: its parent up is also its descendant",
            "Warning: queue night: its parent research does not exist, so that no new job starts in it: "
            "windlass queue create research",
            "Warning: queue research does not exist, but jobs use it (waiting 2 jobs): windlass queue create research",
            "Warning: queue team: its parent gone does not exist, so that no new job starts in it: "
            "windlass queue create gone",
            "Warning: queue up: its parent down is also its descendant",
        ]
    assert json.loads(windlass("queue", "ls", "-o", "json").out)["items"]


def told_by_doctor(windlass) -> list[tuple[str, str, str]]:
    checks = json.loads(windlass("doctor", "-o", "json").out)["checks"]
    return [
        (check["level"], check["found"], check["remedy"]) for check in checks if check["check"] == "queues"
    ]


def test_the_doctor_tells_what_is_wrong_with_queues(windlass, cluster) -> None:
    assert told_by_doctor(windlass) == [
        ("ok", "all queues in use exist, and the nodes have what is guaranteed", "")
    ]
    del cluster.objects[(QUEUES, "", "research")]
    assert told_by_doctor(windlass) == [
        (
            "warn",
            "queue night: its parent research does not exist, so that no new job starts in it",
            "windlass queue create research",
        ),
        (
            "warn",
            "queue research does not exist, but jobs use it (waiting 2 jobs)",
            "windlass queue create research",
        ),
    ]
    cluster.hidden = {QUEUES}
    assert told_by_doctor(windlass) == []


def guaranteed(cluster, name: str, parent: str, gpus: str, **more: str) -> None:
    spec = {"parent": parent, "guarantee": {"resource": {GPU: gpus, **more}}}
    cluster.objects.pop((QUEUES, "", name), None)
    cluster.add(QUEUES, {"metadata": {"name": name}, "spec": spec})


def test_what_is_guaranteed_and_is_not_there_is_told(windlass, cluster) -> None:
    """All nodes have 12 GPUs; research is guaranteed 2."""
    guaranteed(cluster, "a", "root", "10")
    assert windlass("queue", "ls").err == ""
    guaranteed(cluster, "a", "root", "11", **{f"{GPU}@H100": "99"})
    words = (
        "guarantees of queues add up to 13 GPUs (a 11, research 2), but all nodes have 12 GPUs; the unused part of a "
        "guarantee stays reserved"
    )
    assert windlass("queue", "ls").err == f"Warning: {words}: windlass queue set a guarantee.{GPU}=AMOUNT\n"
    assert told_by_doctor(windlass) == [("warn", words, f"windlass queue set a guarantee.{GPU}=AMOUNT")]
    cluster.hidden = {NODES}
    assert windlass("queue", "ls").err == ""


def test_what_is_guaranteed_below_a_queue_is_of_its_own_guarantee(windlass, cluster) -> None:
    guaranteed(cluster, "a", "root", "10")
    guaranteed(cluster, "b", "a", "6")
    guaranteed(cluster, "c", "a", "4")
    assert windlass("queue", "ls").err == ""
    guaranteed(cluster, "c", "a", "7")  # b and c together more than a
    assert "guarantees of queues add up to 15 GPUs (c 7, b 6, research 2)" in windlass("queue", "ls").err
    guaranteed(cluster, "root", "", "1000", **{"memory": "1Ti"})
    told = windlass("queue", "ls").err
    assert "guarantees of queues add up to 1000 GPUs (root 1000)" in told
    assert "guarantees of queues add up to 1Ti memory (root 1Ti)" in told


def test_who_guarantees_more_than_there_is_is_told_at_once(windlass, cluster) -> None:
    guaranteed(cluster, "a", "root", "10")
    made = windlass("queue", "create", "b", f"guarantee.{GPU}=1")
    assert (made.code, made.out) == (0, "queue/b created\n")
    assert (
        "guarantees of queues add up to 13 GPUs (a 10, research 2, b 1), but all nodes have 12 GPUs"
        in made.err
    )
    assert windlass("queue", "set", "b", "weight=2").err == ""
    assert windlass("queue", "set", "a", f"guarantee.{GPU}=9").err == ""


def test_slices_of_cards_are_no_cards(windlass, cluster):
    """51 cards and three slices of one more are not 54 GPUs."""
    amounts = {GPU: "51", "nvidia.com/mig-1g.5gb": "3", "nvidia.com/mig-2g.10gb": "1"}
    record = {"fairShare": amounts, "allocated": amounts, "requested": amounts, "why": {GPU: "51: told"}}
    told = {annotations.QUEUE_SHARE: json.dumps(record)}
    cluster.objects[(QUEUES, "", "root")]["metadata"]["annotations"] = told
    lines = windlass("queue", "tree").out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[1 : lines.index("")]}
    assert rows["root"][4] == "51+3×1g.5gb+2g.10gb"
    assert "  root  51: told" in lines
