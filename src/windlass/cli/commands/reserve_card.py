"""``windlass reserve-card``: what runs in the pods that hold cards for those who share them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from windlass.api.errors import WindlassError

TOLD = Path("/dev/termination-log")


@click.command("reserve-card")
@click.option("--tell", is_flag=True, help="Write which card the kubelet has given, and end.")
@click.option("--hold", is_flag=True, help="Keep the card until told to end.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default=TOLD,
    metavar="FILE",
    show_default=True,
    help="Where --tell writes: what the kubelet shows as the container's termination message.",
)
def command(tell: bool, hold: bool, to: Path) -> int:
    """Hold a GPU for pods that share it (in a reservation pod)."""
    if tell == hold:
        raise WindlassError(
            "WL-USE-400", "reserve-card takes --tell or --hold", remedies=("windlass reserve-card --help",)
        )
    if hold:
        ends = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        click.echo("the card is held")
        signal.sigwait(ends)
        return 0
    from windlass.node.devices.assigned_device import find_assigned_device

    try:
        card = find_assigned_device(os.environ)
    except WindlassError as error:
        to.write_text(f"{error}\n")
        raise
    to.write_text(f"{card}\n")
    click.echo(card)
    return 0
