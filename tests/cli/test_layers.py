"""``windlass status`` groups the running parts by the four layers (F19)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.resources import DEPLOYMENTS
from windlass.cli import layers
from windlass.cli.install.objects import PART_OF
from windlass.controllers.job_kinds.families import FAMILIES
from windlass.kits.processes import start_time

ROOT = Path(__file__).resolve().parents[2]
METRICS = b"""\
windlass_scheduler_cycle_duration_seconds_count 5.0
windlass_controller_looks_total{controller="queue"} 9.0
windlass_controller_looks_total{controller="nodehealth"} 4.0
windlass_controller_looks_total{controller="vcjob"} 0.0
windlass_controller_looks_total{controller="new-kind-of-job"} 0.0
"""
NO_PID = 2**22 + 1
"""Above the kernel's maximum."""


@pytest.fixture
def cluster() -> FakeCluster:
    busy = example_cluster.busy()
    busy.answers = {"/version": b'{"gitVersion": "v1.36.0"}', "/readyz": b"ok", "/metrics/control": METRICS}
    return busy


def supervise(state: Path, **pids: int | None) -> None:
    """Write the record of a supervisor with these processes."""
    state.mkdir(exist_ok=True)
    processes = {role: {"pid": pid, "restarts": 0, "lastEnd": ""} for role, pid in pids.items()}
    record = {"pid": os.getpid(), "startTicks": start_time(os.getpid()), "processes": processes}
    (state / "supervisor.json").write_text(json.dumps(record))


def states(windlass, *flags: str) -> dict[str, dict[str, str]]:
    record = json.loads(windlass("status", *flags, "-o", "json").out)
    assert [layer["name"] for layer in record["layers"]] == list(layers.LAYERS)
    return {
        layer["name"]: {part["name"]: part["state"] for part in layer["parts"]} for layer in record["layers"]
    }


def test_each_part_of_a_box_is_shown_once_with_its_state(windlass, cluster, tmp_path):
    supervise(tmp_path / "state", server=os.getpid(), control=os.getpid(), node=os.getpid())
    assert states(windlass) == {
        "infrastructure": {"nodes": "3 of 3 ready", "node agent": "running", "controllers": "running"},
        "resource management": {"API server": "running", "controllers": "running"},
        "scheduling engine": {"scheduler": "running"},
        "job orchestration": {"controllers": "running"},
    }
    text = windlass("status").out
    table = text[text.index("LAYER") :].split("\n\n")[0].splitlines()
    names = [line[:21].strip() for line in table[1:]]
    assert [name for name in names if name] == list(layers.LAYERS)
    assert table[-1].endswith("new-kind-of-job, vcjob")


def test_a_process_that_ended_or_does_not_respond_is_not_called_running(windlass, cluster, tmp_path):
    supervise(tmp_path / "state", server=os.getpid(), control=NO_PID, node=None)
    found = states(windlass)
    assert found["infrastructure"] == {"nodes": "3 of 3 ready", "node agent": "not running"}
    assert found["scheduling engine"] == {"scheduler": "not running"}
    assert found["job orchestration"] == {"controllers": "not running"}
    supervise(tmp_path / "state", server=os.getpid(), control=os.getpid(), node=os.getpid())
    del cluster.answers["/metrics/control"]
    assert states(windlass)["scheduling engine"] == {"scheduler": "not responding"}


def test_a_box_that_is_not_started_has_the_four_layers_too(windlass, cluster):
    cluster.down = True
    assert states(windlass) == {
        "infrastructure": {"nodes": "unknown"},
        "resource management": {"API server": "not running"},
        "scheduling engine": {"scheduler": "not running"},
        "job orchestration": {"controllers": "not running"},
    }


def test_on_a_cluster_the_deployments_are_the_parts(windlass, cluster, tmp_path):
    name, value = PART_OF.split("=")
    for deployment in ("windlass-scheduler", "windlass-controllers"):
        metadata = {"name": deployment, "namespace": "windlass-system", "labels": {name: value}}
        status = {"readyReplicas": 1}
        cluster.add(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": 2}, "status": status})
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("")
    cluster.hidden = {kind for family in FAMILIES for kind in family.kinds}
    found = states(windlass, "--kubeconfig", str(kubeconfig))
    assert found["scheduling engine"] == {"windlass-system/windlass-scheduler": "1 of 2 ready"}
    assert found["job orchestration"] == {"windlass-system/windlass-controllers": "1 of 2 ready"}
    assert found["resource management"] == {"API server": "running"}


def test_on_a_cluster_the_operator_of_each_served_family_of_job_kinds_is_named(windlass, cluster, tmp_path):
    name, value = PART_OF.split("=")
    metadata = {"name": "windlass-controllers", "namespace": "windlass-system", "labels": {name: value}}
    cluster.add(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": 1}})
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("")
    flags = ("--kubeconfig", str(kubeconfig))
    assert states(windlass, *flags)["job orchestration"]["kubeflow jobs"] == "operated by Windlass"
    cluster.add(DEPLOYMENTS, {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": {}})
    found = states(windlass, *flags)["job orchestration"]
    assert found["kubeflow jobs"] == "operated by kubeflow/training-operator"


def test_layers_name_no_controller_that_is_gone():
    reconcilers = (ROOT / "src/windlass/controllers").glob("*/controller.py")
    pattern = re.compile(r'^    name = "(\w+)"', re.MULTILINE)
    names = {name for path in reconcilers for name in pattern.findall(path.read_text())}
    assert set(layers.LAYER_OF_CONTROLLER) <= names


def test_the_page_on_the_architecture_shows_the_same_layers(windlass, cluster):
    page = windlass("docs", "architecture").out
    rows = re.findall(r"^\| \*\*([a-z ]+)\*\* \|", page, re.MULTILINE)
    assert rows == list(layers.LAYERS)
