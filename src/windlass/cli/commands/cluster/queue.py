"""``windlass queue``: fair shares, allocations and pending requests of queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.api.queues.opening import is_open, opening_commands, path_of, to_open
from windlass.api.queues.tree import ROOT
from windlass.api.resources import COMMANDS, QUEUES
from windlass.cli.command_group import NounGroup
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.options import completer, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.queues.queues import VolcanoQueueShare, depths, gather, volcano_shares
from windlass.cli.queues.settings import parse_settings
from windlass.cli.queues.share_reasons import reasons
from windlass.cli.queues.tree_checks import cluster_capacity, problems_of, unmet_guarantees
from windlass.cli.text import natural_key


@click.group("queue", cls=NounGroup)
def command() -> None:
    """Queues: ls, tree, create, set."""


_COLUMNS = [
    "QUEUE",
    "STATE",
    "GPUS",
    "WAITING",
    "FAIR SHARE",
    "GUARANTEE",
    "DESERVED",
    "LIMIT",
    "BORROWED",
    "WEIGHT",
    "PRIORITY",
    "RUNNING",
    "PENDING",
]
"""Columns from GPUS to BORROWED are numbers of GPUs; RUNNING and PENDING count jobs."""
_SWITCH_SECONDS = 5.0
"""Timeout in seconds for the queue controller to open or close a queue."""
_OPTIONAL = (
    *("PRIORITY", "WEIGHT", "BORROWED", "GUARANTEE", "DESERVED"),
    *("STATE", "FAIR SHARE", "LIMIT", "RUNNING"),
)
"""Columns that a narrow terminal omits, the first ones first."""


@command.command("ls")
@standard(namespace=False)
def list_queues(invocation: Invocation) -> int:
    """List queues with allocated and pending GPUs, fair share, guarantee, deserved and limit."""
    missing: dict[str, VolcanoQueueShare] = {}
    shares = sorted(gather(invocation, missing), key=lambda share: natural_key(share.name))
    done = _show(invocation, shares, {})
    _warn(invocation, shares, missing)
    return done


@command.command("tree")
@click.option(
    "--resource", default="", metavar="NAME", help="Resource of the explanations. [default: GPUs, else cpu]"
)
@standard(namespace=False)
def tree(invocation: Invocation, resource: str) -> int:
    """Show queues below their parents, and explain their fair shares."""
    missing: dict[str, VolcanoQueueShare] = {}
    shares = gather(invocation, missing)
    ordered = depths(shares)
    depth = {share.key: depth for share, depth in ordered}
    done = _show(invocation, [share for share, _ in ordered], depth)
    if not invocation.structured:
        for line in reasons([share for share, _ in ordered], resource):
            invocation.out.line(line)
    _warn(invocation, shares, missing)
    return done


def _warn(
    invocation: Invocation, shares: list[VolcanoQueueShare], missing: dict[str, VolcanoQueueShare]
) -> None:
    """Print problems to standard error, apart from the table."""
    for problem in problems_of(shares, missing, cluster_capacity(invocation, shares)):
        invocation.warn(str(problem))


def _warn_of_guarantees(invocation: Invocation, changed: Mapping[str, Any]) -> None:
    """Warn if the nodes have less than all queues are guaranteed, after a guarantee was changed."""
    if "guarantee" not in changed:
        return
    shares = list(volcano_shares(invocation).values())
    capacity = cluster_capacity(invocation, shares)
    for problem in unmet_guarantees(shares, capacity) if capacity is not None else ():
        invocation.warn(str(problem))


def _show(invocation: Invocation, shares: list[VolcanoQueueShare], depth: dict[str, int]) -> int:
    if invocation.structured:
        names = [share.full_name for share in shares]
        emit(invocation, {"items": [share.as_record() for share in shares]}, names=names)
        return 0
    rows = []
    for share in shares:
        indent = "  " * depth.get(share.key, 0)
        row = [
            indent + share.name,
            share.state,
            share.gpus("allocated"),
            share.gpus("waiting"),
            share.gpus("fair_share"),
            share.gpus("guarantee"),
            share.gpus("deserved"),
            share.gpus("capability"),
            share.borrowed_gpus,
            f"{share.weight:g}",
            str(share.priority),
            str(share.running),
            str(share.pending),
        ]
        if invocation.wide:
            row += [
                share.parent_name or "-",
                *(share.text(which) for which in ("allocated", "requested", "fair_share", "capability")),
            ]
        rows.append(row)
    wide = ["PARENT", "ALLOCATED", "REQUESTED", "SHARES", "LIMITS"]
    header = _COLUMNS + (wide if invocation.wide else [])
    wide_tables.show(invocation, header, rows, optional=_OPTIONAL, right=_COLUMNS[2:])
    return 0


@command.command("create")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@standard(namespace=False)
def create(invocation: Invocation, name: str, settings: tuple[str, ...]) -> int:
    """Create a queue: windlass queue create team-a weight=2 capability.nvidia.com/gpu=8 parent=root."""
    spec, state = parse_settings(settings)
    if state == "Closed":
        raise WindlassError(
            "WL-USE-400",
            "a queue cannot be created closed",
            remedies=(f"windlass queue create {name}", f"windlass queue set {name} state=Closed"),
        )
    queue = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
    }
    made = invocation.client.create(QUEUES, queue, field_validation="Strict")
    _warn_of_guarantees(invocation, spec)
    return _done(invocation, made, "created")


@command.command("set")
@click.argument("name", shell_complete=completer("queues"))
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@standard(namespace=False)
def change(invocation: Invocation, name: str, settings: tuple[str, ...]) -> int:
    """Change a queue: weight=2 capability.nvidia.com/gpu=8 state=Closed. KEY= removes a setting."""
    spec, state = parse_settings(settings)
    queue = invocation.client.get(QUEUES, name)
    if spec:
        queue = invocation.client.patch(QUEUES, name, {"spec": spec}, field_validation="Strict")
        _warn_of_guarantees(invocation, spec)
    if state:
        _switch(invocation, queue, state)
    return _done(invocation, queue, "changed")


def _switch(invocation: Invocation, queue: dict[str, Any], state: str) -> None:
    """Open or close a queue in Volcano's way, by a Command for the queue controller."""
    if state == "Open":
        _check_parents_open(invocation, queue["metadata"]["name"])
    elif queue["metadata"]["name"] == ROOT:
        raise WindlassError(
            "WL-QUEUE-422",
            "the root queue cannot be closed",
            evidence="it is the sum of all queues",
            remedies=("windlass queue ls", "windlass queue set NAME state=Closed"),
        )
    action = {"Open": "OpenQueue", "Closed": "CloseQueue"}[state]
    metadata = queue["metadata"]
    order = {
        "apiVersion": COMMANDS.api_version,
        "kind": COMMANDS.kind,
        "metadata": {"generateName": f"{metadata['name'][:40]}-", "namespace": "default"},
        "action": action,
        "target": {
            "apiVersion": QUEUES.api_version,
            "kind": QUEUES.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        },
    }
    invocation.client.create(COMMANDS, order)
    deadline = invocation.clock.monotonic() + _SWITCH_SECONDS
    while invocation.clock.monotonic() < deadline:
        now = (invocation.client.get(QUEUES, metadata["name"]).get("status") or {}).get("state")
        if now == state or (state == "Closed" and now == "Closing"):
            return
        invocation.clock.pause(0.02)
    raise WindlassError(
        "WL-QUEUE-504",
        f'queue "{metadata["name"]}" is not {state.lower()} yet',
        evidence="the queue controller did not execute the command within 5 s",
        remedies=("windlass status",),
    )


