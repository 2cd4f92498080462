"""``windlass queue`` and ``windlass node``: settings and life of queues; nodes added, cordoned and drained."""

from __future__ import annotations

import copy
import json

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api import errors
from windlass.api.queues.opening import CLOSED_BY_PARENT
from windlass.api.resources import COMMANDS as ORDERS
from windlass.api.resources import NODES, PODS, QUEUES


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def test_queue_create_and_set(windlass, cluster):
    done = windlass("queue", "create", "team", "weight=3", "capability.nvidia.com/gpu=8", "guarantee.cpu=2")
    assert done.out == "queue/team created\n"
    spec = cluster.objects[(QUEUES, "", "team")]["spec"]
    assert spec == {
        "weight": 3,
        "reclaimable": True,
        "capability": {"nvidia.com/gpu": "8"},
        "guarantee": {"resource": {"cpu": "2"}},
    }
    windlass("queue", "set", "team", "weight=5", "capability.nvidia.com/gpu=")
    assert spec != cluster.objects[(QUEUES, "", "team")]["spec"]
    assert cluster.objects[(QUEUES, "", "team")]["spec"]["weight"] == 5
    assert cluster.objects[(QUEUES, "", "team")]["spec"]["capability"] == {}


def test_limit_that_means_none_is_shown_as_none(windlass):
    windlass("queue", "create", "open")
    before = windlass("queue", "ls").out
    windlass("queue", "set", "open", "capability.nvidia.com/gpu=8E", "capability.cpu=9223372036854775807")
    assert windlass("queue", "ls").out == before


def test_a_mistyped_setting_of_a_queue_is_answered_with_the_nearest(windlass):
    assert "try: did you mean weight?\n" in windlass("queue", "create", "team", "wieght=3").err
    assert (
        "try: did you mean capability.RESOURCE?\n"
        in windlass("queue", "set", "research", "capablity.cpu=3").err
    )


@pytest.mark.parametrize("name", ["capability", "deserved", "guarantee"])
def test_an_amount_below_nothing_is_refused(windlass, cluster, name):
    before = copy.deepcopy(cluster.objects[(QUEUES, "", "research")])
    said = windlass("queue", "set", "research", f"{name}.nvidia.com/gpu=-1")
    assert said.code == 2
    assert f"the amount must be at least 0; {name}.nvidia.com/gpu= removes it" in said.err
    assert cluster.objects[(QUEUES, "", "research")] == before


def test_queues_are_closed_by_a_command(windlass, cluster):
    def obey(target: FakeCluster, resource, order) -> None:
        if resource is ORDERS:
            target.objects[(QUEUES, "", order["target"]["name"])]["status"]["state"] = "Closing"

    cluster.on_create.append(obey)
    assert windlass("queue", "set", "research", "state=closed").code == 0
    (order,) = [obj for (kind, *_), obj in cluster.objects.items() if kind is ORDERS]
    assert order["action"] == "CloseQueue"


@pytest.fixture
def tree(cluster):
    """Queues ``top`` > ``middle`` > ``leaf``, with the state of each and the mark of a close with the parent."""

    def make(**states: str) -> FakeCluster:
        parents = {"top": "root", "middle": "top", "leaf": "middle"}
        for name, parent in parents.items():
            state, _, mark = states.get(name, "Open").partition("+")
            metadata = {"name": name, "uid": name, "annotations": {CLOSED_BY_PARENT: mark}}
            queue = {"metadata": metadata, "spec": {"parent": parent}, "status": {"state": state}}
            cluster.add(QUEUES, queue)

        def obey(target: FakeCluster, resource, order) -> None:
            """As the queue controller: a queue opens if its parent is open, and opens those below it."""
            if resource is not ORDERS:
                return
            named = {key[2]: obj for key, obj in target.objects.items() if key[0] is QUEUES}
            opened = order["target"]["name"]
            if named.get(parents[opened], {}).get("status", {}).get("state", "Open") != "Open":
                return
            named[opened]["status"]["state"] = "Open"
            for below in ("middle", "leaf"):
                marked = named[below]["metadata"]["annotations"][CLOSED_BY_PARENT] == "true"
                if marked and named[parents[below]]["status"]["state"] == "Open":
                    named[below]["status"]["state"] = "Open"

        cluster.on_create.append(obey)
        return cluster

    return make


