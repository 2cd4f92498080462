"""``windlass defrag --plan``: what is stranded, and which moves would help. ``windlass sim pack``: its words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from example_cluster import container
from fakecluster import FakeCluster, node

from windlass.api.resources import (
    DEVICE_CLASSES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from windlass_lab.commands.pack_runs import run_one

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r", "controller": True}


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.add(NODES, node("busy", gpus=2, cpu="16"))
    found.add(NODES, node("free", gpus=1, cpu="24"))
    return found


def run(cluster: FakeCluster, name: str, where: str, cpu: str, gpus: int = 0, **given: bool) -> None:
    work = container(gpus)
    work["resources"]["requests"]["cpu"] = cpu
    if not gpus:
        work["resources"] = {"requests": {"cpu": cpu}}
    cluster.add(
        PODS,
        {
            "metadata": {
                "name": name,
                "annotations": {"windlass.dev/movable": "true"} if given.get("movable") else {},
                "ownerReferences": [] if given.get("orphan") else [OWNER],
            },
            "spec": {"nodeName": where, "containers": [work], "schedulerName": "windlass"},
            "status": {"phase": "Running"},
        },
    )


@pytest.mark.parametrize("movable", [True, False])
def test_a_pod_without_cards_that_agreed_makes_room_beside_idle_cards(cluster, windlass, movable):
    run(cluster, "web", "busy", "12", movable=movable)
    run(cluster, "train", "free", "8", gpus=1)
    found = json.loads(windlass("defrag", "--plan", "-o", "json").out)
    assert found["strandedGpus"] == {"cpu": 2.0}
    assert found["runningGpus"] == 1.0
    if not movable:
        assert found["gains"] == []
        found = json.loads(windlass("defrag", "--plan", "--everybody", "-o", "json").out)
    gain = found["gains"][0]
    assert gain["node"] == "busy"
    assert gain["moves"] == [{"pod": "default/web", "from": "busy", "to": "free", "gpus": 0.0}]
    assert found["movedGpus"] == 0
    assert found["gainedGpus"] == gain["gpus"] == 1.0


def test_a_pod_that_nobody_would_make_anew_stays(cluster, windlass):
    run(cluster, "web", "busy", "12", movable=True, orphan=True)
    run(cluster, "train", "free", "8", gpus=1)
    for more in ((), ("--everybody",)):
        assert json.loads(windlass("defrag", "--plan", "-o", "json", *more).out)["gains"] == []


@pytest.mark.parametrize("word", ["false", "true"])
def test_a_pod_that_is_not_safe_to_evict_stays(cluster, windlass, word):
    run(cluster, "web", "busy", "12", movable=True)
    notes = cluster.objects[(PODS, "default", "web")]["metadata"]["annotations"]
    notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] = word
    run(cluster, "train", "free", "8", gpus=1)
    for more in ((), ("--everybody",)):
        found = json.loads(windlass("defrag", "--plan", "-o", "json", *more).out)
        assert bool(found["gains"]) is (word == "true")
        assert ("pinned" in found["stayingPods"]) is (word == "false")
    if word == "false":
        assert "1 is not safe to evict (annotation cluster-autoscaler" in windlass("defrag", "--plan").out


def test_why_nobody_may_be_moved_is_told(cluster, windlass):
    run(cluster, "web", "busy", "12")
    run(cluster, "alone", "free", "2", movable=True, orphan=True)
    run(cluster, "of-node", "free", "1", movable=True)
    owner = {**OWNER, "kind": "DaemonSet"}
    cluster.objects[(PODS, "default", "of-node")]["metadata"]["ownerReferences"] = [owner]
    for name in ("rank-0", "rank-1"):
        run(cluster, name, "busy", "1", gpus=1)
        cluster.objects[(PODS, "default", name)]["metadata"]["annotations"] = {
            "scheduling.k8s.io/group-name": "g"
        }
    notes = {"windlass.dev/movable": "true"}
    cluster.add(POD_GROUPS, {"metadata": {"name": "g", "annotations": notes}, "spec": {"minMember": 2}})
    found = json.loads(windlass("defrag", "--plan", "-o", "json").out)
    assert found["stayingPods"] == {"gang": 2, "unasked": 1, "orphan": 1, "node": 1}
    assert (found["runningPods"], found["movablePods"], found["smallestMovableGpus"]) == (5, 0, None)
    text = windlass("defrag", "--plan").out
    assert "0 of 5 running pods may be moved" in text
    assert '  1 is not marked as movable (annotation windlass.dev/movable: "true" on' in text
    assert "  2 are in a group of several pods, which is not moved in part\n" in text
    assert text.endswith("`windlass defrag --plan --everybody`\n")


def test_pods_of_a_disruption_budget_that_is_spent_stay_and_others_go(cluster, windlass):
    run(cluster, "web", "busy", "6", movable=True)
    run(cluster, "batch", "busy", "6500m", movable=True)
    run(cluster, "train", "free", "8", gpus=1)
    cluster.objects[(PODS, "default", "web")]["metadata"]["labels"] = {"app": "web"}
    budget = {
        "metadata": {"name": "web", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    cluster.add(POD_DISRUPTION_BUDGETS, budget)
    found = json.loads(windlass("defrag", "--plan", "-o", "json").out)
    assert found["stayingPods"] == {"budget": 1, "unasked": 1}
    assert [move["pod"] for gain in found["gains"] for move in gain["moves"]] == ["default/batch"]
    del cluster.objects[(PODS, "default", "batch")]["metadata"]["annotations"]
    assert (
        "  1 is covered by a PodDisruptionBudget that allows no eviction now\n"
        in windlass("defrag", "--plan").out
    )


@pytest.mark.parametrize("shared", [False, True])
def test_pods_of_a_claim_that_others_use_too_stay(cluster, windlass, shared):
    """Who leaves frees nothing as long as the others have the devices."""
    driver, class_ = "gpu.example.com", {"metadata": {"name": "gpu"}}
    cluster.add(
        DEVICE_CLASSES,
        {**class_, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}},
    )
    for name in ("n0", "n1"):
        cluster.add(NODES, node(name, gpus=0))
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
        spec = {"driver": driver, "nodeName": name, "pool": pool, "devices": devices}
        cluster.add(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})
    users = {"mine": ("a", "b" if shared else ""), "theirs": ("c", "d"), "waiting": ("big",)}
    for at, (claim, names) in enumerate(users.items()):
        count = 2 if claim == "waiting" else 1
        request = {"name": "g", "exactly": {"deviceClassName": "gpu", "count": count}}
        result = {"request": "g", "driver": driver, "pool": f"n{at}", "device": "gpu-0"}
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{at}"]}]}
        given = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}}
        status = {"allocation": given} if at < 2 else {}
        held = {"metadata": {"name": claim}, "spec": {"devices": {"requests": [request]}}, "status": status}
        cluster.add(RESOURCE_CLAIMS, held)
        for name in filter(None, names):
            run(cluster, name, f"n{at}" if at < 2 else "", "1", movable=True)
            pod = cluster.objects[(PODS, "default", name)]
            pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": claim}]
            if at == 2:
                pod["status"]["phase"] = "Pending"
    found = json.loads(windlass("defrag", "--plan", "--budget", "50", "-o", "json").out)
    assert found["stayingPods"] == {"claim": 4 if shared else 2}
    moves = [move for gain in found["gains"] for move in gain["moves"]]
    assert moves == ([] if shared else [{"pod": "default/a", "from": "n0", "to": "n1", "gpus": 1.0}])


def test_pods_of_another_scheduler_stay_whoever_agrees(cluster, windlass):
    run(cluster, "web", "busy", "12", movable=True)
    run(cluster, "train", "free", "8", gpus=1, movable=True)
    for name in ("web", "train"):
        cluster.objects[(PODS, "default", name)]["spec"]["schedulerName"] = "another"
    for more in ((), ("--everybody",)):
        assert json.loads(windlass("defrag", "--plan", "-o", "json", *more).out)["stayingPods"] == {
            "foreign": 2
        }
    assert "--everybody" not in windlass("defrag", "--plan").out


def test_nodes_that_take_nobody_are_neither_helped_nor_counted_as_idle(cluster, windlass):
    """On the cordoned one a single move would do, on the other it takes two."""
    run(cluster, "web", "shut", "12", movable=True)
    for name, cpu in (("a", "5"), ("b", "6"), ("c", "4")):
        run(cluster, name, "busy", cpu, movable=True)
    run(cluster, "train", "free", "8", gpus=1)
    cluster.add(NODES, node("shut", gpus=2, cpu="16"))
    cluster.objects[(NODES, "", "shut")]["spec"]["unschedulable"] = True
    cluster.add(NODES, node("gone", gpus=3, cpu="16"))
    cluster.objects[(NODES, "", "gone")]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    found = json.loads(windlass("defrag", "--plan", "-o", "json").out)
    assert (found["idleGpus"], found["closedGpus"], found["strandedGpus"]) == (2.0, 5.0, {"cpu": 2.0})
    assert {gain["node"] for gain in found["gains"]} == {"busy"}
    assert {(move["from"], move["to"]) for gain in found["gains"] for move in gain["moves"]} == {
        ("busy", "free")
    }
    text = windlass("defrag", "--plan").out
    assert text.startswith(
        "2 GPUs are idle, 2 of them fragmented.\n5 GPUs are idle on nodes that are cordoned or"
    )


def test_who_fits_only_where_it_may_not_be_is_not_proposed(cluster, windlass):
    """``web`` alone would do, and there is CPU for it on a node with a taint."""
    run(cluster, "web", "busy", "12", movable=True)
    cluster.add(NODES, node("other", gpus=2, cpu="16"))
    for name, cpu in (("a", "7"), ("b", "5")):
        run(cluster, name, "other", cpu, movable=True)
    run(cluster, "train", "free", "8", gpus=1)
    run(cluster, "more", "free", "5")
    cluster.add(NODES, node("tainted", gpus=0, cpu="48"))
    cluster.objects[(NODES, "", "tainted")]["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    gain = json.loads(windlass("defrag", "--plan", "-o", "json").out)["gains"][0]
    assert gain["moves"] == [{"pod": "default/b", "from": "other", "to": "free", "gpus": 0.0}]


def test_where_moves_are_refused_those_on_other_nodes_are_tried(cluster, windlass):
    """``web`` alone would do, but must not be where ``train`` is."""
    run(cluster, "web", "busy", "12", movable=True)
    run(cluster, "train", "free", "8", gpus=1)
    cluster.add(NODES, node("other", gpus=2, cpu="16"))
    for name in ("a", "b"):
        run(cluster, name, "other", "7500m", movable=True)
    for name in ("web", "train"):
        cluster.objects[(PODS, "default", name)]["metadata"]["labels"] = {"apart": "yes"}
    apart = {"labelSelector": {"matchLabels": {"apart": "yes"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    cluster.objects[(PODS, "default", "web")]["spec"]["affinity"] = affinity
    for name in ("busy", "free", "other"):
        cluster.objects[(NODES, "", name)]["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    found = json.loads(windlass("defrag", "--plan", "-o", "json").out)
    assert {gain["node"] for gain in found["gains"]} == {"other"}
    assert {move["pod"] for gain in found["gains"] for move in gain["moves"]} == {"default/a", "default/b"}


def test_a_budget_that_is_too_small_for_any_move_is_told(cluster, windlass):
    run(cluster, "train", "busy", "8", gpus=2, movable=True)
    text = windlass("defrag", "--plan").out
    assert "No moves within 2% of the running GPUs (0.04 of 2) would help" in text
    assert "has 2, which exceeds this budget: windlass defrag --plan --budget 100\n" in text


def test_parts_by_memory_count_as_what_they_are_of_their_cards(windlass, cluster):
    """Two parts of 30 of 80 GiB, on one card each: one of them goes beside the other for who wants a whole card."""
    for name in ("busy", "free"):
        cluster.add(NODES, node(name, gpus=1, **{"nvidia.com/gpu.memory": "81920"}))
        part = {"windlass.dev/gpu-memory": "30Gi", "windlass.dev/device-shares": "0:0/30720"}
        run(cluster, f"on-{name}", name, "1", movable=True)
        cluster.objects[(PODS, "default", f"on-{name}")]["metadata"]["annotations"] |= part
    run(cluster, "train", "", "1", gpus=1)
    cluster.objects[(PODS, "default", "train")]["status"]["phase"] = "Pending"
    found = json.loads(windlass("defrag", "--plan", "--budget", "50", "-o", "json").out)
    assert (found["runningGpus"], found["idleGpus"], found["smallestMovableGpus"]) == (0.75, 1.25, 0.375)
    first = found["gains"][0]
    assert (first["pod"], first["gpus"], [move["gpus"] for move in first["moves"]]) == (
        "default/train",
        1.0,
        [0.375],
    )
    none = windlass("defrag", "--plan", "--budget", "49").out
    assert "No moves within 49% of the running GPUs (0.367 of 0.75) would help" in none
    assert "windlass defrag --plan --budget 50" in none


def test_for_people(cluster, windlass):
    run(cluster, "web", "busy", "12", movable=True)
    run(cluster, "train", "free", "8", gpus=1)
    text = windlass("defrag", "--plan").out
    assert "2 stranded: no CPU left on their nodes" in text
    assert "default/web  busy  free" in text
    assert "1 idle GPU becomes usable" in text


def test_what_waits_comes_first_and_groups_say_who_agrees(cluster, windlass):
    """Two of four cards are idle on each node, and usual pods want two: only for the one that waits, a move helps."""
    for name in ("n1", "n2"):
        cluster.add(NODES, node(name, gpus=4, cpu="64"))
    for name in ("a", "b"):
        run(cluster, name, "n1" if name == "a" else "n2", "2", gpus=2)
        cluster.objects[(PODS, "default", name)]["metadata"]["annotations"] = {
            "scheduling.k8s.io/group-name": f"g-{name}"
        }
        group = {"metadata": {"name": f"g-{name}"}, "spec": {"minMember": 1}}
        group["metadata"]["annotations"] = {"windlass.dev/movable": "true"}
        cluster.add(POD_GROUPS, group)
    run(cluster, "busy1", "busy", "1", gpus=2)
    run(cluster, "free1", "free", "1", gpus=1)
    given = ("defrag", "--plan", "--budget", "50", "-o", "json")
    found = json.loads(windlass(*given).out)
    assert (found["runningPods"], found["movablePods"], found["gains"]) == (4, 2, [])
    run(cluster, "big", "", "2", gpus=4)
    cluster.objects[(PODS, "default", "big")]["status"]["phase"] = "Pending"
    gain = json.loads(windlass(*given).out)["gains"][0]
    assert (gain["gpus"], gain["waits"], gain["pod"]) == (4.0, True, "default/big")
    assert len(gain["moves"]) == 1
    assert " for default/big\n" in windlass("defrag", "--plan", "--budget", "50").out


def test_it_moves_nothing_by_itself(cluster, windlass):
    done = windlass("defrag")
    assert done.code == 2
    assert "windlass defrag --plan" in done.err


# ---------------------------------------------------------------------- windlass sim pack

NODES_CSV = "sn,cpu_milli,memory_mib,gpu,model\na,16000,65536,4,T4\nb,16000,65536,4,T4\n"
PODS_CSV = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(
    f"p{at},1000,1024,1,{milli}\n"
    for at, milli in enumerate([1000, 500, 500, 250, 1000, 700, 300, 1000, 1000, 1000])
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "nodes.csv").write_text(NODES_CSV)
    (tmp_path / "pods.csv").write_text(PODS_CSV)
    return str(tmp_path / "nodes.csv"), str(tmp_path / "pods.csv")


def test_pack_prints_what_the_contract_says(windlass, files):
    pytest.importorskip("highspy")
    nodes, pods = files
    given = ("--nodes", nodes, "--pods", pods, "--policy", "fgd,windlass", "--seeds", "42-43")
    done = windlass("sim", "pack", *given, "--bound", "-o", "json")
    results = json.loads(done.out)["results"]
    assert [(r["policy"], r["seed"]) for r in results] == [
        ("fgd", 42),
        ("fgd", 43),
        ("windlass", 42),
        ("windlass", 43),
    ]
    for result in results:
        assert result["nodes"] == 2
        assert set(result["allocation_percent"]) == {"80", "95", "100", "130"}
        assert set(result["fragmented_percent"]) == {"80", "95", "100", "130"}
        assert result["allocation_percent"]["130"] <= result["bound_percent"] + 1e-6
    assert "windlass" in windlass("sim", "pack", *given).out
    lines = windlass("sim", "pack", *given, "--defrag", "50", "-o", "csv").out.splitlines()
    assert len(lines) == 9
    assert lines[3].startswith("fgd+defrag,42,")


def test_pack_tells_what_was_played_before_ctrl_c(windlass, files, monkeypatch):
    def stopped(work):
        if (work.policy, work.seed) == ("bestfit", 2):
            raise KeyboardInterrupt
        return run_one(work)

    monkeypatch.setattr("windlass_lab.commands.pack_runs.run_one", stopped)
    given = ("--nodes", files[0], "--pods", files[1], "--policy", "fgd,bestfit,random", "--seeds", "1-2")
    done = windlass("sim", "pack", *given, "-o", "json")
    assert done.code == 130
    told = [(run["policy"], run["seed"]) for run in json.loads(done.out)["results"]]
    assert told == [("fgd", 1), ("fgd", 2), ("bestfit", 1)]
    assert "stopped by Ctrl-C; not finished: bestfit (1 of 2 seeds), random (0 of 2 seeds)" in done.err


def test_pack_takes_the_shapes_that_sim_run_takes(windlass, files, tmp_path):
    """As a file of such nodes of which CPU and memory never end."""
    (tmp_path / "roomy.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{at},9999999,99999999,4,T4\n" for at in range(2))
    )
    common = ("--pods", files[1], "--policy", "fgd,windlass", "--seeds", "42-43", "-o", "json")
    shapes = json.loads(windlass("sim", "pack", "--nodes", "2xT4:4", *common).out)["results"]
    file = json.loads(windlass("sim", "pack", "--nodes", str(tmp_path / "roomy.csv"), *common).out)["results"]
    kept = ("policy", "seed", "nodes", "allocation_percent", "fragmented_percent")
    assert [{name: one[name] for name in kept} for one in shapes] == [
        {name: one[name] for name in kept} for one in file
    ]
    assert shapes[0]["nodes"] == 2
    wrong = windlass("sim", "pack", "--nodes", "2yT4", "--pods", files[1])
    assert wrong.code == 2
    assert "'2yT4' is not COUNTxGPUS or COUNTxMODEL:GPUS" in wrong.err
    assert "windlass sim pack --help" in wrong.err


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--policy", "nonsense"), 2, "nonsense"),
        (("--seeds", "5-1"), 2, "5-1"),
        (("--seeds", "1-99999999"), 2, "too many seeds: the maximum is 10000"),
        (("--seeds", "x"), 2, "--seeds 42-51"),
    ],
)
def test_pack_says_what_is_wrong_with_its_flags(windlass, files, more, code, words):
    done = windlass("sim", "pack", "--nodes", files[0], "--pods", files[1], *more)
    assert done.code == code
    assert words in done.err


def test_pack_names_file_line_and_column(windlass, files):
    Path(files[1]).write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,x,1,500\n")
    done = windlass("sim", "pack", "--nodes", files[0], "--pods", files[1])
    assert done.code == 65
    assert "pods.csv, line 2, column memory_mib" in done.err


def test_a_waiting_pod_that_scattered_gpus_do_not_hold_is_named(cluster, windlass):
    """F54: enough GPUs are idle, but not on one node."""
    cluster.add(NODES, node("other", gpus=2, cpu="16"))
    for name in ("busy", "other"):
        run(cluster, f"on-{name}", name, "1", gpus=1)
    run(cluster, "whole", "", "1", gpus=3)
    cluster.objects[(PODS, "default", "whole")]["status"] = {"phase": "Pending"}
    cluster.objects[(PODS, "default", "whole")]["spec"].pop("nodeName")
    found = json.loads(windlass("defrag", "--plan", "-o", "json").out)
    assert found["waitingPods"] == [{"pod": "default/whole", "gpus": 3.0, "largestIdleGpus": 1.0}]
    text = windlass("defrag", "--plan").out
    assert "default/whole waits for 3 GPUs on one node; the most that one node has idle is 1" in text
    assert "without any move" not in text
