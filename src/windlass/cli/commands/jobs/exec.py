"""``windlass exec``: run a command in a running pod of a job."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import termios
import threading
import tty as terminal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_index import find
from windlass.cli.jobs.jobs import Job, pod_phase, rank_of
from windlass.cli.jobs.logs.follow import is_selected
from windlass.cli.jobs.logs.log_lines import LogView
from windlass.cli.options import job_argument, standard
from windlass.cli.text import natural_key
from windlass.client.remote_command import STDERR, RemoteCommand

CONTEXT = {"allow_interspersed_args": False}
_BLOCK = 65_536


class _ExecCommand(click.Command):
    """Command with options that may also follow the job, as in ``exec JOB --rank 1 -- COMMAND``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        if words and words[0].startswith("-") and words[0] != "--" and "--" in words:
            ctx.allow_interspersed_args = True
            rest = super().parse_args(ctx, given)
        return rest


@click.command("exec", cls=_ExecCommand, context_settings=CONTEXT)
@click.option(
    "--rank", metavar="N", help="This rank (an index, TASK-INDEX, or a pod's name); default the first."
)
@click.option("-c", "--container", metavar="NAME", default="", help="This container of the pod.")
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@job_argument()
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
@standard(short_namespace=False, output=False)
def command(
    invocation: Invocation,
    rank: str | None,
    container: str,
    stdin: bool,
    tty: bool,
    job: str,
    words: tuple[str, ...],
) -> int:
    """Run a command in a running pod of a job."""
    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        raise click.UsageError("Missing argument '-- COMMAND...'.")
    pod = _pod_of(find(invocation, job), rank)
    tty = tty and stdin and sys.stdin.isatty()
    remote = RemoteCommand(
        invocation.new_client(),
        pod["metadata"]["namespace"],
        pod["metadata"]["name"],
        words,
        container=container,
        stdin=stdin,
        tty=tty,
    )
    if stdin:
        threading.Thread(target=_pass_input, args=(remote,), daemon=True).start()
    with _raw_terminal(remote) if tty else _as_it_is():
        try:
            for channel, data in remote:
                stream = sys.stderr if channel == STDERR else sys.stdout
                stream.buffer.write(data)
                stream.flush()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    if remote.message:
        raise WindlassError(
            "WL-EXEC-500",
            f"the command did not run in pod {pod['metadata']['name']}",
            evidence=remote.message,
            remedies=(f"windlass describe pod {pod['metadata']['name']}",),
        )
    return remote.code


def _pod_of(job: Job, rank: str | None) -> dict[str, Any]:
    """Return the running pod to enter. Raises :class:`WindlassError`."""
    chosen = [pod for pod in job.pods if is_selected(pod, LogView(rank=rank))]
    running = [pod for pod in chosen if pod_phase(pod) == "Running"]
    if running:
        return min(running, key=lambda pod: natural_key(rank_of(pod)))
    which = f"rank {rank}" if rank is not None else "pod"
    known = sorted((rank_of(pod) or pod["metadata"]["name"] for pod in job.pods), key=natural_key)
    raise WindlassError(
        "WL-EXEC-409",
        f'job "{job.name}" has no running {which}',
        evidence=f"it is {job.state}; its pods: {', '.join(known[:12]) or 'none'}",
        remedies=(f"windlass show {job.name}", f"windlass explain {job.name}"),
    )


def _pass_input(remote: RemoteCommand) -> None:
    while data := os.read(0, _BLOCK):
        remote.send(data)
    remote.send(b"")


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _raw_terminal(remote: RemoteCommand) -> Iterator[None]:
    """Pass keys on as they are typed, and the size of the terminal whenever it changes."""

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        remote.resize(size.columns, size.lines)

    before = termios.tcgetattr(0)
    handler = signal.signal(signal.SIGWINCH, resize)
    resize()
    terminal.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