@pytest.mark.parametrize(
    ("states", "commands"),
    [
        ({"leaf": "Closed"}, ["leaf"]),
        ({"top": "Closed", "middle": "Closed+true", "leaf": "Closed+true"}, ["top"]),
        ({"top": "Closing", "middle": "Closed+true", "leaf": "Closed"}, ["top", "leaf"]),
        ({"middle": "Closed", "leaf": "Closed+true"}, ["middle"]),
        ({"top": "Closed", "middle": "Closed", "leaf": "Closed"}, ["top", "middle", "leaf"]),
    ],
)
def test_remedy_for_a_closed_queue_opens_it(windlass, tree, states, commands):
    cluster = tree(**states)
    refused = windlass("submit", "-q", "leaf", "--", "true")
    remedy = " && ".join(f"windlass queue set {name} state=Open" for name in commands)
    assert next(line for line in refused.err.splitlines() if line.startswith("try:")) == f"try: {remedy}"
    told = windlass("queue", "set", "leaf", "state=Open")
    assert told.code == 0 or f"try: {remedy}\n" in told.err
    for line in remedy.split(" && "):
        assert windlass(*line.split()[1:]).code == 0
    assert cluster.objects[(QUEUES, "", "leaf")]["status"]["state"] == "Open"
    assert windlass("submit", "-q", "leaf", "--", "true").code == 0


def test_root_queue_cannot_be_closed(windlass):
    assert "the root queue cannot be closed" in windlass("queue", "set", "root", "state=Closed").err


def test_limit_above_a_queue_is_known_before_a_job_is_submitted(windlass, tree):
    cluster = tree()
    for name, limit in (("top", "3"), ("leaf", "8")):
        cluster.objects[(QUEUES, "", name)]["spec"]["capability"] = {"cpu": limit, "memory": "1Ti"}
    refused = windlass("submit", "-q", "leaf", "--cpus", "2", "--nodes", "2", "--", "true")
    assert refused.code == 6
    assert 'error[WL-QUEUE-413]: the job exceeds the limit of queue "top"' in refused.err
    assert 'why: cpu: the job needs 4, the capability of queue "top" above it is 3' in refused.err
    assert "try: windlass queue set top capability.cpu=4\n" in refused.err
    refused = windlass("submit", "-q", "leaf", "--cpus", "5", "--nodes", "2", "--", "true")
    remedy = "windlass queue set top capability.cpu=10 && windlass queue set leaf capability.cpu=10"
    assert f"try: {remedy}\n" in refused.err


def test_queue_numbers(windlass):
    items = {q["name"]: q for q in json.loads(windlass("queue", "ls", "-o", "json").out)["items"]}
    assert items["root"]["allocated"] == {"nvidia.com/gpu": "3"}
    assert items["research"]["waiting"] == {"nvidia.com/gpu": "20"}
    assert items["research"]["guarantee"] == {"nvidia.com/gpu": "2"}
    assert (items["root"]["running"], items["root"]["pending"]) == (2, 2)


