"""From a command line to a Volcano Job; and what can be told before it is submitted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api import annotations as names
from windlass.api import cards, quantities
from windlass.api.annotations import HOST_IMAGE, SIMULATED, TASK_INDEX
from windlass.api.errors import WindlassError
from windlass.api.resources import NODES, PRIORITY_CLASSES, QUEUES, VOLCANO_JOBS
from windlass.cli import amounts
from windlass.cli.failures import missing, nearest, unless_refused
from windlass.cli.invocation import Invocation
from windlass.cli.words import plural, resource_words

GPU = "nvidia.com/gpu"
TASK = "main"
MASTER_PORT = 29500
"""PyTorch's own default; every gang has its own network, so that gangs do not meet on it."""

_KEPT = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "MPLBACKEND"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME"),
    *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
}
_KEPT_PREFIXES = (
    *("LC_", "OMP_", "MKL_", "NCCL_", "TORCH_", "PYTORCH_"),
    *("HF_", "TRANSFORMERS_", "XLA_", "JAX_"),
)
_LEAST_MEMORY = 1 << 20
"""Bytes: less is a unit forgotten."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_RUNS_PROCESSES = {"matchExpressions": [{"key": SIMULATED, "operator": "NotIn", "values": ["true"]}]}
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wish:
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
    followed: bool = False
    """Its output is awaited, so that on a box it goes only to nodes that run processes (not to simulated ones)."""

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
            names.CARD_MEMORY: self.gpu_memory,
            names.CARD_COUNT: str(self.gpus) if self.gpu_memory and self.gpus > 1 else "",
            names.CARD_MODEL: self.gpu_model,
            names.PODSET_REQUIRED: self.near,
            names.NUMA_POLICY_VOLCANO: "single-numa-node" if self.numa else "",
        }
        return {name: text for name, text in wanted.items() if text}


def job_of(
    wish: Wish, name: str, *, namespace: str, on_box: bool, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The Volcano Job. Raises :class:`WindlassError` on an environment entry that cannot be understood."""
    container: dict[str, Any] = {
        "name": TASK,
        "image": wish.image or HOST_IMAGE,
        "command": [literal(word) for word in wish.command],
        "env": [*environment_of(wish, on_box=on_box, environ=environ), *rendezvous(name, wish.nodes)],
    }
    workdir = wish.workdir or (os.getcwd() if on_box else "")
    if workdir:
        container["workingDir"] = os.path.abspath(workdir) if on_box else workdir
    if wish.request:
        container["resources"] = {"requests": dict(wish.request), "limits": dict(wish.request)}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if wish.time_seconds:
        pod["activeDeadlineSeconds"] = wish.time_seconds
    if wish.followed and on_box:
        pod["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_RUNS_PROCESSES]}}}
    spec: dict[str, Any] = {
        "minAvailable": wish.nodes,
        "queue": wish.queue,
        "schedulerName": "windlass",
        "tasks": [{"name": TASK, "replicas": wish.nodes, "template": {**_notes(wish), "spec": pod}}],
        # An eviction is not the job's fault: it runs again. A failed rank ends the others.
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
    }
    if wish.priority:
        spec["priorityClassName"] = wish.priority
    if wish.nodes > 1:
        spec["policies"].append({"event": "PodFailed", "action": "TerminateJob"})
        spec["plugins"] = {"env": [], "svc": []}
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _notes(wish: Wish) -> dict[str, Any]:
    return {"metadata": {"annotations": wish.annotations}} if wish.annotations else {}


def rendezvous(name: str, nodes: int) -> list[dict[str, Any]]:
    """Who the ranks are and where they meet, for PyTorch and for ``torchrun`` (its ``PET_`` variables)."""
    if nodes < 2:
        return []
    index = {"fieldRef": {"fieldPath": f"metadata.labels['{TASK_INDEX}']"}}
    address, port, count = f"{name}-{TASK}-0.{name}", str(MASTER_PORT), str(nodes)
    fixed = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": count,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": count,
    }
    return [
        *({"name": key, "value": value} for key, value in fixed.items()),
        *({"name": key, "valueFrom": index} for key in ("RANK", "NODE_RANK", "PET_NODE_RANK")),
    ]


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


