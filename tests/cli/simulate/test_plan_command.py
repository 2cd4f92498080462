"""``windlass plan``: inputs, cycles, formats, and every way to be told what is wrong with an input."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from fakecluster import FakeCluster
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue

from windlass.api.resources import CONFIG_MAPS, PODS

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
NOW = "2026-01-01T12:00:00Z"


def dump(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def planned(windlass: Run, *arguments: str) -> dict[str, Any]:
    done = windlass("plan", "--now", NOW, "-o", "json", *arguments)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_bind_says_where_and_on_which_devices(windlass: Run, tmp_path: Path) -> None:
    plan = planned(
        windlass,
        "-f",
        dump(tmp_path / "c.yaml", node("n1", gpus=2), pod("p", requests={"nvidia.com/gpu": 2})),
    )
    assert (plan["apiVersion"], plan["kind"], plan["cycles"]) == ("windlass.dev/v1alpha1", "Plan", 1)
    devices = [{"index": 0, "share": 1.0}, {"index": 1, "share": 1.0}]
    assert plan["binds"] == [
        {"namespace": "default", "pod": "p", "node": "n1", "cycle": 1, "devices": devices}
    ]
    assert plan["pending"] == []
    assert [entry["name"] for entry in plan["queues"]] == ["default", "root"]


def test_what_waits_says_why(windlass: Run, tmp_path: Path) -> None:
    objects = (
        queue("q"),
        node("n1", gpus=1),
        group("g", 2, queue="q"),
        pod("a", group="g"),
        pod("b", group="g"),
    )
    plan = planned(windlass, "-f", dump(tmp_path / "c.yaml", *objects))
    assert plan["binds"] == []
    assert plan["stable"]
    (entry,) = plan["pending"]
    assert (entry["namespace"], entry["podGroup"], entry["queue"], entry["pods"]) == (
        "default",
        "g",
        "q",
        ["a", "b"],
    )
    assert (entry["code"], entry["waitingHelps"]) == ("ExceedsCluster", "no")
    assert "2" in entry["message"]
    assert entry["blockers"]
    assert entry["remedies"]


def test_pods_of_the_clusters_own_scheduler_are_said_to_be_planned(windlass: Run, tmp_path: Path) -> None:
    others = [pod("web", scheduler="default-scheduler", node="n1", phase="Running", requests={"cpu": 1})]
    others += [pod("new", scheduler="default-scheduler", requests={"cpu": 1})]
    others += [pod("done", scheduler="default-scheduler", node="n1", phase="Succeeded", requests={"cpu": 1})]
    file = dump(tmp_path / "c.yaml", node("n1"), pod("ours"), *others)
    done = windlass("plan", "--now", NOW, "-f", file)
    assert "the plan includes 2 pods of the cluster's own scheduler (1 pending)" in done.err
    named = done.err.rpartition("to exclude them: ")[2].split()
    assert named[:2] == ["--scheduler-name", "windlass"]
    done = windlass("plan", "--now", NOW, "-f", file, *named)
    assert (done.code, done.err) == (0, "")
    assert "default/new" not in done.out
    alone = windlass("plan", "--now", NOW, "-f", dump(tmp_path / "d.yaml", node("n1"), pod("ours")))
    assert alone.err == ""


def test_lists_json_and_standard_input(
    windlass: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = {
        "apiVersion": "v1",
        "kind": "NodeList",
        "items": [{k: v for k, v in node("n1").items() if k != "kind"}],
    }
    whole = {"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]}
    (tmp_path / "nodes.json").write_text(json.dumps(typed))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(whole)))
    plan = planned(windlass, "-f", str(tmp_path / "nodes.json"), "-f", "-")
    assert [bind["pod"] for bind in plan["binds"]] == ["a", "b"]


def test_other_kinds_are_told_and_left_out(windlass: Run, tmp_path: Path) -> None:
    file = dump(
        tmp_path / "c.yaml", node("n1"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    )
    done = windlass("plan", "-f", file, "--now", NOW)
    assert done.code == 0
    assert "does not read these kinds: 1 v1/Secret" in done.err


def test_both_apis_at_once_count_capacity_once(windlass: Run, tmp_path: Path) -> None:
    objects = (
        node("n1", gpus=2),
        queue("x"),
        kai_queue("x", gpus=1),
        group("v", 1, queue="x"),
        pod("v", group="v", scheduler="volcano"),
        kai_group("k", 1, "x"),
        kai_pod("k", "k", "x"),
        kai_group("more", 1, "x"),
        kai_pod("more", "more", "x"),
    )
    plan = planned(windlass, "-f", dump(tmp_path / "c.yaml", *objects))
    assert len(plan["binds"]) == 2
    assert {entry["name"] for entry in plan["queues"]} == {"kai/x", "volcano/x", "volcano/root"}
    (entry,) = plan["pending"]
    assert entry["queue"] in ("kai/x", "volcano/x")


def test_an_evicted_pod_comes_back_and_a_terminating_one_goes(windlass: Run, tmp_path: Path) -> None:
    objects = (
        node("n1", gpus=1),
        kai_queue("org"),
        kai_queue("a", "org", gpus=1),
        kai_queue("b", "org", gpus=0),
        kai_group("old", 1, "b"),
        kai_pod("old", "old", "b", node="n1"),
        kai_group("new", 1, "a"),
        kai_pod("new", "new", "a"),
    )
    plan = planned(windlass, "--until-stable", "-f", dump(tmp_path / "c.yaml", *objects))
    assert [(e["pod"], e["action"], e["for"], e["cycle"]) for e in plan["evictions"]] == [
        ("old", "reclaim", "default/new", 1)
    ]
    assert [(e["pod"], e["cycle"]) for e in plan["nominations"]] == [("new", 1)]
    assert [(e["pod"], e["cycle"]) for e in plan["binds"]] == [("new", 2)]
    assert [entry["pods"] for entry in plan["pending"]] == [["old"]]
    assert plan["stable"]
    going = pod("going", node="n1", metadata={"deletionTimestamp": "2026-01-01T11:59:55Z"})
    stuck = pod("stuck", node="n1", metadata={"deletionTimestamp": "2026-01-01T11:50:00Z"})
    for leaving, started in ((going, True), (stuck, False)):
        plan = planned(
            windlass, "--cycles", "3", "-f", dump(tmp_path / "d.yaml", node("n1", gpus=1), leaving, pod("p"))
        )
        assert [(e["pod"], e["cycle"]) for e in plan["binds"]] == ([("p", 2)] if started else [])
        assert plan["stable"]


def test_table_lists_remedies_of_pending_groups(windlass: Run, tmp_path: Path) -> None:
    file = dump(tmp_path / "c.yaml", node("n1", gpus=1), pod("large", requests={"nvidia.com/gpu": 2}))
    (entry,) = planned(windlass, "-f", file)["pending"]
    assert entry["remedies"]
    table = windlass("plan", "-f", file, "--now", NOW).out
    for remedy in entry["remedies"]:
        assert f"\nto start default/large: {remedy}\n" in table
    row = next(line for line in table.splitlines() if line.startswith("default/large"))
    assert row.split()[4] == entry["waitingHelps"] == "no"


def test_a_plan_that_would_go_on_is_not_stable(windlass: Run, tmp_path: Path) -> None:
    going = pod("going", node="n1", metadata={"deletionTimestamp": "2026-01-01T11:59:55Z"})
    file = dump(tmp_path / "c.yaml", node("n1", gpus=1), going, pod("p"))
    assert not planned(windlass, "-f", file)["stable"]
    assert planned(windlass, "--cycles", "9", "-f", file)["cycles"] == 3


def test_formats(windlass: Run, tmp_path: Path) -> None:
    file = dump(tmp_path / "c.yaml", node("n1", gpus=1), pod("a"), pod("b"))
    document = planned(windlass, "-f", file)
    assert yaml.safe_load(windlass("plan", "-f", file, "--now", NOW, "-o", "yaml").out) == document
    table = windlass("plan", "-f", file, "--now", NOW).out
    assert windlass("plan", "-f", file, "--now", NOW, "-o", "table").out == table
    assert table.splitlines()[:2] == [
        "CYCLE  DECISION  POD        NODE  NOTE",
        "1      bind      default/a  n1    devices 0",
    ]
    assert "WAITING HELPS" in table
    assert "default/b" in table
    assert "FAIR SHARE" in table
    assert windlass("plan", "-f", dump(tmp_path / "e.yaml", node("n1")), "--now", NOW).out.startswith(
        "no decisions"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", ("is not valid YAML", "line 2")),
        ("- 3", ("document 1: [0]: is not an object",)),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n",
            ("document 2: apiVersion: is missing",),
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: 3", ("(v1/Pod): metadata: is not a mapping",)),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", ("(v1/Pod): metadata:", "name")),
        (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: ns\nspec:\n  containers:\n  - resources:\n"
            "      requests:\n        cpu: lots\n",
            (
                "document 1 (v1/Pod) ns/a: spec.containers[0].resources.requests[cpu]: 'lots' is not a quantity",
                ":9",
            ),
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n"
            "- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n  status: {allocatable: 3}",
            ("items[0] (v1/Node) a: status",),
        ),
        ('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 3}}', ("document 1 (v1/Pod): metadata",)),
    ],
)
def test_a_wrong_input_names_file_document_object_and_field(
    windlass: Run, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    done = windlass("plan", "-f", str(file), "--now", NOW)
    assert done.code == 65
    assert done.out == ""
    assert done.err.startswith("error[WL-INPUT-465]: ")
    assert str(file) in done.err
    for word in words:
        assert word in done.err


def test_a_dump_that_says_nothing_is_no_empty_cluster(
    windlass: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``kubectl get`` ends without a word on standard output where the cluster lacks a kind."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    (tmp_path / "empty.yaml").write_text("")
    for file, shown in (
        ("-", "standard input"),
        (str(tmp_path / "empty.yaml"), str(tmp_path / "empty.yaml")),
    ):
        done = windlass("plan", "-f", file)
        assert (done.code, done.out) == (65, "")
        assert done.err.startswith(f"error[WL-INPUT-465]: {shown} is empty\n")


def test_a_wrong_configuration_names_file_line_field_and_remedy(windlass: Run, tmp_path: Path) -> None:
    cluster = dump(tmp_path / "c.yaml", node("n1"))
    config = tmp_path / "scheduler.conf"
    config.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableJobOder: true\n")
    done = windlass("plan", "-f", cluster, "--config", str(config))
    assert done.code == 65
    assert f"error[WL-CONFIG-465]: {config}:5: tiers[0].plugins[0].enableJobOder" in done.err
    assert "try: did you mean enableJobOrder?" in done.err
    config.write_text("actions: allocate\nactoins: x\n")
    done = windlass("plan", "-f", cluster, "--config", str(config))
    assert done.code == 0
    assert "did you mean actions?" in done.err


def test_without_a_file_it_is_this_box(windlass: Run, cluster: FakeCluster) -> None:
    """On a box Windlass places the pods that name no scheduler, too, by the configuration that stands there."""
    cluster.add(PODS, pod("bare", scheduler="default-scheduler", requests={"cpu": "1"}))
    cluster.add(PODS, pod("other", scheduler="somebody", requests={"cpu": "1"}))
    assert [bind["pod"] for bind in planned(windlass)["binds"]] == ["bare"]
    here = {"name": "volcano-scheduler-config", "namespace": "volcano-system"}
    backfill = "actions: allocat\n"
    cluster.add(CONFIG_MAPS, {"metadata": here, "data": {"volcano-scheduler.conf": backfill}})
    done = windlass("plan")
    assert done.code == 65
    assert "ConfigMap volcano-scheduler-config:1: actions: names 'allocat'" in done.err
    cluster.add(CONFIG_MAPS, {"metadata": here, "data": {"a.conf": "", "b.conf": ""}})
    assert "WL-CONFIG-465" in windlass("plan").err


def test_without_a_file_and_without_a_box_there_is_nothing_to_plan(
    windlass: Run, cluster: FakeCluster
) -> None:
    cluster.down = True
    done = windlass("plan")
    assert done.code == 2
    assert done.err.startswith("error[WL-USE-400]: there is nothing to plan: ")
    assert "try: windlass up --detach\n" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("-f", "x", "--cycles", "2", "--until-stable"),
        ("-f", "x", "--cycles", "0"),
        ("-f", "x", "--now", "noon"),
        ("-f", "x", "-o", "xml"),
        ("-f", "nowhere.yaml"),
        ("--batch", "nowhere"),
        ("--batch", ".", "-f", "x"),
    ],
)
def test_bad_usage(windlass: Run, arguments: tuple[str, ...]) -> None:
    assert windlass("plan", *arguments).code == 2


def test_a_batch_leaves_a_plan_or_an_error_in_every_folder(windlass: Run, tmp_path: Path) -> None:
    for name, objects in (("good", (node("n1", gpus=1), pod("p"))), ("bad", ({"kind": "Pod"},))):
        (tmp_path / name).mkdir()
        dump(tmp_path / name / "input.yaml", *objects)
        (tmp_path / name / "options.json").write_text(
            json.dumps({"files": ["input.yaml"], "now": NOW, "cycles": 1})
        )
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "options.json").write_text('{"files": ["input.yaml"], "cylces": 2}')
    (tmp_path / "odd" / "plan.json").write_text("of an earlier run")
    assert windlass("plan", "--batch", str(tmp_path), "-o", "json").code == 0
    single = windlass("plan", "-f", str(tmp_path / "good" / "input.yaml"), "--now", NOW, "-o", "json").out
    assert (tmp_path / "good" / "plan.json").read_text() == single
    assert "WL-INPUT-465" in (tmp_path / "bad" / "error.txt").read_text()
    assert "cylces" in (tmp_path / "odd" / "error.txt").read_text()
    assert not (tmp_path / "odd" / "plan.json").exists()


def test_the_same_input_gives_the_same_bytes_whatever_the_order_of_hashes(tmp_path: Path) -> None:
    import subprocess

    objects = [node(f"n{i}", gpus=4) for i in range(5)] + [queue(f"q{i}", weight=i + 1) for i in range(4)]
    objects += [group(f"g{i}", 2, queue=f"q{i % 4}") for i in range(12)]
    objects += [pod(f"p{i}", group=f"g{i // 2}") for i in range(24)]
    file = dump(tmp_path / "c.yaml", *objects)
    command = [
        sys.executable,
        "-m",
        "windlass",
        "plan",
        "-f",
        file,
        "--now",
        NOW,
        "-o",
        "json",
        "--until-stable",
    ]
    outputs = {
        subprocess.run(command, capture_output=True, check=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_namespace_quota_withholds_the_pods_that_would_not_have_been_created(
    windlass: Run, tmp_path: Path
) -> None:
    def quota(**spec: Any) -> dict[str, Any]:
        metadata = {"name": "team", "namespace": "default"}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}

    old = pod("old", node="n1", metadata={"deletionTimestamp": "2026-01-01T11:59:55Z"})
    pods = (old, pod("b", metadata={"creationTimestamp": "2026-01-01T11:00:00Z"}), pod("a"))
    hard = {"hard": {"requests.nvidia.com/gpu": "2"}}
    file = dump(tmp_path / "c.yaml", node("n1", gpus=4), *pods, quota(**hard))
    plan = planned(windlass, "-f", file)
    assert [bind["pod"] for bind in plan["binds"]] == ["b"]
    (entry,) = plan["pending"]
    assert (entry["podGroup"], entry["code"]) == ("a", "NamespaceQuota")
    blocker = {"resource": "requests.nvidia.com/gpu", "needed": "1", "available": "0"}
    assert blocker.items() <= entry["blockers"][0].items()
    later = planned(windlass, "--until-stable", "-f", file)
    assert [(bind["pod"], bind["cycle"]) for bind in later["binds"]] == [("b", 1), ("a", 2)]
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    file = dump(tmp_path / "d.yaml", node("n1", gpus=4), *pods, quota(**hard, scopeSelector=selector))
    assert [bind["pod"] for bind in planned(windlass, "-f", file)["binds"]] == ["b", "a"]


def test_a_defect_in_one_plan_of_a_batch_is_told_in_full_and_costs_no_other(
    windlass: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.cli.simulate import plan_batch

    whole = plan_batch.plan

    def defective(request: Any, warn: Any) -> dict[str, Any]:
        if "first" in request.files[0]:
            raise ZeroDivisionError("of a test")
        return whole(request, warn)

    monkeypatch.setattr(plan_batch, "plan", defective)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        dump(tmp_path / name / "input.yaml", node("n1"))
        (tmp_path / name / "options.json").write_text(json.dumps({"files": ["input.yaml"]}))
    done = windlass("plan", "--batch", str(tmp_path))
    assert "1 planned, 1 with an error" in done.err
    told = (tmp_path / "first" / "error.txt").read_text().splitlines()
    assert told[0].startswith("Traceback")
    assert told[-1] == "ZeroDivisionError: of a test"
    assert (tmp_path / "second" / "plan.json").exists()


def test_pattern_of_a_hypernode_that_go_refuses_is_named(windlass: Run, tmp_path: Path) -> None:
    by_pattern = {"type": "Node", "selector": {"regexMatch": {"pattern": "^n(?=1)"}}}
    hypernode = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "h"},
        "spec": {"tier": 1, "members": [by_pattern]},
    }
    done = windlass("plan", "-f", dump(tmp_path / "c.yaml", node("n1"), hypernode))
    assert done.code == 65
    assert "HyperNode) h: spec.members[0].selector.regexMatch.pattern" in done.err
    assert "invalid perl operator: (?=" in done.err
