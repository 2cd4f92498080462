"""Nodes and pods without machines on a real API server, with kwok instead of kubelets.

A pod runs and is ready once it has a node. It ends when its annotation :data:`END` has an exit code.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from clusters import Cluster
from realkube import RealKube, free_ports, need, spawn, tools_folder

Json = dict[str, Any]
OURS = "tests.windlass.dev/hollow"
END = "tests.windlass.dev/end"
_CONTAINERS = """
{{ range .spec.containers }}
- name: {{ .name }}
  image: {{ .image }}
  imageID: ""
  ready: %s
  started: %s
  restartCount: 0
  state: %s
{{ end }}
"""
_RUNS = (
    """
phase: Running
startTime: {{ Now }}
podIP: 10.96.7.7
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ Now }}}
- {type: Ready, status: "True", lastTransitionTime: {{ Now }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ Now }}}
containerStatuses:
"""
    + _CONTAINERS % ("true", "true", "{running: {startedAt: {{ Now }}}}")
)
_ENDED = """
phase: %s
conditions:
- {type: Ready, status: "False", reason: %s, lastTransitionTime: {{ Now }}}
- {type: ContainersReady, status: "False", reason: %s, lastTransitionTime: {{ Now }}}
containerStatuses:
"""
_TERMINATED = "{terminated: {exitCode: %d, reason: %s, startedAt: {{ Now }}, finishedAt: {{ Now }}}}"
_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_END_KEY = f'.metadata.annotations["{END}"]'


def _in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def _ended(code: int) -> str:
    phase, reason = ("Succeeded", "Completed") if code == 0 else ("Failed", "Error")
    done = "PodCompleted" if code == 0 else "PodFailed"
    return _ENDED % (phase, done, done) + _CONTAINERS % ("false", "false", _TERMINATED % (code, reason))


_STAGES: dict[str, tuple[str, list[Json], Json]] = {
    "node-ready": (
        "Node",
        [
            {
                "key": '.status.conditions.[] | select(.type == "Ready") | .status',
                "operator": "DoesNotExist",
            }
        ],
        {
            "statusTemplate": "conditions:\n- {type: Ready, status: 'True', reason: KubeletReady, message: up, "
            "lastHeartbeatTime: {{ Now }}, lastTransitionTime: {{ Now }}}\n"
        },
    ),
    "pod-runs": ("Pod", [_ALIVE, _in(".status.phase", "Pending")], {"statusTemplate": _RUNS}),
    **{
        f"pod-ends-{code}": (
            "Pod",
            [_ALIVE, _in(".status.phase", "Running"), _in(_END_KEY, str(code))],
            {"statusTemplate": _ended(code)},
        )
        for code in (0, 1)
    },
    "pod-gone": (
        "Pod",
        [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}],
        {"finalizers": {"empty": True}, "delete": True},
    ),
}


def start_kwok(kube: RealKube, folder: Path) -> subprocess.Popen[bytes]:
    """Start kwok for nodes with the annotation :data:`OURS`."""
    need("kwok")
    (port,) = free_ports(1)
    documents = []
    for name, (kind, signs, then) in _STAGES.items():
        spec = {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": signs},
            "next": then,
        }
        head = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}}
        documents.append({**head, "spec": spec})
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    argv = [str(tools_folder() / "kwok"), f"--kubeconfig={kube.kubeconfig}", f"--config={file}"]
    argv += ["--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={OURS}=true"]
    argv += [f"--server-address=127.0.0.1:{port}", "--node-lease-duration-seconds=40"]
    return spawn(argv, folder / "kwok.log", cwd=folder)


def add_nodes(cluster: Cluster, count: int, prefix: str) -> list[str]:
    """Create nodes with 8 GPUs each and return their names."""
    amounts = {
        "cpu": "64",
        "memory": "256Gi",
        "ephemeral-storage": "1Ti",
        "pods": "110",
        "nvidia.com/gpu": "8",
    }
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        body = {
            "metadata": {"name": name, "annotations": {OURS: "true"}, "labels": {OURS: "true"}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        cluster.post("/api/v1/nodes", body).ok(201)
    return names


def end_pods(cluster: Cluster, namespace: str, names: list[str], code: int = 0) -> None:
    """Let pods end with an exit code, 0 or 1."""
    for name in names:
        patch = {"metadata": {"annotations": {END: str(code)}}}
        cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", patch).ok()
