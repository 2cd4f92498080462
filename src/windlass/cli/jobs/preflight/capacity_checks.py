"""Checks of a job before it is submitted, for invalid values and impossible requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import quantities
from windlass.api.annotations import SIMULATED
from windlass.api.devices import node_annotation
from windlass.api.errors import WindlassError
from windlass.api.resources import NODES, PRIORITY_CLASSES
from windlass.cli import resources
from windlass.cli.errors import nearest, unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.preflight.queue_checks import check_queue
from windlass.cli.jobs.requests.job_builder import GPU, JobRequest, base_name
from windlass.cli.nodes.own_node import deleted_node
from windlass.cli.text import join_words, plural, readable, resource_text

_MIN_MEMORY_BYTES = 1 << 20
"""Minimum amount of memory in bytes. Below it, a unit was forgotten."""


def check_name(request: JobRequest) -> None:
    """Check the name of the job. Raises :class:`WindlassError`."""
    if not request.name:
        return
    from windlass.api.validation.names import dns_subdomain

    problems = dns_subdomain(request.name)
    if problems:
        remedies = (f"--name {base_name((request.name,))}",)
        raise WindlassError("WL-USE-400", f"--name {request.name}: {problems[0]}", remedies=remedies)


def check_amounts(request: JobRequest) -> None:
    """Check that amounts are quantities. Raises :class:`WindlassError`."""
    flags = (
        ("--cpus", "cpu", request.cpus),
        ("--memory", "memory", request.memory),
        ("--gpu-memory", "memory", request.gpu_memory),
        ("--gpus", GPU, str(request.gpus or "")),
    )
    if request.gpu_model and not (request.gpus or request.gpu_memory):
        raise WindlassError(
            "WL-USE-400",
            f"--gpu-model {request.gpu_model} needs --gpus or --gpu-memory",
            evidence="it names the model of the requested GPUs, and no GPU is requested",
            remedies=(f"--gpus 1 --gpu-model {request.gpu_model}",),
        )
    for flag, name, text in flags:
        if not text:
            continue
        try:
            units = quantities.to_units(name, text)
        except quantities.QuantityError as error:
            remedies = [f"{flag} {corrected}" for corrected in _corrected(text)]
            raise WindlassError("WL-USE-400", f"{flag} {text}: {error}", remedies=remedies) from error
        if units <= 0:
            raise WindlassError("WL-USE-400", f"{flag} {text} is not greater than 0")
        if units >= quantities.LIMIT:
            raise WindlassError("WL-USE-400", f"{flag} {text}: no machine has as much")
        if name == "memory" and units < _MIN_MEMORY_BYTES:
            raise WindlassError(
                "WL-USE-400",
                f"{flag} {text} is {plural(units, 'byte')}"
                if text.isascii() and text.isdecimal()
                else f"{flag} {text} is less than 1Mi",
                evidence="an amount of memory needs a unit: 512Mi, 16Gi",
                remedies=(f"{flag} {text}Gi", f"{flag} {text}Mi")
                if text.isascii() and text.isdecimal()
                else (f"{flag} 1Gi",),
            )


def _corrected(text: str) -> list[str]:
    """Return an amount in Kubernetes' syntax: ``4G`` for ``4GB``, ``10Gi`` for ``10 gib``."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp])(i?)b?", text.lower())
    corrected = f"{match[1]}{match[2].upper()}{match[3]}" if match else text
    return [corrected] if corrected != text else []


def no_gpus(wanted: int, *, running: bool = True) -> WindlassError:
    """Return the error for a machine without GPUs.

    ``running``: the control plane must be restarted.
    """
    up = f"windlass up --detach --gpus simulated:{max(2, wanted)}"
    return WindlassError(
        "WL-GPU-413",
        f"{wanted} GPU{'s were' if wanted > 1 else ' was'} requested, and this machine has none",
        evidence="the driver reports no device; the job was not submitted",
        remedies=(
            f"windlass down && {up}" if running else up,
            "omit --gpus",
        ),
    )


