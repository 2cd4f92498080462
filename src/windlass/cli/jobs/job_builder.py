"""From a command line to a Volcano Job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from windlass.api import annotations as names
from windlass.api.annotations import HOST_IMAGE, SIMULATED, TASK_INDEX
from windlass.api.errors import WindlassError
from windlass.api.resources import VOLCANO_JOBS

GPU = "nvidia.com/gpu"
TASK = "main"
MASTER_PORT = 29500
"""PyTorch's own default, where every gang has its own network."""
_HOST_PORTS = range(20_000, 30_000)
"""For gangs on the network of their nodes: below what Kubernetes takes for services (30000) and Linux for outgoing
connections (32768)."""

_KEPT = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "MPLBACKEND"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME"),
    *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
}
_KEPT_PREFIXES = (
    *("LC_", "OMP_", "MKL_", "NCCL_", "TORCH_", "PYTORCH_"),
    *("HF_", "TRANSFORMERS_", "XLA_", "JAX_"),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_RUNS_PROCESSES = {"matchExpressions": [{"key": SIMULATED, "operator": "NotIn", "values": ["true"]}]}
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What ``windlass run`` and ``submit`` were asked for. Amounts are quantities as text; empty: unsaid."""

    command: tuple[str, ...]
    gpus: int = 0
    nodes: int = 1
    cpus: str = ""
    memory: str = ""
    queue: str = "default"
    priority: str = ""
    name: str = ""
    environment: tuple[str, ...] = ()
    workdir: str = ""
    time_seconds: int = 0
    image: str = ""
    gpu_memory: str = ""
    """Of each of ``gpus`` cards (of one, if that is 0) so much memory instead of the whole card."""
    gpu_model: str = ""
    near: str = ""
    """A label of nodes: all ranks on nodes of one value of it."""
    numa: bool = False
    """Each rank from one NUMA zone."""
    host_network: bool = False
    """On the network of its node, not on one of its own."""
    followed: bool = False
    """Its output is awaited, so that on a box it goes only to nodes that run processes (not to simulated ones)."""

    @property
    def command_line(self) -> str:
        """How the command that was given begins, for remedies."""
        return "windlass run" if self.followed else "windlass submit"

    @property
    def request(self) -> dict[str, str]:
        """Resources of one pod."""
        whole = str(self.gpus) if self.gpus and not self.gpu_memory else ""
        wanted = {"cpu": self.cpus, "memory": self.memory, GPU: whole}
        return {name: amount for name, amount in wanted.items() if amount}

    @property
    def annotations(self) -> dict[str, str]:
        """What is asked of cards and of neighbours."""
        wanted = {
            names.DEVICE_MEMORY: self.gpu_memory,
            names.DEVICE_COUNT: str(self.gpus) if self.gpu_memory and self.gpus > 1 else "",
            names.DEVICE_MODEL: self.gpu_model,
            names.PODSET_REQUIRED: self.near,
            names.NUMA_POLICY_VOLCANO: "single-numa-node" if self.numa else "",
        }
        return {name: text for name, text in wanted.items() if text}


def job_of(
    request: JobRequest, name: str, *, namespace: str, on_box: bool, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The Volcano Job. Raises :class:`WindlassError` on an environment entry that cannot be understood."""
    environment = environment_of(request, on_box=on_box, environ=environ)
    port = master_port(f"{namespace}/{name}", host_network=request.host_network)
    container: dict[str, Any] = {
        "name": TASK,
        "image": request.image or HOST_IMAGE,
        "command": [literal(word) for word in request.command],
        "env": [*environment, *rendezvous(name, request.nodes, port, environment)],
    }
    workdir = request.workdir or (os.getcwd() if on_box else "")
    if workdir:
        container["workingDir"] = os.path.abspath(workdir) if on_box else workdir
    if request.request:
        container["resources"] = {"requests": dict(request.request), "limits": dict(request.request)}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if request.time_seconds:
        pod["activeDeadlineSeconds"] = request.time_seconds
    if request.host_network:
        pod |= {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
        }  # its ranks find one another by name
    if request.followed and on_box:
        pod["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_RUNS_PROCESSES]}}}
    spec: dict[str, Any] = {
        "minAvailable": request.nodes,
        "queue": request.queue,
        "schedulerName": "windlass",
        "tasks": [{"name": TASK, "replicas": request.nodes, "template": {**_notes(request), "spec": pod}}],
        # An eviction is not the job's fault: it runs again. A failed rank ends the others.
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
    }
    if request.priority:
        spec["priorityClassName"] = request.priority
    if request.nodes > 1:
        spec["policies"].append({"event": "PodFailed", "action": "TerminateJob"})
        spec["plugins"] = {"env": [], "svc": []}
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _notes(request: JobRequest) -> dict[str, Any]:
    return {"metadata": {"annotations": request.annotations}} if request.annotations else {}


def master_port(key: str, *, host_network: bool) -> int:
    """Where the ranks of the job ``key`` meet. On the network of its nodes it follows from the name: two gangs there
    have the same in one of 10,000 cases, and a job has the same whenever it is started."""
    return _HOST_PORTS[crc32(key.encode()) % len(_HOST_PORTS)] if host_network else MASTER_PORT


def rendezvous(
    name: str, nodes: int, master: int, given: Sequence[Mapping[str, str]] = ()
) -> list[dict[str, Any]]:
    """Who the ranks are and where they meet, for PyTorch and for ``torchrun`` (its ``PET_`` variables), but for what
    the user has ``given``: who gives ``MASTER_PORT`` gives ``torchrun`` the same."""
    if nodes < 2:
        return []
    own = {variable["name"]: variable["value"] for variable in given}
    index = {"fieldRef": {"fieldPath": f"metadata.labels['{TASK_INDEX}']"}}
    address = own.get("MASTER_ADDR", f"{name}-{TASK}-0.{name}")
    port, count = own.get("MASTER_PORT", str(master)), str(nodes)
    fixed = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": count,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": count,
    }
    made: list[dict[str, Any]] = [
        *({"name": key, "value": value} for key, value in fixed.items()),
        *({"name": key, "valueFrom": index} for key in ("RANK", "NODE_RANK", "PET_NODE_RANK")),
    ]
    return [variable for variable in made if variable["name"] not in own]


def base_name(command: Sequence[str]) -> str:
    """A name for people: ``train`` for ``python train.py``, ``echo`` for ``echo hi``."""
    words = [word for word in command if not word.startswith("-")]
    word = Path(words[0]).name if words else "job"
    interpreter = re.fullmatch(r"(python[\d.]*|bash|sh|torchrun|mpirun|env|uv|poetry|accelerate)", word)
    if interpreter and len(words) > 1:
        scripts = [w for w in words[1:] if re.search(r"\.(py|sh|bash)$", w)]
        word = Path(scripts[0]).name if scripts else word
    name = re.sub(r"\.(py|sh|bash)$", "", word).lower()
    name = re.sub(r"[^a-z0-9-]+", "-", name).strip("-")
    return (name if name[:1].isalpha() else f"job-{name}".strip("-"))[:40].rstrip("-") or "job"


def environment_of(request: JobRequest, *, on_box: bool, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The caller's environment as far as programs need it (no secrets), then what ``--env`` says."""
    found: dict[str, str] = {}
    if on_box:
        for name, value in environ.items():
            kept = name in _KEPT or name.startswith(_KEPT_PREFIXES)
            if kept and not _SECRET.search(name):
                found[name] = value
        found.setdefault("PYTHONUNBUFFERED", "1")
    for entry in request.environment:
        name, equals, value = entry.partition("=")
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            raise WindlassError(
                "WL-USE-400",
                f"--env {entry!r} does not begin with a variable's name",
                evidence="it reads NAME=VALUE, or NAME to pass on the caller's value",
                remedies=("--env SEED=7", "--env HF_HOME"),
            )
        if not equals and name not in environ:
            raise WindlassError(
                "WL-USE-400",
                f"--env {name}: the variable is not set here",
                evidence="without =VALUE the caller's own value is passed on",
                remedies=(
                    f"--env {name}=VALUE",
                    *(("windlass logs JOB has its errors, too",) if "." in name else ()),
                ),
            )
        found[name] = value if equals else environ[name]
    return [{"name": name, "value": literal(value)} for name, value in sorted(found.items())]


def literal(text: str) -> str:
    """``text`` so that Kubernetes' expansion of ``$(NAME)`` gives it back unchanged."""
    return text.replace("$", "$$")
