"""``windlass gpu``: every GPU with its health, shares, MIG instances and holders."""

from __future__ import annotations

from typing import Any

import click

from windlass.api import annotations as annotation_names
from windlass.api.devices.models import short_type
from windlass.api.devices.sharing_modes import supported_modes
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NODES, PODS
from windlass.cli import errors, tables
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.nodes import device_table, fragmentation, mps_daemons
from windlass.cli.nodes.dra_devices import claims_of, slices_of
from windlass.cli.options import completer, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import natural_key
from windlass.kits.timestamps import rfc3339_micro

_TRIES = 5
"""Maximum number of attempts for a change that conflicts with others."""


class _GpuGroup(NounGroup):
    """Group that treats ``windlass gpu [NODE]`` as ``windlass gpu ls [NODE]``."""

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
    """List GPUs with model, memory, health, free capacity, shares and holders.

    Below, FRAGMENTED is the part of a product's idle GPUs that is not on entirely idle
    nodes.
    """
    selected = invocation.client.list(NODES).items
    if nodes:
        known = {node["metadata"]["name"] for node in selected}
        for name in nodes:
            if name not in known:
                invocation.client.get(NODES, name)  # raises an error with the nearest names
        selected = [node for node in selected if node["metadata"]["name"] in nodes]
    selected.sort(key=lambda node: natural_key(node["metadata"]["name"]))
    claims = claims_of(invocation.client, slices_of(invocation.client))
    rows = device_table.rows_of(selected, invocation.client.list(PODS).items, claims)
    closed = [node["metadata"]["name"] for node in selected if (node.get("spec") or {}).get("unschedulable")]
    figures = fragmentation.by_product(rows, closed)
    if invocation.structured:
        records = [device_table.record(row) for row in rows]
        document = {"items": records, "fragmentation": [one.record for one in figures]}
        document["mpsDaemons"] = mps_daemons.records_of(selected)
        emit(invocation, document, names=[f"gpu/{r['node']}/{r['index']}" for r in records])
        return errors.OK
    if not rows:
        invocation.note(
            "No GPUs. To find the cause: windlass doctor. To simulate GPUs: windlass up --gpus simulated:2"
        )
        return errors.OK
    _show(invocation, rows)
    for line in map(mps_daemons.text_of, mps_daemons.records_of(selected)):
        invocation.out.line(line)
    fragmentation.show(invocation, figures)
    return errors.OK


def _show(invocation: Invocation, rows: list[device_table.DeviceRow]) -> None:
    supports = any(row.unit is None and supported_modes(row.device) for row in rows)
    header = ["NODE", "GPU", "MODEL", "MEMORY", "HEALTH", "FREE", "MODE", "HELD BY"]
    if supports:
        header[-1:-1] = ["SUPPORTS"]
    lines = []
    for row in rows:
        device = row.device
        line = [
            row.node,
            str(device.index),
            device.model or device.resource,
            device_table.memory_text(device.memory_mib),
            "ok" if device.healthy else device.reason or "bad",
            device_table.free_text(row),
            device_table.mode_text(row),
        ]
        if supports:
            line.append(_supported_text(row))
        if invocation.wide:
            line += [
                str(device.numa) if device.numa >= 0 else "-",
                str(device.link_group) if device.link_group >= 0 else "-",
                device.pci or "-",
                device.uuid or "-",
            ]
        lines.append([*line, device_table.holder_text(row)])
    if invocation.wide:
        header[-1:-1] = ["NUMA", "LINK", "PCI", "UUID"]
    if tables.too_wide(header, lines, wide_tables.max_width(invocation)):
        for line in lines:  # short models leave space for the holders
            line[2] = short_type(line[2]) or line[2]
    wide_tables.show(
        invocation, header, lines, optional=("SUPPORTS", "MODE", "HEALTH", "MEMORY"), right=("GPU", "MEMORY")
    )


def _supported_text(row: device_table.DeviceRow) -> str:
    """Return the sharing modes of the device. Its device plugin has decided on a unit's."""
    return "-" if row.unit is not None else ",".join(supported_modes(row.device)) or "whole"


def _clear_patch(words: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the patch of a Node that adds to the devices to clear, if the node is unchanged."""
    pending = (metadata.get("annotations") or {}).get(annotation_names.CLEAR_BAD_DEVICES, "")
    text = ";".join(filter(None, (pending, words)))
    return {
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {annotation_names.CLEAR_BAD_DEVICES: text},
        }
    }


@command.command("clear")
@click.argument("node", metavar="NODE", shell_complete=completer("nodes"))
@click.argument("gpus", nargs=-1, required=True, type=click.IntRange(0), metavar="GPU...")
@standard(namespace=False)
def clear(invocation: Invocation, node: str, gpus: tuple[int, ...]) -> int:
    """Mark GPUs as healthy again that a driver error (XID) took out of use."""
    words = f"{','.join(str(gpu) for gpu in gpus)}@{rfc3339_micro(invocation.clock.now())}"
    for attempt in range(_TRIES):
        current = invocation.client.get(NODES, node)
        labels = current["metadata"].get("labels") or {}
        if labels.get(annotation_names.BOX) != "true":
            raise WindlassError(
                "WL-USE-400",
                f"the GPUs of node {node} are not managed by Windlass",
                evidence=f"it has no label {annotation_names.BOX}=true",
                remedies=("ask the administrator of the node's device plugin",),
            )
        try:
            invocation.client.patch(NODES, node, _clear_patch(words, current["metadata"]))
            break
        except StatusError as error:
            if error.code != 409 or attempt == _TRIES - 1:
                raise
    if invocation.structured:
        emit(invocation, {"items": list(gpus)}, names=[f"gpu/{node}/{gpu}" for gpu in gpus])
        return errors.OK
    shown = ", ".join(str(gpu) for gpu in gpus)
    invocation.out.line(f"GPU {shown} of node {node}: earlier errors are ignored")
    return errors.OK