def check_capacity(invocation: Invocation, request: JobRequest) -> None:
    """Check queue, priority class and capacity, as far as this user may see them.

    A cluster may get nodes that it lacks now: there the job is submitted, and a note
    says so. Raises :class:`WindlassError`.
    """
    check_queue(invocation.client, request)
    _check_priority(invocation, request)
    nodes = unless_forbidden(lambda: invocation.client.list(NODES).items, None)
    if nodes is None:
        return
    none_runs = all(is_simulated(node) for node in nodes) and (request.followed or not nodes)
    if none_runs and (deleted := deleted_node(invocation)) is not None:
        raise deleted
    try:
        _check_nodes(request, nodes)
        check_domains(request, nodes)
        if only_simulated_fit(request, nodes):
            invocation.note(
                "note: only simulated nodes have what this job requests; they run no commands and write no logs"
            )
    except WindlassError as error:
        if not invocation.target.remote:
            raise
        what = error.message.replace("this machine has none", "this cluster has none")
        invocation.note(f"note: {what}; the job waits for such nodes")


def _check_nodes(request: JobRequest, all_nodes: Sequence[Mapping[str, Any]]) -> None:
    """Check that the nodes could hold the job if they were empty.

    Raises :class:`WindlassError`.
    """
    need = quantities.to_vector(request.request)
    nodes = [node for node in all_nodes if not (request.followed and is_simulated(node))]
    if nodes != all_nodes and not nodes:
        raise _only_simulated(len(all_nodes))
    have = {node["metadata"]["name"]: dict(resources.allocatable(node)) for node in nodes}
    if (request.gpus or request.gpu_memory) and not any(
        resources.devices(resources.allocatable(node)) or node_annotation.read(annotations_of(node)).cards
        for node in nodes
    ):
        if nodes != all_nodes:
            raise _only_simulated_gpus(all_nodes, request)
        raise no_gpus(max(1, request.gpus))
    if request.gpu_model:
        from windlass.cli.jobs.preflight import model_checks

        for node, count in model_checks.counts(request, nodes).items():
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
            "no node is large enough for one rank",
            evidence=f"one rank needs {_amounts_text(request, need)}; no node has enough of all of these",
            remedies=("windlass node ls", "request less"),
        )
    rank = {**need, "pods": quantities.to_units("pods", "1")}
    places = sum(_copies(rank, free) for free in have.values())
    if have and places < request.nodes:
        raise WindlassError(
            "WL-JOB-413",
            f"{request.nodes} ranks of this size do not fit in the cluster, even if it is empty",
            evidence=f"each rank needs {_amounts_text(request, need) or 'one pod'}; "
            f"all nodes together can hold {plural(places, 'rank')}",
            remedies=(
                f"{request.command_line} --nodes {places} …" if places else "request less",
                "windlass node ls",
            ),
        )


