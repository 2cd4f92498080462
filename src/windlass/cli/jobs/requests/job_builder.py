"""Translation of a command line to a Volcano Job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from windlass.api import annotations as names
from windlass.api import network_presets
from windlass.api.annotations import HOST_IMAGE, SIMULATED, TASK_INDEX
from windlass.api.errors import WindlassError
from windlass.api.resources import VOLCANO_JOBS

GPU = "nvidia.com/gpu"
TASK = "main"
DEFAULT_UMASK = 0o022
"""Umask of a pod without an annotation for it."""
MASTER_PORT = 29500
"""Default port of PyTorch, where every gang has its own network."""
_HOST_PORTS = range(20_000, 30_000)
"""Ports for gangs on the network of their nodes.

They are below those of Kubernetes' services (30000) and of Linux' outgoing connections
(32768).
"""

_PASSED = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "MPLBACKEND"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME"),
    *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
}
_PASSED_PREFIXES = (
    *("LC_", "OMP_", "MKL_", "NCCL_", "TORCH_", "PYTORCH_"),
    *("HF_", "TRANSFORMERS_", "XLA_", "JAX_"),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_RUNS_PROCESSES = {"matchExpressions": [{"key": SIMULATED, "operator": "NotIn", "values": ["true"]}]}
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Job as requested by ``windlass run`` or ``submit``.

    Amounts are quantities as text; an empty text means that the flag was not given.
    """

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
    time_seconds: int = field(kw_only=True)
    image: str = ""
    gpu_memory: str = ""
    """Memory of each of ``gpus`` devices (of one, if that is 0), instead of whole devices.
    """
    gpu_model: str = ""
    near: str = ""
    """Label of nodes. All ranks run on nodes with one value of it."""
    numa: bool = False
    """Flag: take CPUs and devices of each rank from one NUMA node."""
    host_network: bool = False
    """Flag: use the network of the node instead of its own."""
    network: str | None = None
    """Network preset of the ranks."""
    elastic: tuple[int, int] | None = None
    """Least and largest number of ranks of an elastic job."""
    checkpoint_path: str = ""
    checkpoint_hook: str = ""
    """File or directory of the checkpoints, and the hook that saves one."""
    resume: str | None = None
    """Name of the job of which the next attempt is created; empty: found by the command. ``None``: a new job."""
    kind: str = "vcjob"
    """Kind of the job (:data:`windlass.cli.jobs.kinds.kind_manifests.KINDS`)."""
    followed: bool = False
    """Flag: a person waits for its output.

    In single-node mode it then runs only on nodes that run processes, not on simulated
    ones.
    """

    @property
    def command_line(self) -> str:
        """Beginning of the command that was given, for remedies."""
        return "windlass run" if self.followed else "windlass submit"

    @property
    def request(self) -> dict[str, str]:
        """Resources of one pod."""
        whole = str(self.gpus) if self.gpus and not self.gpu_memory else ""
        amounts = {"cpu": self.cpus, "memory": self.memory, GPU: whole}
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of one pod, for devices and topology."""
        annotations = {
            names.DEVICE_MEMORY: self.gpu_memory,
            names.DEVICE_COUNT: str(self.gpus) if self.gpu_memory and self.gpus > 1 else "",
            names.DEVICE_MODEL: self.gpu_model,
            names.PODSET_REQUIRED: self.near,
            names.NUMA_POLICY_VOLCANO: "single-numa-node" if self.numa else "",
            names.NETWORK_PRESET: self.network or "",
            names.CHECKPOINT_PATH: self.checkpoint_path,
            names.CHECKPOINT_HOOK: self.checkpoint_hook,
        }
        return {name: text for name, text in annotations.items() if text}


def build_job(
    request: JobRequest, name: str, *, namespace: str, embedded: bool, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the Volcano Job.

    Raises :class:`WindlassError` for an invalid environment entry.
    """
    environment = environment_of(request, embedded=embedded, environ=environ)
    port = master_port(f"{namespace}/{name}", host_network=request.host_network)
    container: dict[str, Any] = {
        "name": TASK,
        "image": request.image or HOST_IMAGE,
        "command": [escape_expansion(word) for word in request.command],
        "env": [*environment, *rendezvous(name, request.nodes, port, environment, devices=request.gpus)],
    }
    workdir = request.workdir or (os.getcwd() if embedded else "")
    if workdir:
        container["workingDir"] = os.path.abspath(workdir) if embedded else workdir
    if request.request:
        container["resources"] = {"requests": dict(request.request), "limits": dict(request.request)}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if request.time_seconds:
        pod["activeDeadlineSeconds"] = request.time_seconds
    if request.host_network:
        pod |= {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
        }  # the ranks find each other by name
        if request.nodes > 1 and embedded:
            container["ports"] = [{"name": "rendezvous", "containerPort": _declared(port, environment)}]
    if request.followed and embedded:
        pod["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_RUNS_PROCESSES]}}}
    template: dict[str, Any] = {**_pod_metadata(request, embedded=embedded), "spec": pod}
    if request.network == network_presets.RDMA:
        network_presets.apply_rdma(template)
    spec: dict[str, Any] = {
        "minAvailable": request.nodes,
        "queue": request.queue,
        "schedulerName": "windlass",
        "tasks": [{"name": TASK, "replicas": request.nodes, "template": template}],
        # An evicted job runs again. A failed rank ends the others.
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


def _pod_metadata(request: JobRequest, *, embedded: bool) -> dict[str, Any]:
    annotations = request.annotations
    if embedded and request.host_network and request.nodes > 1:
        annotations[names.HOST_PORTS] = names.HOST_PORTS_DISTINCT
    if embedded and (umask := current_umask()) != DEFAULT_UMASK:
        annotations[names.UMASK] = f"{umask:04o}"
    return {"metadata": {"annotations": annotations}} if annotations else {}


def current_umask() -> int:
    """Return the umask of this process, read from ``/proc``: to read it by setting it races with threads."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.partition(":")[2], 8)
    return DEFAULT_UMASK  # kernels before 4.7 do not state it


def _declared(port: int, environment: Sequence[Mapping[str, str]]) -> int:
    """Return the rendezvous port: the ``MASTER_PORT`` that the user has given, else ``port``."""
    given = next((entry["value"] for entry in environment if entry["name"] == "MASTER_PORT"), "")
    return int(given) if given.isascii() and given.isdecimal() and 0 < int(given) < 65_536 else port


def master_port(key: str, *, host_network: bool) -> int:
    """Return the port at which the ranks of the job ``key`` meet.

    On the network of its nodes it is derived from the name. A job has the same port at
    each start, and two gangs have the same port in one of 10,000 cases.
    """
    return _HOST_PORTS[crc32(key.encode()) % len(_HOST_PORTS)] if host_network else MASTER_PORT


def rendezvous(
    name: str, nodes: int, master: int, given: Sequence[Mapping[str, str]] = (), *, devices: int = 0
) -> list[dict[str, Any]]:
    """Return the environment for the rendezvous of PyTorch and ``torchrun`` (``PET_``).

    Variables that the user has ``given`` are omitted. Their values are used in the
    others: a given ``MASTER_PORT`` also sets that of ``torchrun``.

    A rank with at most one of ``devices`` is the only one of its pod, so ``LOCAL_RANK`` is
    0. With several, the program starts one process for each, and numbers them itself:
    frameworks take ``LOCAL_RANK`` as a sign that this has been done.
    """
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
    if devices <= 1:
        fixed |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    variables: list[dict[str, Any]] = [
        *({"name": key, "value": value} for key, value in fixed.items()),
        *({"name": key, "valueFrom": index} for key in ("RANK", "NODE_RANK", "PET_NODE_RANK")),
    ]
    return [variable for variable in variables if variable["name"] not in own]


def base_name(command: Sequence[str]) -> str:
    """Return a readable name: ``train`` for ``python train.py``, ``echo`` for ``echo hi``."""
    arguments = [argument for argument in command if not argument.startswith("-")]
    program = Path(arguments[0]).name if arguments else "job"
    is_interpreter = re.fullmatch(r"(python[\d.]*|bash|sh|torchrun|mpirun|env|uv|poetry|accelerate)", program)
    if is_interpreter and len(arguments) > 1:
        scripts = [w for w in arguments[1:] if re.search(r"\.(py|sh|bash)$", w)]
        program = Path(scripts[0]).name if scripts else program
    name = re.sub(r"\.(py|sh|bash)$", "", program).lower()
    name = re.sub(r"[^a-z0-9-]+", "-", name).strip("-")
    return (name if name[:1].isalpha() else f"job-{name}".strip("-"))[:40].rstrip("-") or "job"


def environment_of(
    request: JobRequest, *, embedded: bool, environ: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return variables of the caller that programs need (no secrets), and those of
    ``--env``.
    """
    variables: dict[str, str] = {}
    if embedded:
        for name, value in environ.items():
            passed = name in _PASSED or name.startswith(_PASSED_PREFIXES)
            if passed and not _SECRET.search(name):
                variables[name] = value
        variables.setdefault("PYTHONUNBUFFERED", "1")
    for entry in request.environment:
        name, equals, value = entry.partition("=")
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            raise WindlassError(
                "WL-USE-400",
                f"--env {entry!r} does not begin with the name of a variable",
                evidence="the format is NAME=VALUE, or NAME to pass on the caller's value",
                remedies=("--env SEED=7", "--env HF_HOME"),
            )
        if not equals and name not in environ:
            raise WindlassError(
                "WL-USE-400",
                f"--env {name}: this variable is not set",
                evidence="without =VALUE the caller's own value is passed on",
                remedies=(
                    f"--env {name}=VALUE",
                    *(("windlass logs JOB   (also shows standard error)",) if "." in name else ()),
                ),
            )
        variables[name] = value if equals else environ[name]
    return [{"name": name, "value": escape_expansion(value)} for name, value in sorted(variables.items())]


def escape_expansion(text: str) -> str:
    """Return ``text`` so that Kubernetes' expansion of ``$(NAME)`` yields it unchanged."""
    return text.replace("$", "$$")
