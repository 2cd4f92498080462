"""``windlass up``: the control plane of this box, in the foreground or detached."""

from __future__ import annotations

import os

import click

from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output import emit


@click.command("up")
@click.option("--port", type=int, help="TLS port on the loopback interface (default: 7443, or a free one).")
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
    """Start the control plane on this box."""
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
    from windlass.cli.starting import start

    record = start(state, arguments)
    if invocation.structured:
        emit(invocation, record, names=[f"node/{record['node']}"])
        return 0
    invocation.out.write(announcement(record))
    return 0


def announcement(record: dict[str, object]) -> str:
    """What a person needs to reach it."""
    opening = "already running" if record.get("already") else "ready"
    return (
        f"windlass {record['version']} is {opening} (pid {record['pid']}, node {record['node']})\n"
        f"server:     {record['url']}\n"
        f"kubeconfig: {record['kubeconfig']}\n"
        "try:        windlass run -- echo hello\n"
        f"            kubectl --kubeconfig {record['kubeconfig']} get nodes\n"
    )