def annotations_of(node: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return node["metadata"].get("annotations") or {}


def is_simulated(node: Mapping[str, Any]) -> bool:
    return (node["metadata"].get("labels") or {}).get(SIMULATED) == "true"


def _only_simulated(count: int) -> WindlassError:
    return WindlassError(
        "WL-JOB-413",
        "no node runs processes",
        evidence=f"{'all ' if count > 1 else ''}{count} node{'s are' if count > 1 else ' is'} simulated; "
        "simulated nodes run no commands and write no logs; the job was not submitted",
        remedies=(
            "windlass node ls",
            "windlass submit …   (places the job on simulated nodes, to try policies)",
        ),
    )


def _only_simulated_gpus(all_nodes: Sequence[Mapping[str, Any]], request: JobRequest) -> WindlassError:
    simulated = [node["metadata"]["name"] for node in all_nodes if is_simulated(node)]
    own = [node["metadata"]["name"] for node in all_nodes if not is_simulated(node)]
    return WindlassError(
        "WL-GPU-413",
        f"{plural(max(1, request.gpus), 'GPU')} requested, and only simulated nodes may have them",
        evidence=f"{join_words(own)} {'have' if len(own) > 1 else 'has'} no GPU; "
        f"{', '.join(simulated[:3])}{' …' if len(simulated) > 3 else ''} "
        f"{'are' if len(simulated) > 1 else 'is'} simulated: nothing runs there; the job was not submitted",
        remedies=("omit --gpus", "windlass submit …   (places the job on simulated nodes, to try policies)"),
    )


def only_simulated_fit(request: JobRequest, nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether one rank fits on a simulated node, but on no other, even if all are empty."""
    need = quantities.to_vector(request.request)
    if request.followed or not any(is_simulated(node) for node in nodes):
        return False
    fitting = [node for node in nodes if quantities.fits(need, dict(resources.allocatable(node)))]
    if request.gpu_memory:
        fitting = [node for node in fitting if node_annotation.read(annotations_of(node)).cards]
    return bool(fitting) and all(is_simulated(node) for node in fitting)


def _copies(need: Mapping[str, int], free: Mapping[str, int]) -> int:
    counts = [free.get(name, 0) // units for name, units in need.items() if units > 0]
    return min(counts, default=0)


def _amounts_text(request: JobRequest, need: Mapping[str, int]) -> str:
    return ", ".join(_amount(request, name, units) for name, units in need.items())


def _amount(request: JobRequest, name: str, units: int) -> str:
    """Return an amount with its model: ``2 GPUs of model H100``, ``4 CPUs``."""
    of_model = f" of model {request.gpu_model}" if name == GPU and request.gpu_model else ""
    return resource_text(name, quantities.from_units(name, units)) + of_model


def _too_large(request: JobRequest, name: str, units: int, largest: str | None, most: int) -> WindlassError:
    each = "each rank needs" if request.nodes > 1 else "it needs"
    amount = readable(name, quantities.from_units(name, most))
    return WindlassError(
        "WL-JOB-413",
        f"no node has {_amount(request, name, units)}",
        evidence=(
            f"{each} {name} {quantities.from_units(name, units)}; the largest node"
            f"{f', {largest},' if largest else ''} has {amount}; the job was not submitted"
        ),
        remedies=("windlass node ls", f"request at most {_amount(request, name, most)} per rank"),
    )


def _check_priority(invocation: Invocation, request: JobRequest) -> None:
    """Check that the priority class exists.

    The server would accept the job with priority 0.
    """
    client = invocation.client
    if (
        not request.priority
        or unless_forbidden(lambda: client.find(PRIORITY_CLASSES, request.priority), {}) is not None
    ):
        return
    known = sorted(item["metadata"]["name"] for item in invocation.client.list(PRIORITY_CLASSES).items)
    raise WindlassError(
        "WL-PRIORITY-404",
        f'priority class "{request.priority}" does not exist',
        evidence=f"existing classes: {', '.join(known)}; the job was not submitted",
        remedies=(
            *(f"did you mean {match}?" for match in nearest(request.priority, known)),
            "windlass get priorityclasses",
        ),
    )


def check_near(request: JobRequest) -> None:
    """Check that ``--near`` is a valid name of a label. Raises :class:`WindlassError`."""
    if not request.near:
        return
    from windlass.api.validation.names import qualified_name

    if problems := qualified_name(request.near):
        raise WindlassError(
            "WL-USE-400",
            f"--near {request.near!r} is not a valid label: {problems[0]}",
            remedies=("--near topology.kubernetes.io/zone",),
        )


def check_domains(request: JobRequest, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Check that a node has the label of ``--near``. Raises :class:`WindlassError`."""
    known = {name for node in nodes for name in node["metadata"].get("labels") or {}}
    if not request.near or request.near in known:
        return
    suffixes: dict[str, str] = {}
    for name in sorted(known):
        suffixes.setdefault(name.rpartition("/")[2], name)
    close = [*nearest(request.near, known), *(suffixes[suffix] for suffix in nearest(request.near, suffixes))]
    raise WindlassError(
        "WL-JOB-413",
        f"no node has the label {request.near}, which --near names for all ranks",
        evidence="the job was not submitted",
        remedies=(
            *(f"--near {name}" for name in dict.fromkeys(close)),
            f"kubectl label node NODE {request.near}=VALUE",
        ),
    )