def test_add_simulated_nodes(windlass, cluster):
    done = windlass(
        *("node", "add-simulated", "--count", "2", "--gpus", "8", "--product", "NVIDIA-H100-80GB-HBM3"),
        *("--label", "zone=a", "--taint", "d=x:NoSchedule", "--resource", "rdma/roce_v2=1"),
    )
    assert done.out == "added 2 simulated nodes: sim-0 … sim-1\n"
    made = cluster.objects[(NODES, "", "sim-1")]
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert made["status"]["allocatable"]["rdma/roce_v2"] == "1"
    assert made["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert made["metadata"]["labels"]["zone"] == "a"
    assert made["spec"]["taints"] == [{"key": "d", "value": "x", "effect": "NoSchedule"}]
    assert windlass("node", "add-simulated", "--count", "2").out.endswith("sim-3 … sim-4\n")
    # Who plays the nodes may write before their amounts are there: nothing is replaced by what was read before.
    assert not [verb for verb, plural, _ in cluster.requests if verb == "UPDATE" and plural == "nodes"]


def test_cordon_and_uncordon(windlass, cluster):
    assert windlass("node", "cordon", "box").out == "node/box cordoned\n"
    assert cluster.objects[(NODES, "", "box")]["spec"]["unschedulable"] is True
    assert windlass("node", "cordon", "box").out == "node/box already cordoned\n"
    assert "Ready,Cordoned" in windlass("node", "ls").out
    assert windlass("node", "uncordon", "box").out == "node/box uncordoned\n"
    assert windlass("node", "cordon", "bx").err.splitlines()[-2:] == [
        "try: did you mean box?",
        "try: windlass node ls",
    ]


def test_drain_evicts_and_waits(windlass, cluster):
    done = windlass("node", "drain", "box", "-y")
    assert done.code == 0
    assert "node/box drained: 2 pods evicted\n" in done.out
    assert (PODS, "default", "train-main-0") not in cluster.objects
    assert (PODS, "default", "hello-main-0") in cluster.objects


def test_drain_does_not_end_what_nobody_makes_anew_unasked(windlass, cluster):
    spec = {"nodeName": "box", "containers": [{"name": "m", "image": "x"}]}
    metadata = {"name": "alone", "namespace": "default", "uid": "alone"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.objects[(PODS, "default", "alone")] = {**pod, "status": {"phase": "Running"}}
    done = windlass("node", "drain", "box")
    assert (done.code, done.out) == (5, "")
    assert "WL-NODE-409" in done.err
    assert "default/alone" in done.err
    assert done.err.splitlines()[-1] == "try: windlass node drain box --yes"
    assert (PODS, "default", "alone") in cluster.objects
    assert not cluster.objects[(NODES, "", "box")]["spec"].get("unschedulable")
    assert windlass("node", "drain", "box", "--yes").code == 0
    assert (PODS, "default", "alone") not in cluster.objects


def test_drain_leaves_what_belongs_to_the_node(windlass, cluster):
    for kind, name in (("DaemonSet", "device-plugin"), ("Node", "etcd-box")):
        owner = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
        spec = {"nodeName": "box", "containers": [{"name": "m", "image": "x"}]}
        metadata = {"name": name, "namespace": "kube-system", "uid": name, "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        cluster.objects[(PODS, "kube-system", name)] = {**pod, "status": {"phase": "Running"}}
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert (done.code, done.err) == (0, "")
    assert "node/box drained: 2 pods evicted\n" in done.out
    assert {(PODS, "kube-system", name) for name in ("device-plugin", "etcd-box")} <= cluster.objects.keys()


def test_drain_cordons_all_nodes_before_a_pod_goes(windlass, cluster):
    other = json.loads(json.dumps(cluster.objects[(NODES, "", "box")]))
    other["metadata"] |= {"name": "box2", "uid": "box2"}
    cluster.objects[(NODES, "", "box2")] = other
    done = windlass("node", "drain", "box", "box2", "-y")
    assert done.out.splitlines()[:2] == ["node/box cordoned", "node/box2 cordoned"]
    assert done.out.splitlines()[-2:] == [
        "node/box drained: 2 pods evicted",
        "node/box2 drained: 0 pods evicted",
    ]


def test_drain_does_nothing_where_its_time_is_no_time(windlass, cluster):
    done = windlass("node", "drain", "box", "-y", "--timeout", "soon")
    assert (done.code, done.out) == (2, "")
    assert not cluster.objects[(NODES, "", "box")]["spec"].get("unschedulable")


def test_drain_tells_what_holds_out(windlass, cluster):
    cluster.refuse["train-main-0"] = errors.failure(429, "TooManyRequests", "the budget allows no disruption")
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert done.code == 7
    assert "error[WL-NODE-504]" in done.err
    assert "why: default/train-main-0: the budget allows no disruption" in done.err
    assert (
        done.out.count("pod default/train-main-0 is not evicted yet: the budget allows no disruption\n") == 1
    )


def test_drain_tells_which_budget_holds_out(windlass, cluster):
    causes = [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods"}]
    cluster.refuse["train-main-0"] = errors.failure(429, "TooManyRequests", "no", {"causes": causes})
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert "why: default/train-main-0: The disruption budget b needs 2 healthy pods" in done.err


@pytest.mark.parametrize("code", [404, 503])
def test_drain_takes_no_word_of_a_proxy_for_an_eviction(windlass, cluster, code):
    cluster.refuse["train-main-0"] = errors.failure(code, "", "the proxy knows no way")
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert done.code == 7
    assert "why: default/train-main-0: the proxy knows no way" in done.err
    assert "evicting pod default/train-main-0" not in done.out


@pytest.mark.parametrize(
    "gone",
    [
        errors.failure(404, "NotFound", "not found", {"name": "train-main-0", "kind": "pods"}),
        errors.failure(409, "Conflict", "the UID in the precondition (a) does not match that in record (b)"),
    ],
)
def test_drain_does_not_mind_a_pod_that_is_gone(windlass, cluster, gone):
    def vanish():
        del cluster.objects[(PODS, "default", "train-main-0")]
        return gone

    cluster.refuse["train-main-0"] = vanish
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert (done.code, done.err) == (0, "")
