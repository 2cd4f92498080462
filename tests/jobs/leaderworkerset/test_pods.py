"""Labels, affinity and variables of pods of LeaderWorkerSets."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api.fields import leaderworkerset
from windlass.jobs.leaderworkerset.pods import decorate, sub_group_index

Json = dict[str, Any]


def pod(name: str, size: int = 4, *, leader: bool = False, tpus: bool = False, **annotations: str) -> Json:
    labels = {leaderworkerset.NAME: "llm", leaderworkerset.REVISION: "abc"}
    found = {
        leaderworkerset.SIZE: str(size),
        **{leaderworkerset.PREFIX + key: text for key, text in annotations.items()},
    }
    if leader:
        labels[leaderworkerset.WORKER_INDEX] = "0"
    else:
        labels[leaderworkerset.GROUP_INDEX] = "1"
        found[leaderworkerset.LEADER_NAME] = "llm-1"
    container: Json = {"name": "c", "env": [{"name": "A", "value": "$(LWS_WORKER_INDEX)"}]}
    if tpus:
        container["resources"] = {"limits": {"google.com/tpu": "4"}}
    spec = {"subdomain": "llm", "containers": [container]}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": found}
    return {"metadata": metadata, "spec": spec}


def env(found: Json) -> Json:
    return {one["name"]: one.get("value") for one in found["spec"]["containers"][0]["env"]}


def test_leaders_and_workers_know_their_place() -> None:
    leader, worker = pod("llm-1", leader=True), pod("llm-1-3")
    for one in (leader, worker):
        decorate(one)
        assert env(one)["LWS_LEADER_ADDRESS"] == "llm-1.llm.ns"
        assert env(one)["LWS_GROUP_SIZE"] == "4"
        assert one["metadata"]["labels"][leaderworkerset.GROUP_INDEX] == "1"
        assert one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "llm-1-abc"
    assert (env(leader)["LWS_WORKER_INDEX"], env(worker)["LWS_WORKER_INDEX"]) == ("0", "3")
    assert len({one["metadata"]["labels"][leaderworkerset.GROUP_KEY] for one in (leader, worker)}) == 1
    assert next(iter(worker["spec"]["containers"][0]["env"]))["name"] == "LWS_LEADER_ADDRESS"


def test_other_pods_stay_as_they_are_and_pods_without_index_are_refused() -> None:
    plain = {"metadata": {"name": "x", "labels": {leaderworkerset.NAME: "llm"}}, "spec": {"containers": []}}
    decorate(plain)
    assert plain["metadata"] == {"name": "x", "labels": {leaderworkerset.NAME: "llm"}}
    with pytest.raises(ValueError, match="no index"):
        decorate(pod("llm-x", leader=True))


def test_a_group_may_have_a_subdomain_and_a_domain_of_its_own() -> None:
    leader = pod("llm-1", leader=True, subdomainPolicy="UniquePerReplica", **{"exclusive-topology": "rack"})
    decorate(leader)
    assert env(leader)["LWS_LEADER_ADDRESS"] == "llm-1.llm-1.ns"
    decorate(leader)  # a second time changes nothing
    for field in ("podAffinity", "podAntiAffinity"):
        (term,) = leader["spec"]["affinity"][field]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "rack"


def test_sub_groups_are_equal_and_an_extra_leader_is_in_the_first() -> None:
    assert [sub_group_index(5, 2, index) for index in range(5)] == [0, 0, 0, 1, 1]
    assert [sub_group_index(4, 2, index) for index in range(4)] == [0, 0, 1, 1]
    excluded = {"subgroup-size": "2", "subgroup-policy-type": "LeaderExcluded"}
    leader, worker = pod("llm-1", 5, leader=True, **excluded), pod("llm-1-3", 5, **excluded)
    for one in (leader, worker):
        decorate(one)
    assert leaderworkerset.SUBGROUP_INDEX not in leader["metadata"]["labels"]
    assert worker["metadata"]["labels"][leaderworkerset.SUBGROUP_INDEX] == "1"


def test_tpu_workers_have_the_names_of_all_members() -> None:
    leader = pod("llm-1", 3, leader=True, tpus=True)
    decorate(leader)
    assert env(leader)["TPU_WORKER_HOSTNAMES"] == "llm-1.llm,llm-1-1.llm,llm-1-2.llm"
    assert env(leader)["TPU_WORKER_ID"] == "0"
    worker = pod("llm-1-2", 3, tpus=True)
    decorate(worker)
    assert env(worker)["TPU_WORKER_HOSTNAMES"] == "llm-1-1.llm,llm-1-2.llm"
    assert (env(worker)["TPU_WORKER_ID"], env(worker)["TPU_NAME"]) == ("1", "llm-1-2")
    grouped = pod("llm-1-3", 4, tpus=True, **{"subgroup-size": "2", "leader-requests-tpus": "true"})
    decorate(grouped)
    assert env(grouped)["TPU_WORKER_HOSTNAMES"] == "llm-1-2.llm,llm-1-3.llm"
    assert env(grouped)["TPU_WORKER_ID"] == "1"
