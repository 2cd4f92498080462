"""``windlass gpu``: every card with its health, shares, slices and who has them."""

from __future__ import annotations

from typing import Any

import click

from windlass.api import annotations
from windlass.api.devices.models import short_type
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NODES, PODS
from windlass.cli import errors, tables
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.nodes import device_table
from windlass.cli.nodes.dra_devices import claims_of, slices_of
from windlass.cli.options import completer, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import natural_key
from windlass.kits.timestamps import rfc3339_micro

_TRIES = 5
"""Of a change that others may come before."""


class _GpuGroup(NounGroup):
    """``windlass gpu [NODE]`` is ``windlass gpu ls [NODE]``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


@click.group("gpu", cls=_GpuGroup)
def command() -> None:
    """GPUs: ls, clear."""


@command.command("ls")
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=completer("nodes"))
@standard(namespace=False)
def list_devices(invocation: Invocation, nodes: tuple[str, ...]) -> int:
    """List cards: model, memory, health, shares and slices, who has them, and what is free."""
    found = invocation.client.list(NODES).items
    if nodes:
        known = {node["metadata"]["name"] for node in found}
        for name in nodes:
            if name not in known:
                invocation.client.get(NODES, name)  # says that it is not there, with the nearest names
        found = [node for node in found if node["metadata"]["name"] in nodes]
    found.sort(key=lambda node: natural_key(node["metadata"]["name"]))
    claims = claims_of(invocation.client, slices_of(invocation.client))
    rows = device_table.rows_of(found, invocation.client.list(PODS).items, claims)
    if invocation.structured:
        records = [device_table.record(row) for row in rows]
        emit(invocation, {"items": records}, names=[f"gpu/{r['node']}/{r['index']}" for r in records])
        return errors.OK
    if not rows:
        invocation.note("No cards. windlass doctor says why; to try without: windlass up --gpus simulated:2")
        return errors.OK
    _show(invocation, rows)
    return errors.OK


def _show(invocation: Invocation, rows: list[device_table.DeviceRow]) -> None:
    header = ["NODE", "CARD", "MODEL", "MEMORY", "HEALTH", "FREE", "MODE", "HELD BY"]
    lines = []
    for row in rows:
        card = row.card
        line = [
            row.node,
            str(card.index),
            card.model or card.resource,
            device_table.memory_text(card.memory_mib),
            "ok" if card.healthy else card.reason or "bad",
            device_table.free_text(row),
            device_table.mode_text(row),
        ]
        if invocation.wide:
            line += [
                str(card.numa) if card.numa >= 0 else "-",
                str(card.link_group) if card.link_group >= 0 else "-",
                card.pci or "-",
                card.uuid or "-",
            ]
        lines.append([*line, device_table.holder_text(row)])
    if invocation.wide:
        header[-1:-1] = ["NUMA", "LINK", "PCI", "UUID"]
    if tables.too_wide(header, lines, wide_tables.room(invocation)):
        for line in lines:  # of little room, models in short leave who has the card readable
            line[2] = short_type(line[2]) or line[2]
    wide_tables.show(invocation, header, lines, spare=("MODE", "HEALTH", "MEMORY"), right=("CARD", "MEMORY"))


def _declaring(words: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """The change of a Node that adds to what its agent has not heard yet, if nobody else was faster."""
    outstanding = (metadata.get("annotations") or {}).get(annotations.CLEAR_BAD_DEVICES, "")
    text = ";".join(filter(None, (outstanding, words)))
    return {
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {annotations.CLEAR_BAD_DEVICES: text},
        }
    }


@command.command("clear")
@click.argument("node", metavar="NODE", shell_complete=completer("nodes"))
@click.argument("cards", nargs=-1, required=True, type=click.IntRange(0), metavar="CARD...")
@standard(namespace=False)
def clear(invocation: Invocation, node: str, cards: tuple[int, ...]) -> int:
    """Declare cards well again that an error of the driver (XID) took out of use."""
    words = f"{','.join(str(card) for card in cards)}@{rfc3339_micro(invocation.clock.now())}"
    for attempt in range(_TRIES):
        found = invocation.client.get(NODES, node)
        labels = found["metadata"].get("labels") or {}
        if labels.get(annotations.BOX) != "true":
            raise WindlassError(
                "WL-USE-400",
                f"the cards of node {node} are not looked after by Windlass",
                evidence=f"it has no label {annotations.BOX}=true",
                remedies=("ask whoever runs the node's device plug-in",),
            )
        try:
            invocation.client.patch(NODES, node, _declaring(words, found["metadata"]))
            break
        except StatusError as error:
            if error.code != 409 or attempt == _TRIES - 1:
                raise
    if invocation.structured:
        emit(invocation, {"items": list(cards)}, names=[f"gpu/{node}/{card}" for card in cards])
        return errors.OK
    shown = ", ".join(str(card) for card in cards)
    invocation.out.line(f"card {shown} of node {node}: errors up to now are forgotten")
    return errors.OK