def _check_parents_open(invocation: Invocation, name: str) -> None:
    """Raise ``WL-QUEUE-423`` if a queue above is closed, as the queue controller then rejects the command.

    This waits for queues that open by themselves, because the queue above them was just opened.
    """
    deadline = invocation.clock.monotonic() + _SWITCH_SECONDS
    while True:
        known = unless_forbidden(lambda: invocation.client.list(QUEUES).items, [])
        queues = {item["metadata"]["name"]: item for item in known}
        shut = [above for above in path_of(queues, name)[1:] if not is_open(queues[above])]
        if not shut:
            return
        closed = [above for above in to_open(queues, name) if above != name]
        if closed or invocation.clock.monotonic() >= deadline:
            first = (closed or shut)[0]
            raise WindlassError(
                "WL-QUEUE-423",
                f'queue "{name}" cannot be opened: queue "{first}" above it is closed',
                evidence="a queue is open only while all queues above it are",
                remedies=(opening_commands(queues, name),),
            )
        invocation.clock.pause(0.02)


def _done(invocation: Invocation, queue: dict[str, Any], word: str) -> int:
    name = queue["metadata"]["name"]
    if invocation.structured:
        emit(invocation, queue, names=[f"queue.{QUEUES.group}/{name}"])
    else:
        invocation.out.line(f"queue/{name} {word}")
    return 0
