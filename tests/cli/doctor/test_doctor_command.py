"""``windlass status`` and ``windlass doctor``."""

from __future__ import annotations

import json

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.resources import NODES
from windlass.kits.state import StateFolder


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def test_status(windlass, cluster):
    cluster.answers = {"/version": b'{"gitVersion": "v1.36.0"}', "/readyz": b"ok"}
    record = json.loads(windlass("status", "-o", "json").out)
    assert record["healthy"] is True
    assert record["capacity"]["gpus"] == 12
    assert record["capacity"]["gpusUsed"] == 3
    assert "GPUs:           3 of 12 in use" in windlass("status").out


def test_doctor_believes_the_agent_more_than_the_machine(windlass, cluster, tmp_path):
    node = cluster.objects[(NODES, "", "box")]
    node["metadata"].setdefault("annotations", {})["windlass.dev/isolation"] = "none"
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / "supervisor.json").write_text('{"node": "box"}')
    checks = {check["check"]: check for check in json.loads(windlass("doctor", "-o", "json").out)["checks"]}
    assert {"outbound", "limits", "gpus", "capacity", "images"} <= checks.keys()
    levels = {name: check["level"] for name, check in checks.items() if name.startswith("isolation")}
    assert "warn" in levels.values()
    if "isolation.net" not in levels:
        assert "the running agent gives pods none" in checks["isolation"]["found"]


def test_doctor_says_how_to_mend(windlass, cluster):
    cluster.down = True
    done = windlass("doctor")
    assert done.code == 0
    assert "warn  control plane:" in done.out
    assert "      try: windlass up --detach\n" in done.out
    records = json.loads(windlass("doctor", "-o", "json").out)["checks"]
    assert {record["level"] for record in records} <= {"ok", "warn", "fail"}


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [(364, "ok", "valid until"), (20, "warn", "valid until"), (-2, "fail", "expired on")],
)
def test_doctor_looks_at_certificates(windlass, tmp_path, days, level, words):
    """A running server renews them a month before: one that is nearer to its end is told."""
    from windlass.kits.clock import FakeClock
    from windlass.kits.state import StateFolder
    from windlass.server.auth import pki

    state = StateFolder(tmp_path / "state")
    state.prepare(allow_network=True)
    pki.ensure(state, FakeClock(FakeClock().now() - (365 - days) * 86_400))
    checks = {check["check"]: check for check in json.loads(windlass("doctor", "-o", "json").out)["checks"]}
    assert (checks["certificates"]["level"], checks["certificates"]["found"][: len(words)]) == (level, words)
    if level != "ok":
        assert "windlass up" in checks["certificates"]["remedy"]


@pytest.fixture
def own_node(cluster, tmp_path):
    """The supervisor's record of a ready control plane, and the name of its node."""
    state = StateFolder(tmp_path / "state")
    state.prepare()
    name = next(key[2] for key in cluster.objects if key[0] is NODES)
    state.write_supervisor({"node": name, "ready": True, "pid": 1, "startTicks": 1})
    return name


def test_deleted_node_of_this_machine_is_told(windlass, cluster, own_node):
    cluster.answers = {"/version": b'{"gitVersion": "v1.36.0"}', "/readyz": b"ok"}
    assert f"ok    node: {own_node} is ready" in windlass("doctor").out
    for key in [key for key in cluster.objects if key[0] is NODES]:
        del cluster.objects[key]
    checked = windlass("doctor")
    assert checked.code == 1
    assert f'fail  node: the node "{own_node}" of this machine was deleted' in checked.out
    assert "try: windlass down && windlass up --detach" in checked.out
    status = windlass("status", "-o", "json")
    assert status.code != 0
    assert "WL-NODE-410" in [problem["code"] for problem in json.loads(status.out)["problems"]]
    for command in ("run", "submit"):
        refused = windlass(command, "--", "true")
        assert refused.code != 0
        assert "error[WL-NODE-410]" in refused.err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"spec": {"unschedulable": True}}, "warn  node: {} is cordoned"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "fail  node: {} is not ready"),
    ],
)
def test_node_of_this_machine_that_takes_no_pods_is_told(windlass, cluster, own_node, change, told):
    cluster.objects[(NODES, "", own_node)].update(change)
    assert told.format(own_node) in windlass("doctor").out
