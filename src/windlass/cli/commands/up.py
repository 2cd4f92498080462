"""``windlass up``: the control plane of this box, in the foreground or detached."""

from __future__ import annotations

import os

import click

from windlass.cli.errors import check_is_local
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit


@click.command("up")
@click.option(
    "--port", type=int, metavar="N", help="TLS port on the loopback interface (default: 7443, or a free one)."
)
@click.option(
    "-g",
    "--gpus",
    metavar="KIND",
    help="auto (what the driver finds), none, simulated:N or simulated:8xH100-80GB[+mig]. Default: auto.",
)
@click.option("--node-name", metavar="NAME", help="Name of this box as a node (default: its host name).")
@click.option(
    "--images",
    metavar="FILE",
    help="YAML file that says what stands for images here: image or pattern -> {path, venv, env, command}.",
)
@click.option("-d", "--detach", is_flag=True, help="Return when it is ready; it runs on.")
@click.option("--allow-network-filesystem", is_flag=True, help="Take a state folder on NFS and the like.")
@standard(namespace=False)
def command(
    invocation: Invocation,
    port: int | None,
    gpus: str | None,
    node_name: str | None,
    images: str | None,
    detach: bool,
    allow_network_filesystem: bool,
) -> int:
    """Start the control plane on this machine."""
    check_is_local("up", invocation.surroundings.aim, "install")
    arguments: list[str] = []
    for flag, value in (("--port", port), ("--gpus", gpus), ("--node-name", node_name)):
        if value is not None:
            arguments += [flag, str(value)]
    if images is not None:
        arguments += ["--images", os.path.abspath(images)]
    if allow_network_filesystem:
        arguments.append("--allow-network-filesystem")
    state = invocation.target.state
    if not detach and not invocation.structured:
        from windlass.kits.processes import python_module

        argv = python_module("windlass.app", "up", "--state", str(state.path), *arguments)
        os.execv(argv[0], argv)
    from windlass.cli.bootstrap import start

    record = start(state, arguments)
    if invocation.structured:
        emit(invocation, record, names=[f"node/{record['node']}"])
        return 0
    invocation.out.write(announcement(record, _cards(invocation, str(record["node"]))))
    return 0


def _cards(invocation: Invocation, node: str) -> str:
    """``2 × NVIDIA-A100-SXM4-40GB (1 in MIG mode)``; empty where there are none, or the node is not there yet."""
    from windlass.api.devices import node_annotation
    from windlass.api.errors import StatusError
    from windlass.api.resources import NODES
    from windlass.client.errors import Unreachable

    try:
        found = invocation.client.get(NODES, node)
    except (StatusError, Unreachable):
        return ""
    told = node_annotation.read(found["metadata"].get("annotations") or {}).cards
    words = []
    for model in dict.fromkeys(card.model for card in told):
        own = [card for card in told if card.model == model]
        notes = [
            f"{count} {what}"
            for what, count in (
                ("in MIG mode", sum(card.mig for card in own)),
                ("not well", sum(not card.healthy for card in own)),
            )
            if count
        ]
        more = f" ({', '.join(notes)})" if notes else ""
        words.append(f"{len(own)} × {model or 'unknown'}{more}")
    return ", ".join(words)


def announcement(record: dict[str, object], cards: str = "") -> str:
    """What a person needs to reach it. ``cards``: those of this box, in words."""
    opening = "already running" if record.get("already") else "ready"
    line = f"GPUs:       {cards}\n" if cards else ""
    return (
        f"windlass {record['version']} is {opening} (pid {record['pid']}, node {record['node']})\n"
        f"server:     {record['url']}\n"
        f"kubeconfig: {record['kubeconfig']}\n"
        f"{line}"
        "try:        windlass run -- echo hello\n"
        f"            kubectl --kubeconfig {record['kubeconfig']} get nodes\n"
    )