def environment_of(wish: Wish, *, on_box: bool, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The caller's environment as far as programs need it (no secrets), then what ``--env`` says."""
    found: dict[str, str] = {}
    if on_box:
        for name, value in environ.items():
            kept = name in _KEPT or name.startswith(_KEPT_PREFIXES)
            if kept and not _SECRET.search(name):
                found[name] = value
        found.setdefault("PYTHONUNBUFFERED", "1")
    for entry in wish.environment:
        name, equals, value = entry.partition("=")
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            raise WindlassError(
                "WL-USE-400",
                f"--env {entry!r} does not begin with a variable's name",
                evidence="it reads NAME=VALUE, or NAME to pass on the caller's value",
            )
        if not equals and name not in environ:
            raise WindlassError(
                "WL-USE-400",
                f"--env {name}: the variable is not set here",
                evidence="without =VALUE the caller's own value is passed on",
                remedies=(f"--env {name}=VALUE",),
            )
        found[name] = value if equals else environ[name]
    return [{"name": name, "value": literal(value)} for name, value in sorted(found.items())]


def literal(text: str) -> str:
    """``text`` so that Kubernetes' expansion of ``$(NAME)`` gives it back unchanged."""
    return text.replace("$", "$$")


def check_command(wish: Wish, environ: Mapping[str, str]) -> None:
    """On this box: the program has to exist. Raises :class:`WindlassError`."""
    program = wish.command[0]
    folder = Path(wish.workdir or os.getcwd())
    if not folder.is_dir():
        raise WindlassError(
            "WL-RUN-404",
            f"the working directory {folder} does not exist",
            evidence=f"--workdir {wish.workdir}",
            remedies=("windlass run --workdir DIR -- …",),
        )
    if "/" in program:
        candidate = folder / program
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return
        why = "it is not executable" if candidate.is_file() else "there is no such file"
        raise WindlassError(
            "WL-RUN-404",
            f"{program} cannot be run: {why}",
            evidence=f"looked for {candidate}",
            remedies=(f"chmod +x {candidate}",) if candidate.is_file() else (f"ls {candidate.parent}",),
        )
    path = environ.get("PATH", os.defpath)
    if any(os.access(Path(part) / program, os.X_OK) for part in path.split(os.pathsep) if part):
        return
    hint = f"windlass run -- ./{program}" if (folder / program).is_file() else f"which {program}"
    raise WindlassError(
        "WL-RUN-404", f'there is no program "{program}"', evidence=f"PATH is {path}", remedies=(hint,)
    )


def check_name(wish: Wish) -> None:
    """Raises :class:`WindlassError` on a name that no object may have."""
    if not wish.name:
        return
    from windlass.api.validation.names import dns_subdomain

    problems = dns_subdomain(wish.name)
    if problems:
        remedies = (f"--name {base_name((wish.name,))}",)
        raise WindlassError("WL-USE-400", f"--name {wish.name}: {problems[0]}", remedies=remedies)


def check_amounts(wish: Wish) -> None:
    """Raises :class:`WindlassError` on amounts that are no quantities."""
    flags = (
        ("--cpus", "cpu", wish.cpus),
        ("--memory", "memory", wish.memory),
        ("--gpu-memory", "memory", wish.gpu_memory),
        ("--gpus", GPU, str(wish.gpus or "")),
    )
    if wish.gpu_model and not (wish.gpus or wish.gpu_memory):
        raise WindlassError(
            "WL-USE-400",
            f"--gpu-model {wish.gpu_model} without a GPU",
            evidence="it says of which model the GPUs are that --gpus or --gpu-memory asks for",
            remedies=(f"--gpus 1 --gpu-model {wish.gpu_model}",),
        )
    for flag, name, text in flags:
        if not text:
            continue
        try:
            units = quantities.to_units(name, text)
        except quantities.QuantityError as error:
            remedies = [f"{flag} {meant}" for meant in _meant(text)]
            raise WindlassError("WL-USE-400", f"{flag} {text}: {error}", remedies=remedies) from error
        if units <= 0:
            raise WindlassError("WL-USE-400", f"{flag} {text} is not more than nothing")
        if name == "memory" and units < _LEAST_MEMORY:
            raise WindlassError(
                "WL-USE-400",
                f"{flag} {text} is {plural(units, 'byte')}"
                if text.isdecimal()
                else f"{flag} {text} is less than 1Mi",
                evidence="an amount of memory has a unit: 512Mi, 16Gi",
                remedies=(f"{flag} {text}Gi", f"{flag} {text}Mi") if text.isdecimal() else (f"{flag} 1Gi",),
            )


def _meant(text: str) -> list[str]:
    """``4G`` for ``4GB``, ``10Gi`` for ``10 gib``: amounts as Kubernetes writes them."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp])(i?)b?", text.lower())
    return [f"{found[1]}{found[2].upper()}{found[3]}"] if found else []


def no_gpus(wanted: int, *, running: bool = True) -> WindlassError:
    """The box has no accelerator at all. ``running``: the control plane has to be started anew."""
    up = f"windlass up --detach --gpus simulated:{max(2, wanted)}"
    return WindlassError(
        "WL-GPU-413",
        f"{wanted} GPU{'s were' if wanted > 1 else ' was'} asked for, and this box has none",
        evidence="the driver shows no device; the job was not submitted",
        remedies=(
            f"windlass down && {up}" if running else up,
            "run it without --gpus",
        ),
    )


def check_capacity(invocation: Invocation, wish: Wish) -> None:
    """What can never run is told before it is submitted, as far as this user may see it. A cluster may get nodes that
    it does not have yet: there the job is submitted, and a note says so. Raises :class:`WindlassError`."""
    _check_queue(invocation, wish)
    _check_priority(invocation, wish)
    nodes = unless_refused(lambda: invocation.client.list(NODES).items, None)
    if nodes is None:
        return
    try:
        _check_nodes(wish, nodes)
    except WindlassError as error:
        if not invocation.target.remote:
            raise
        what = error.message.replace("this box has none", "this cluster has none")
        invocation.note(f"note: {what}; it waits for nodes that have it")


def _check_nodes(wish: Wish, everywhere: Sequence[Mapping[str, Any]]) -> None:
    """Whether the nodes, empty, could ever hold it. Raises :class:`WindlassError`."""
    need = quantities.to_vector(wish.request)
    nodes = [node for node in everywhere if not (wish.followed and is_simulated(node))]
    if nodes != everywhere and not nodes:
        raise _only_simulated(len(everywhere))
    have = {node["metadata"]["name"]: amounts.allocatable(node) for node in nodes}
    if (wish.gpus or wish.gpu_memory) and not any(
        amounts.devices(amounts.allocatable(node)) or cards.read(notes_of(node)).cards for node in nodes
    ):
        raise no_gpus(max(1, wish.gpus))
    for name, units in need.items():
        largest = max(have, key=lambda node: have[node].get(name, 0), default=None)
        most = have[largest].get(name, 0) if largest is not None else 0
        if units > most:
            raise _too_large(wish, name, units, largest, most)
    if have and not any(quantities.fits(need, free) for free in have.values()):
        raise WindlassError(
            "WL-JOB-413",
            "no node has all that one rank needs",
            evidence=f"{_words(need)} at once; the largest nodes have one or the other, not together",
            remedies=("windlass node ls", "ask for less"),
        )
    rank = {**need, "pods": quantities.to_units("pods", "1")}
    places = sum(_copies(rank, free) for free in have.values())
    if have and places < wish.nodes:
        raise WindlassError(
            "WL-JOB-413",
            f"the cluster can never hold {wish.nodes} ranks of this size at once",
            evidence=f"each needs {_words(need) or 'a place'}; all nodes together, empty, hold {places}",
            remedies=(f"windlass run --nodes {places} …" if places else "ask for less", "windlass node ls"),
        )


def notes_of(node: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of an object."""
    return node["metadata"].get("annotations") or {}


def is_simulated(node: Mapping[str, Any]) -> bool:
    return (node["metadata"].get("labels") or {}).get(SIMULATED) == "true"


def _only_simulated(count: int) -> WindlassError:
    return WindlassError(
        "WL-JOB-413",
        "no node runs processes",
        evidence=f"{'all ' if count > 1 else ''}{count} node{'s are' if count > 1 else ' is'} simulated; "
        "a command could not run there, nor write a log; the job was not submitted",
        remedies=("windlass node ls", "windlass submit places a job on simulated nodes, for trying policies"),
    )


def _copies(need: Mapping[str, int], free: Mapping[str, int]) -> int:
    counts = [free.get(name, 0) // units for name, units in need.items() if units > 0]
    return min(counts, default=0)


def _words(need: Mapping[str, int]) -> str:
    shown = [resource_words(name, quantities.from_units(name, units)) for name, units in need.items()]
    return ", ".join(shown)


def _too_large(wish: Wish, name: str, units: int, largest: str | None, most: int) -> WindlassError:
    each = "each rank needs" if wish.nodes > 1 else "it needs"
    amount = quantities.from_units(name, most)
    return WindlassError(
        "WL-JOB-413",
        f"no node has {resource_words(name, quantities.from_units(name, units))}",
        evidence=(
            f"{each} {name} {quantities.from_units(name, units)}; the largest node"
            f"{f', {largest},' if largest else ''} has {amount}; the job was not submitted"
        ),
        remedies=("windlass node ls", f"ask for at most {resource_words(name, amount)} a node"),
    )


def _check_priority(invocation: Invocation, wish: Wish) -> None:
    """The server would take the job with priority 0; who names a class here wants that class."""
    client = invocation.client
    if (
        not wish.priority
        or unless_refused(lambda: client.find(PRIORITY_CLASSES, wish.priority), {}) is not None
    ):
        return
    known = sorted(item["metadata"]["name"] for item in invocation.client.list(PRIORITY_CLASSES).items)
    raise WindlassError(
        "WL-PRIORITY-404",
        f'there is no priority class "{wish.priority}"',
        evidence=f"classes there are: {', '.join(known)}; the job was not submitted",
        remedies=(
            *(f"did you mean {match}?" for match in nearest(wish.priority, known)),
            "windlass get priorityclasses",
        ),
    )


def _check_queue(invocation: Invocation, wish: Wish) -> None:
    client = invocation.client
    queue = unless_refused(lambda: client.find(QUEUES, wish.queue), {})
    if queue is None:
        known = unless_refused(lambda: client.list(QUEUES).items, [])
        raise missing("queues", wish.queue, [item["metadata"]["name"] for item in known])
    state = (queue.get("status") or {}).get("state") or "Open"
    if state != "Open":
        raise WindlassError(
            "WL-QUEUE-423",
            f'queue "{wish.queue}" is {state.lower()}',
            evidence="it takes no new work; the job was not submitted",
            remedies=(f"windlass queue set {wish.queue} state=Open", "windlass queue ls"),
        )
    limit = amounts.vector((queue.get("spec") or {}).get("capability"))
    need = quantities.to_vector(wish.request)
    for name, units in need.items():
        if name in limit and units * wish.nodes > limit[name]:
            raise WindlassError(
                "WL-QUEUE-413",
                f'queue "{wish.queue}" may never hold that much',
                evidence=(
                    f"{name}: the job needs {quantities.from_units(name, units * wish.nodes)}, the queue's "
                    f"capability is {quantities.from_units(name, limit[name])}"
                ),
                remedies=("windlass queue ls", f"windlass queue set {wish.queue} capability.{name}=…"),
            )
