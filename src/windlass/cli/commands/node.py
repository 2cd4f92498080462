"""``windlass node``: what each node has, who holds it, and taking nodes out of use."""

from __future__ import annotations

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
    """List nodes: GPUs free, stranded and used, and by whom.

    GPUS counts cards. Where a device plug-in makes several units of a card (time-slicing, MPS, MIG), UNITS says how
    many of them are used, and FREE is what is left in cards.
    """
    from windlass.cli.nodes.node_table import show

    return show(invocation)


@command.command("tree")
@click.argument("name", required=False, metavar="[TOPOLOGY|LABEL]")
@standard(namespace=False)
def tree(invocation: Invocation, name: str | None) -> int:
    """Show the domains of topologies: nodes and free GPUs.

    Without a name: the HyperNodes and every Topology. A name is that of a Topology, hypernodes, or a label of
    nodes such as topology.kubernetes.io/zone or nvidia.com/gpu.clique.
    """
    from windlass.cli.nodes.topology_view import show

    return show(invocation, name)


@command.command("add-simulated")
@click.option(
    "--count", type=click.IntRange(1, 100_000), default=1, metavar="N", help="How many (default: 1)."
)
@click.option("-g", "--gpus", type=click.IntRange(0), default=8, metavar="N", help="GPUs each (default: 8).")
@click.option("--cpu", default="64", metavar="AMOUNT", help="CPUs each (default: 64).")
@click.option("--memory", default="256Gi", metavar="AMOUNT", help="Memory each (default: 256Gi).")
@click.option("--product", default="Simulated-GPU", metavar="NAME", help="GPU model, as in its node label.")
@click.option(
    "--devices",
    default="",
    metavar="GPUS",
    help="GPUs with memory and MIG: 8xH100-80GB, 2xA100-40GB+mig,1xT4.",
)
@click.option("--cards", default="", hidden=True, help="Former name of --devices.")
@click.option(
    "--zones",
    type=click.IntRange(0, 8),
    default=0,
    metavar="N",
    help="NUMA zones each (default: none are told of).",
)
@click.option(
    "--topology-manager-policy",
    type=click.Choice(POLICIES),
    default="none",
    help="How pods are aligned to zones, as the kubelet's.",
)
@click.option(
    "--topology-manager-scope",
    type=click.Choice(("container", "pod")),
    default="container",
    help="Aligned container by container, or the pod as one.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; may be repeated.")
@click.option("--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="A taint; repeatable.")
@click.option("--resource", "resources", multiple=True, metavar="NAME=AMOUNT", help="Another resource.")
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
) -> int:
    """Add nodes without machines, for trying policies: their pods run for a declared time."""
    from windlass.cli.nodes.simulated_nodes import (
        SimulatedNodeShape,
        node_of,
        parse_label,
        parse_resource,
        parse_taint,
    )

    shape = SimulatedNodeShape(
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
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"{prefix}-{number}"
        number += 1
        if name in existing:
            continue
        node = node_of(name, shape)
        invocation.client.create(NODES, node, field_validation="Strict")
        # A patch, since whoever plays the node may have greeted it already.
        invocation.client.patch(NODES, name, {"status": node["status"]}, subresource="status")
        names.append(name)
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
    """Let no new pods onto nodes."""
    return _cordon(invocation, nodes, closed=True)


@command.command("uncordon")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=completer("nodes"))
@standard(namespace=False)
def uncordon(invocation: Invocation, nodes: tuple[str, ...]) -> int:
    """Let new pods onto nodes again."""
    return _cordon(invocation, nodes, closed=False)


@command.command("drain")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=completer("nodes"))
@click.option("--grace-period", type=click.IntRange(0), metavar="SECONDS", help="Time for pods to end.")
@click.option("--timeout", default="5m", metavar="DURATION", help="Give up after (default: 5m).")
@yes_flag()
@standard(namespace=False)
def drain_nodes(
    invocation: Invocation, nodes: tuple[str, ...], grace_period: int | None, timeout: str, yes: bool
) -> int:
    """Cordon nodes, then evict their pods, within what their disruption budgets allow. Those of DaemonSets stay."""
    from windlass.cli.jobs.log_lines import duration_seconds
    from windlass.cli.nodes.drain import drain, to_go, what_is_lost

    patience = duration_seconds("--timeout", timeout)
    for node in nodes:
        invocation.client.get(NODES, node)
    going = [pod for node in nodes for pod in to_go(invocation, node)]
    if going and not yes:
        lost = what_is_lost(going)
        if invocation.out.interactive:
            asked = f"Evict {plural(len(going), 'pod')} from {', '.join(nodes)}?"
            click.confirm(f"{lost}\n{asked}" if lost else asked, abort=True, err=True)
        elif lost:
            remedy = f"windlass node drain {' '.join(nodes)} --yes"
            raise WindlassError("WL-NODE-409", lost, remedies=(remedy,))
    _cordon(invocation, nodes, closed=True)  # all, before a pod of the first could go to the second
    deadline = invocation.clock.monotonic() + patience
    for node in nodes:
        left = max(0.0, deadline - invocation.clock.monotonic())
        evicted = drain(invocation, node, grace_seconds=grace_period, patience_seconds=left)
        if not invocation.structured:
            invocation.out.line(f"node/{node} drained: {plural(len(evicted), 'pod')} evicted")
    return errors.OK
