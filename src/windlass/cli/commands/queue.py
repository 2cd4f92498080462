"""``windlass queue``: what each queue is owed, holds and waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.api.resources import COMMANDS, QUEUES
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.options import completer, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.queues.queues import VolcanoQueueShare, depths, gather, volcano_shares
from windlass.cli.queues.settings import parse_settings
from windlass.cli.queues.share_reasons import reasons
from windlass.cli.queues.tree_checks import gaps, offered, promised_in_vain
from windlass.cli.text import natural_key


@click.group("queue", cls=NounGroup)
def command() -> None:
    """Queues: ls, tree, create, set."""


_COLUMNS = [
    "QUEUE",
    "STATE",
    "GPUS",
    "WAIT",
    "FAIR",
    "GUAR",
    "DESV",
    "CAP",
    "BORROW",
    "WEIGHT",
    "PRIO",
    "RUN",
    "PEND",
]
_SPARE = ("PRIO", "WEIGHT", "BORROW", "STATE", "FAIR", "DESV", "GUAR", "CAP", "RUN")


@command.command("ls")
@standard(namespace=False)
def list_queues(invocation: Invocation) -> int:
    """List queues: what they hold, wait for, are due, are guaranteed, deserve and may hold at most."""
    nowhere: dict[str, VolcanoQueueShare] = {}
    shares = sorted(gather(invocation, nowhere), key=lambda share: natural_key(share.name))
    done = _show(invocation, shares, {})
    _warn(invocation, shares, nowhere)
    return done


@command.command("tree")
@click.option(
    "--resource", default="", metavar="NAME", help="Say why for this resource. [default: GPUs, else cpu]"
)
@standard(namespace=False)
def tree(invocation: Invocation, resource: str) -> int:
    """Show queues under their parents, and why each has the share it has."""
    nowhere: dict[str, VolcanoQueueShare] = {}
    shares = gather(invocation, nowhere)
    ordered = depths(shares)
    depth = {share.key: depth for share, depth in ordered}
    done = _show(invocation, [share for share, _ in ordered], depth)
    if not invocation.structured:
        for line in reasons([share for share, _ in ordered], resource):
            invocation.out.line(line)
    _warn(invocation, shares, nowhere)
    return done


def _warn(
    invocation: Invocation, shares: list[VolcanoQueueShare], nowhere: dict[str, VolcanoQueueShare]
) -> None:
    """On the error stream: the table stays what it is."""
    for gap in gaps(shares, nowhere, offered(invocation, shares)):
        invocation.warn(str(gap))


def _warn_of_promises(invocation: Invocation, changed: Mapping[str, Any]) -> None:
    """After a queue's guarantee was set: whether the nodes have what all queues are guaranteed."""
    if "guarantee" not in changed:
        return
    shares = list(volcano_shares(invocation).values())
    have = offered(invocation, shares)
    for gap in promised_in_vain(shares, have) if have is not None else ():
        invocation.warn(str(gap))


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
    wide = ["PARENT", "ALLOCATED", "REQUESTED", "FAIR SHARE", "CAPABILITY"]
    header = _COLUMNS + (wide if invocation.wide else [])
    wide_tables.show(invocation, header, rows, spare=_SPARE, right=_COLUMNS[2:])
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
            "a new queue is open",
            remedies=(f"windlass queue create {name}", f"windlass queue set {name} state=Closed"),
        )
    queue = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
    }
    made = invocation.client.create(QUEUES, queue, field_validation="Strict")
    _warn_of_promises(invocation, spec)
    return _done(invocation, made, "created")


@command.command("set")
@click.argument("name", shell_complete=completer("queues"))
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@standard(namespace=False)
def change(invocation: Invocation, name: str, settings: tuple[str, ...]) -> int:
    """Change a queue: weight=2 capability.nvidia.com/gpu=8 state=Closed; KEY= removes."""
    spec, state = parse_settings(settings)
    queue = invocation.client.get(QUEUES, name)
    if spec:
        queue = invocation.client.patch(QUEUES, name, {"spec": spec}, field_validation="Strict")
        _warn_of_promises(invocation, spec)
    if state:
        _switch(invocation, queue, state)
    return _done(invocation, queue, "changed")


def _switch(invocation: Invocation, queue: dict[str, Any], state: str) -> None:
    """Open or close, the Volcano way: a Command that the queue controller carries out."""
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
    deadline = invocation.clock.monotonic() + 5.0
    while invocation.clock.monotonic() < deadline:
        now = (invocation.client.get(QUEUES, metadata["name"]).get("status") or {}).get("state")
        if now == state or (state == "Closed" and now == "Closing"):
            return
        invocation.clock.pause(0.02)
    raise WindlassError(
        "WL-QUEUE-504",
        f'queue "{metadata["name"]}" has not become {state.lower()}',
        evidence="the queue controller did not carry out the command within 5 s",
        remedies=("windlass status",),
    )


def _done(invocation: Invocation, queue: dict[str, Any], word: str) -> int:
    name = queue["metadata"]["name"]
    if invocation.structured:
        emit(invocation, queue, names=[f"queue.{QUEUES.group}/{name}"])
    else:
        invocation.out.line(f"queue/{name} {word}")
    return 0
