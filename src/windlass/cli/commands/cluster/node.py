"""``windlass node``: resources and holders of nodes; cordon and drain."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import click

from windlass.api.devices.numa_annotations import POLICIES
from windlass.api.errors import WindlassError
from windlass.api.resources import NODES
from windlass.cli import errors
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.options import completer, standard, yes_flag
from windlass.cli.output.formats import emit
from windlass.cli.text import plural

if TYPE_CHECKING:
    pass


@click.group("node", cls=NounGroup)
def command() -> None:
    """Nodes: ls, tree, add-simulated, cordon, uncordon, drain."""


@command.command("ls")
@standard(namespace=False)
def list_nodes(invocation: Invocation) -> int:
    """List nodes with free, stranded and used GPUs, and their holders.

    GPUS counts physical GPUs. If a device plugin divides GPUs into units (time-slicing, MPS, MIG), UNITS shows how
    many units are used, and FREE is what is left, as a number of GPUs.
    """
    from windlass.cli.nodes.node_table import show

    return show(invocation)


@command.command("tree")
@click.argument("name", required=False, metavar="[TOPOLOGY|LABEL]")
@standard(namespace=False)
def tree(invocation: Invocation, name: str | None) -> int:
    """Show the domains of topologies with nodes and free GPUs.

    Without a name: the HyperNodes and all Topologies. A name is that of a Topology, hypernodes, or a node label
    such as topology.kubernetes.io/zone or nvidia.com/gpu.clique.
    """
    from windlass.cli.nodes.topology_view import show

    return show(invocation, name)


@command.command("add-simulated")
@click.option(
    "--count", type=click.IntRange(1, 100_000), default=1, metavar="N", help="Number of nodes (default: 1)."
)
@click.option(
    "-g", "--gpus", type=click.IntRange(0), default=8, metavar="N", help="GPUs per node (default: 8)."
)
@click.option("--cpu", default="64", metavar="AMOUNT", help="CPUs per node (default: 64).")
@click.option("--memory", default="256Gi", metavar="AMOUNT", help="Memory per node (default: 256Gi).")
@click.option("--product", default="Simulated-GPU", metavar="NAME", help="GPU model, as in the node label.")
@click.option(
    "--devices",
    default="",
    metavar="GPUS",
    help="GPUs with memory and MIG: 8xH100-80GB, 2xA100-40GB+mig,1xT4.",
)
@click.option("--cards", default="", metavar="GPUS", hidden=True, help="Former name of --devices.")
@click.option(
    "--zones",
    type=click.IntRange(0, 8),
    default=0,
    metavar="N",
    help="NUMA nodes per node (default: no NUMA information).",
)
@click.option(
    "--topology-manager-policy",
    type=click.Choice(POLICIES),
    default="none",
    help="NUMA policy, as that of the kubelet.",
)
@click.option(
    "--topology-manager-scope",
    type=click.Choice(("container", "pod")),
    default="container",
    help="Scope of the alignment: each container, or the whole pod.",
)
@click.option(
    "--kubelet-flags",
    metavar="FILE",
    help="File with flags of the kubelet: --max-pods, --kube-reserved, --system-reserved …",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label; may be repeated.")
@click.option("--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Taint; may be repeated.")
@click.option(
    "--resource", "resources", multiple=True, metavar="NAME=AMOUNT", help="Another resource; may be repeated."
)
@click.option(
    "--prefix", default="sim", metavar="NAME", help="Names are PREFIX-0, PREFIX-1 … (default: sim)."
)
@standard(namespace=False)
def add_simulated(
    invocation: Invocation,
    count: int,
    gpus: int,
    cpu: str,
    memory: str,
    product: str,
    devices: str,
    cards: str,
    labels: tuple[str, ...],
    taints: tuple[str, ...],
    resources: tuple[str, ...],
    prefix: str,
    zones: int,
    topology_manager_policy: str,
    topology_manager_scope: str,
    kubelet_flags: str | None,
) -> int:
    """Add simulated nodes, to try policies: their pods run for a declared time."""
    from windlass.cli.nodes.kubelet_options import parsed_file
    from windlass.cli.nodes.simulated_nodes import (
        SimulatedNodeShape,
        node_of,
        parse_label,
        parse_resource,
        parse_taint,
    )

    shape = SimulatedNodeShape(
        kubelet=parsed_file(invocation, kubelet_flags),
        gpus=gpus,
        cpu=cpu,
        memory=memory,
        product=product,
        devices=devices or cards,
        labels=dict(parse_label(text) for text in labels),
        taints=tuple(parse_taint(text) for text in taints),
        resources=dict(parse_resource(text) for text in resources),
        zones=zones,
        policy=topology_manager_policy,
        scope=topology_manager_scope,
    )
    existing = {node["metadata"]["name"] for node in invocation.client.list(NODES).items}
    free = (name for number in itertools.count() if (name := f"{prefix}-{number}") not in existing)
    names = list(itertools.islice(free, count))
    for name in names:
        node = node_of(name, shape)
        invocation.client.create(NODES, node, field_validation="Strict")
        # A patch, as the node agent may have updated the node already.
        invocation.client.patch(NODES, name, {"status": node["status"]}, subresource="status")
    if invocation.structured:
        emit(invocation, {"items": names}, names=[f"node/{name}" for name in names])
        return 0
    shown = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    invocation.out.line(f"added {plural(len(names), 'simulated node')}: {shown}")
    return 0


def _cordon(invocation: Invocation, nodes: tuple[str, ...], *, closed: bool) -> int:
    word = "cordoned" if closed else "uncordoned"
    patch = {"spec": {"unschedulable": True if closed else None}}
    for name in nodes:
        before = invocation.client.get(NODES, name)
        same = bool((before.get("spec") or {}).get("unschedulable")) == closed
        if not same:
            invocation.client.patch(NODES, name, patch)
        if not invocation.structured:
            invocation.out.line(f"node/{name} {'already ' if same else ''}{word}")
    if invocation.structured:
        emit(invocation, {"items": list(nodes)}, names=[f"node/{name}" for name in nodes])
    return 0


@command.command("cordon")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=completer("nodes"))
@standard(namespace=False)
def cordon(invocation: Invocation, nodes: tuple[str, ...]) -> int:
    """Mark nodes as unschedulable, so that no new pods are placed there."""
    return _cordon(invocation, nodes, closed=True)


@command.command("uncordon")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=completer("nodes"))
@standard(namespace=False)
def uncordon(invocation: Invocation, nodes: tuple[str, ...]) -> int:
    """Mark nodes as schedulable again."""
    return _cordon(invocation, nodes, closed=False)


@command.command("drain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=completer("nodes"))
@click.option("--grace-period", type=click.IntRange(0), metavar="SECONDS", help="Grace period of pods.")
@click.option("--timeout", default="5m", metavar="DURATION", help="Timeout (default: 5m).")
@yes_flag()
@standard(namespace=False)
def drain_nodes(
    invocation: Invocation, nodes: tuple[str, ...], grace_period: int | None, timeout: str, yes: bool
) -> int:
    """Cordon nodes, then evict their pods as disruption budgets allow. Pods of DaemonSets stay."""
    from windlass.cli.jobs.logs.log_lines import duration_seconds
    from windlass.cli.nodes.drain import drain, lost_pods_text, pods_to_evict

    timeout_seconds = duration_seconds("--timeout", timeout)
    for node in nodes:
        invocation.client.get(NODES, node)
    pods = [pod for node in nodes for pod in pods_to_evict(invocation, node)]
    if pods and not yes:
        lost = lost_pods_text(pods)
        if invocation.out.interactive:
            question = f"Evict {plural(len(pods), 'pod')} from {', '.join(nodes)}?"
            click.confirm(f"{lost}\n{question}" if lost else question, abort=True, err=True)
        elif lost:
            remedy = f"windlass node drain {' '.join(nodes)} --yes"
            raise WindlassError("WL-NODE-409", lost, remedies=(remedy,))
    _cordon(invocation, nodes, closed=True)  # all nodes first, so that no pod moves from one to another
    deadline = invocation.clock.monotonic() + timeout_seconds
    for node in nodes:
        left = max(0.0, deadline - invocation.clock.monotonic())
        evicted = drain(invocation, node, grace_seconds=grace_period, timeout_seconds=left)
        if not invocation.structured:
            invocation.out.line(f"node/{node} drained: {plural(len(evicted), 'pod')} evicted")
    return errors.OK
