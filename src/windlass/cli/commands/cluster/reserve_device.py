"""``windlass reserve-device``: the process of reservation pods, which hold GPUs for pods that share them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from windlass.api.errors import WindlassError

TERMINATION_LOG = Path("/dev/termination-log")


@click.command("reserve-device")
@click.option("--tell", is_flag=True, help="Write the id of the GPU that the kubelet allocated, and end.")
@click.option("--hold", is_flag=True, help="Keep the GPU until SIGTERM.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default=TERMINATION_LOG,
    metavar="FILE",
    show_default=True,
    help="Where --tell writes: what the kubelet shows as the container's termination message.",
)
def command(tell: bool, hold: bool, to: Path) -> int:
    """Hold a GPU for pods that share it (in a reservation pod)."""
    if tell == hold:
        raise WindlassError(
            "WL-USE-400",
            "reserve-device needs either --tell or --hold",
            remedies=("windlass reserve-device --help",),
        )
    if hold:
        ends = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        click.echo("the GPU is held")
        signal.sigwait(ends)
        return 0
    from windlass.node.devices.assigned_device import find_assigned_device

    try:
        device = find_assigned_device(os.environ)
    except WindlassError as error:
        to.write_text(f"{error}\n")
        raise
    to.write_text(f"{device}\n")
    click.echo(device)
    return 0
