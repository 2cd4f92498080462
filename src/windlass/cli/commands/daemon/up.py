"""``windlass up``: the control plane of this machine, in the foreground or detached."""

from __future__ import annotations

import os
import shlex

import click

from windlass.cli.errors import check_is_local, remedy_with_target
from windlass.cli.invocation import Invocation
from windlass.cli.nodes.kubelet_options import flags_of, kubelet_options, warn_about_pids
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
    help="auto (detected by the driver), none, simulated:N or simulated:8xH100-80GB[+mig]; +mps: run NVIDIA's MPS "
    "daemon. Default: auto.",
)
@click.option("--node-name", metavar="NAME", help="Name of this machine as a node (default: its host name).")
@click.option(
    "--images",
    metavar="FILE",
    help="YAML file of replacements for images: image or pattern -> {path, venv, env, command}.",
)
@click.option("-d", "--detach", is_flag=True, help="Return when it is ready, and leave it running.")
@click.option(
    "--allow-network-filesystem", is_flag=True, help="Allow a state directory on a network file system."
)
@kubelet_options()
@standard(namespace=False)
def command(
    invocation: Invocation,
    port: int | None,
    gpus: str | None,
    node_name: str | None,
    images: str | None,
    detach: bool,
    allow_network_filesystem: bool,
    **kubelet: str | None,
) -> int:
    """Start the control plane on this machine."""
    check_is_local("up", invocation.context.target_flags, "install")
    arguments: list[str] = []
    for flag, value in (("--port", port), ("--gpus", gpus), ("--node-name", node_name)):
        if value is not None:
            arguments += [flag, str(value)]
    if images is not None:
        arguments += ["--images", os.path.abspath(images)]
    if allow_network_filesystem:
        arguments.append("--allow-network-filesystem")
    kubelet_words = flags_of(invocation, kubelet)
    arguments += [f"--kubelet-flag={word}" for word in kubelet_words]
    state = invocation.target.state
    if not detach and not invocation.structured:
        from windlass.kits.processes import python_module

        argv = python_module("windlass.app", "up", "--state", str(state.path), *arguments)
        os.execv(argv[0], argv)
    from windlass.cli.bootstrap import start

    record = start(state, arguments, progress=lambda text: _show_warning(invocation, text))
    warn_about_pids(invocation, kubelet_words, str(record["node"]))
    if invocation.structured:
        emit(invocation, record, names=[f"node/{record['node']}"])
        return 0
    gpus = _gpus_text(invocation, str(record["node"]))
    invocation.out.write(announcement(record, gpus, flags=invocation.context.target_flags))
    return 0


def _show_warning(invocation: Invocation, phase: str) -> None:
    """Show a phase of the start that is a warning. The others are too quick to be of use."""
    warning = phase.removeprefix("Warning: ")
    if warning != phase:
        invocation.warn(warning)


def _gpus_text(invocation: Invocation, node: str) -> str:
    """Return the GPUs: ``2 × NVIDIA-A100-SXM4-40GB (1 in MIG mode)``; empty if none are known."""
    from windlass.api.devices import node_annotation
    from windlass.api.errors import StatusError
    from windlass.api.resources import NODES
    from windlass.client.errors import Unreachable

    try:
        current = invocation.client.get(NODES, node)
    except (StatusError, Unreachable):
        return ""
    devices = node_annotation.read(current["metadata"].get("annotations") or {}).cards
    parts = []
    for model in dict.fromkeys(device.model for device in devices):
        same_model = [device for device in devices if device.model == model]
        notes = [
            f"{count} {what}"
            for what, count in (
                ("in MIG mode", sum(device.mig for device in same_model)),
                ("unhealthy", sum(not device.healthy for device in same_model)),
            )
            if count
        ]
        more = f" ({', '.join(notes)})" if notes else ""
        parts.append(f"{len(same_model)} × {model or 'unknown'}{more}")
    return ", ".join(parts)


def announcement(record: dict[str, object], gpus: str = "", *, flags: str = "") -> str:
    """Return what a person needs to reach the control plane.

    ``gpus``: text about its GPUs.
    ``flags``: flags that name the state directory, for commands to copy.
    """
    opening = "already running" if record.get("already") else "ready"
    line = f"GPUs:       {gpus}\n" if gpus else ""
    return (
        f"windlass {record['version']} is {opening} (pid {record['pid']}, node {record['node']})\n"
        f"server:     {record['url']}\n"
        f"kubeconfig: {record['kubeconfig']}\n"
        f"{line}"
        f"try:        {remedy_with_target('windlass run -- echo hello', flags)}\n"
        f"            kubectl --kubeconfig {shlex.quote(str(record['kubeconfig']))} get nodes\n"
    )
