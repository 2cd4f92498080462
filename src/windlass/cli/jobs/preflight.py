"""What can be told of a job before it is submitted: what was typed wrong, and what could never run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.api import quantities
from windlass.api.annotations import SIMULATED
from windlass.api.devices import node_annotation
from windlass.api.errors import WindlassError
from windlass.api.resources import NODES, PRIORITY_CLASSES, QUEUES
from windlass.cli import resources
from windlass.cli.errors import missing, nearest, unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_builder import GPU, JobRequest, base_name
from windlass.cli.jobs.preflight_topology import check_domains
from windlass.cli.text import plural, resource_text

_LEAST_MEMORY = 1 << 20
"""Bytes: less is a unit forgotten."""


def check_command(request: JobRequest, environ: Mapping[str, str]) -> None:
    """On this box: the program has to exist. Raises :class:`WindlassError`."""
    program = request.command[0]
    folder = Path(request.workdir or os.getcwd())
    if not folder.is_dir():
        raise WindlassError(
            "WL-RUN-404",
            f"the working directory {folder} does not exist",
            evidence=f"--workdir {request.workdir}",
            remedies=(f"{request.command_line} --workdir DIR -- …",),
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
    hint = f"{request.command_line} -- ./{program}" if (folder / program).is_file() else f"which {program}"
    raise WindlassError(
        "WL-RUN-404", f'there is no program "{program}"', evidence=f"PATH is {path}", remedies=(hint,)
    )


def check_name(request: JobRequest) -> None:
    """Raises :class:`WindlassError` on a name that no object may have."""
    if not request.name:
        return
    from windlass.api.validation.names import dns_subdomain

    problems = dns_subdomain(request.name)
    if problems:
        remedies = (f"--name {base_name((request.name,))}",)
        raise WindlassError("WL-USE-400", f"--name {request.name}: {problems[0]}", remedies=remedies)


def check_amounts(request: JobRequest) -> None:
    """Raises :class:`WindlassError` on amounts that are no quantities."""
    flags = (
        ("--cpus", "cpu", request.cpus),
        ("--memory", "memory", request.memory),
        ("--gpu-memory", "memory", request.gpu_memory),
        ("--gpus", GPU, str(request.gpus or "")),
    )
    if request.gpu_model and not (request.gpus or request.gpu_memory):
        raise WindlassError(
            "WL-USE-400",
            f"--gpu-model {request.gpu_model} without a GPU",
            evidence="it says of which model the GPUs are that --gpus or --gpu-memory asks for",
            remedies=(f"--gpus 1 --gpu-model {request.gpu_model}",),
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
    meant = f"{found[1]}{found[2].upper()}{found[3]}" if found else text
    return [meant] if meant != text else []


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


def check_capacity(invocation: Invocation, request: JobRequest) -> None:
    """What can never run is told before it is submitted, as far as this user may see it. A cluster may get nodes that
    it does not have yet: there the job is submitted, and a note says so. Raises :class:`WindlassError`."""
    _check_queue(invocation, request)
    _check_priority(invocation, request)
    nodes = unless_forbidden(lambda: invocation.client.list(NODES).items, None)
    if nodes is None:
        return
    try:
        _check_nodes(request, nodes)
        check_domains(request, nodes)
    except WindlassError as error:
        if not invocation.target.remote:
            raise
        what = error.message.replace("this box has none", "this cluster has none")
        invocation.note(f"note: {what}; it waits for nodes that have it")


def _check_nodes(request: JobRequest, everywhere: Sequence[Mapping[str, Any]]) -> None:
    """Whether the nodes, empty, could ever hold it. Raises :class:`WindlassError`."""
    need = quantities.to_vector(request.request)
    nodes = [node for node in everywhere if not (request.followed and is_simulated(node))]
    if nodes != everywhere and not nodes:
        raise _only_simulated(len(everywhere))
    have = {node["metadata"]["name"]: dict(resources.allocatable(node)) for node in nodes}
    if (request.gpus or request.gpu_memory) and not any(
        resources.devices(resources.allocatable(node)) or node_annotation.read(notes_of(node)).cards
        for node in nodes
    ):
        raise no_gpus(max(1, request.gpus))
    if request.gpu_model:
        from windlass.cli.jobs import preflight_models

        for node, count in preflight_models.counts(request, nodes).items():
            of_model = quantities.to_units(GPU, str(count))
            have[node][GPU] = min(have[node].get(GPU, 0), of_model)
    for name, units in need.items():
        largest = max(have, key=lambda node: have[node].get(name, 0), default=None)
        most = have[largest].get(name, 0) if largest is not None else 0
        if units > most:
            raise _too_large(request, name, units, largest, most)
    if have and not any(quantities.fits(need, free) for free in have.values()):
        raise WindlassError(
            "WL-JOB-413",
            "no node has all that one rank needs",
            evidence=f"{_words(request, need)} at once; the largest nodes have one or the other, not together",
            remedies=("windlass node ls", "ask for less"),
        )
    rank = {**need, "pods": quantities.to_units("pods", "1")}
    places = sum(_copies(rank, free) for free in have.values())
    if have and places < request.nodes:
        raise WindlassError(
            "WL-JOB-413",
            f"the cluster can never hold {request.nodes} ranks of this size at once",
            evidence=f"each needs {_words(request, need) or 'a place'}; all nodes together, empty, hold {places}",
            remedies=(
                f"{request.command_line} --nodes {places} …" if places else "ask for less",
                "windlass node ls",
            ),
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


def _words(request: JobRequest, need: Mapping[str, int]) -> str:
    return ", ".join(_amount(request, name, units) for name, units in need.items())


def _amount(request: JobRequest, name: str, units: int) -> str:
    """``2 GPUs of model H100``, ``4 CPUs``."""
    of_model = f" of model {request.gpu_model}" if name == GPU and request.gpu_model else ""
    return resource_text(name, quantities.from_units(name, units)) + of_model


def _too_large(request: JobRequest, name: str, units: int, largest: str | None, most: int) -> WindlassError:
    each = "each rank needs" if request.nodes > 1 else "it needs"
    amount = quantities.from_units(name, most)
    return WindlassError(
        "WL-JOB-413",
        f"no node has {_amount(request, name, units)}",
        evidence=(
            f"{each} {name} {quantities.from_units(name, units)}; the largest node"
            f"{f', {largest},' if largest else ''} has {amount}; the job was not submitted"
        ),
        remedies=("windlass node ls", f"ask for at most {_amount(request, name, most)} a node"),
    )


def _check_priority(invocation: Invocation, request: JobRequest) -> None:
    """The server would take the job with priority 0; who names a class here wants that class."""
    client = invocation.client
    if (
        not request.priority
        or unless_forbidden(lambda: client.find(PRIORITY_CLASSES, request.priority), {}) is not None
    ):
        return
    known = sorted(item["metadata"]["name"] for item in invocation.client.list(PRIORITY_CLASSES).items)
    raise WindlassError(
        "WL-PRIORITY-404",
        f'there is no priority class "{request.priority}"',
        evidence=f"classes there are: {', '.join(known)}; the job was not submitted",
        remedies=(
            *(f"did you mean {match}?" for match in nearest(request.priority, known)),
            "windlass get priorityclasses",
        ),
    )


def _check_queue(invocation: Invocation, request: JobRequest) -> None:
    client = invocation.client
    queue = unless_forbidden(lambda: client.find(QUEUES, request.queue), {})
    if queue is None:
        known = unless_forbidden(lambda: client.list(QUEUES).items, [])
        raise missing("queues", request.queue, [item["metadata"]["name"] for item in known])
    state = (queue.get("status") or {}).get("state") or "Open"
    if state != "Open":
        raise WindlassError(
            "WL-QUEUE-423",
            f'queue "{request.queue}" is {state.lower()}',
            evidence="it takes no new work; the job was not submitted",
            remedies=(f"windlass queue set {request.queue} state=Open", "windlass queue ls"),
        )
    limit = resources.vector((queue.get("spec") or {}).get("capability"))
    need = quantities.to_vector(request.request)
    for name, units in need.items():
        if name in limit and units * request.nodes > limit[name]:
            raise WindlassError(
                "WL-QUEUE-413",
                f'queue "{request.queue}" may never hold that much',
                evidence=(
                    f"{name}: the job needs {quantities.from_units(name, units * request.nodes)}, the queue's "
                    f"capability is {quantities.from_units(name, limit[name])}"
                ),
                remedies=("windlass queue ls", f"windlass queue set {request.queue} capability.{name}=…"),
            )
