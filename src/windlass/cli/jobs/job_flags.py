"""What ``run`` and ``submit`` share: their flags, starting the control plane, creating the job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import VOLCANO_JOBS
from windlass.cli.foreign_commands import OPTIONS, duration_from_slurm, slurm_directives
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import stdin_notice
from windlass.cli.jobs.job_builder import JobRequest, base_name, environment_of, job_of
from windlass.cli.jobs.log_lines import duration_seconds
from windlass.cli.jobs.preflight import (
    check_amounts,
    check_capacity,
    check_command,
    check_name,
    no_gpus,
)
from windlass.cli.jobs.preflight_topology import check_near
from windlass.cli.options import completer, queue_flag

Function = TypeVar("Function", bound=Callable[..., Any])
_TRIES = 5


def _count(*names: str, least: int, **more: Any) -> Callable[[Function], Function]:
    return click.option(*names, type=click.IntRange(least), metavar="N", **more)


def job_flags(function: Function) -> Function:
    """What a job is and needs."""
    for decorator in reversed(
        (
            click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."),
            _count("-g", "--gpus", least=0, default=0, help="GPUs per rank."),
            _count("-n", "--nodes", least=1, default=1, help="Ranks; they start together or not."),
            click.option(
                "--gpu-memory",
                default="",
                metavar="AMOUNT",
                help="So much memory of each GPU, beside others, instead of whole ones: 10Gi.",
            ),
            click.option("--gpu-model", default="", metavar="MODEL", help="GPUs of this model: H100,H200."),
            click.option(
                "--near",
                default="",
                metavar="LABEL",
                help="All ranks on nodes of one value of this label: rack, nvidia.com/gpu.clique.",
            ),
            click.option("--numa", is_flag=True, help="Each rank from one NUMA zone of its node."),
            click.option(
                "--host-network",
                is_flag=True,
                help="On the network of its node: for a notebook, a server.",
            ),
            click.option("--cpus", default="", metavar="AMOUNT", help="CPUs per rank: 4, 500m."),
            click.option("--memory", default="", metavar="AMOUNT", help="Memory per rank: 16Gi."),
            queue_flag("Queue (default: default)."),
            click.option(
                "--priority",
                default="",
                metavar="CLASS",
                help="Priority class: high-priority.",
                shell_complete=completer("priorityclasses"),
            ),
            click.option("--name", default="", metavar="NAME", help="Name (default: from the command)."),
            click.option(
                "-e",
                "--env",
                "environment",
                multiple=True,
                metavar="NAME[=VALUE]",
                help="A variable; without a value the caller's own.",
            ),
            click.option("--workdir", default="", metavar="DIR", help="Working directory (default: here)."),
            click.option("-t", "--time", "time", default="", metavar="DURATION", help="Longest run: 2h."),
            click.option("--image", default="", metavar="IMAGE", help="Container image, on a cluster."),
        )
    ):
        function = decorator(function)
    return function


def job_request_of(given: dict[str, Any], *, followed: bool = False) -> JobRequest:
    """The flags as a wish. Raises :class:`WindlassError` on values that cannot be meant."""
    time = given.pop("time")
    words = given.pop("words")
    queue = given.pop("queue") or "default"
    seconds = _time_limit(time) if time else 0
    request = JobRequest(command=tuple(words), queue=queue, time_seconds=seconds, followed=followed, **given)
    check_amounts(request)
    check_name(request)
    check_near(request)
    return request


def _time_limit(text: str) -> int:
    """Seconds. A bare number is refused: it is minutes in Slurm, and seconds elsewhere."""
    meant = duration_from_slurm(text)
    if not meant:
        return duration_seconds("--time", text, least=1)
    plain = text.isdecimal()
    raise WindlassError(
        "WL-USE-400",
        f"--time {text} does not say of what" if plain else f"--time {text}: {text!r} is not a duration",
        evidence="durations read like 45s, 10m, 1h30m, 2d" + ("; Slurm's are minutes" if plain else ""),
        remedies=(f"--time {meant}", *((f"--time {text}s",) if plain else ())),
    )


def make(invocation: Invocation, request: JobRequest, progress: Callable[[str], None]) -> dict[str, Any]:
    """Start the control plane if need be, check, create. The created job. Raises :class:`WindlassError`; on what was
    typed wrong before anything is started or asked."""
    on_box = not invocation.target.remote
    environment_of(request, on_box=on_box, environ=os.environ)
    if on_box:
        check_command(request, os.environ)
        _note_directives(invocation, request)
        _ensure_running(invocation, request, progress)
    elif not request.image:
        raise WindlassError(
            "WL-USE-400",
            "a job on a cluster needs an image",
            evidence="--kubeconfig or --context was given, so the command does not run on this box",
            remedies=(f"{request.command_line} --image IMAGE -- …",),
        )
    check_capacity(invocation, request)
    created = _create(invocation, request, on_box)
    stdin_notice.tell(invocation)
    return created


def _note_directives(invocation: Invocation, request: JobRequest) -> None:
    script, found = slurm_directives(request.command, Path(request.workdir or os.getcwd()))
    if script:
        told = (f"{one} ({OPTIONS[one]})" if OPTIONS.get(one, one) != one else one for one in found)
        invocation.note(
            f"note: nobody reads the #SBATCH lines of {script}; give here what they say: {', '.join(told)}"
        )


def _taken(name: str, base: str) -> WindlassError:
    return WindlassError(
        "WL-JOB-409",
        f'job "{name}" already exists',
        evidence="a job keeps its name and its logs until it is deleted; the new one was not submitted",
        remedies=(
            f"windlass delete vcjob {name}",
            f"leave --name out: then it is {base}-…, a new one each time",
        ),
    )


def _ensure_running(invocation: Invocation, request: JobRequest, progress: Callable[[str], None]) -> None:
    from windlass.cli.bootstrap import is_ready, is_running, last_options, start

    state = invocation.target.state
    running = is_running(state)
    if running and is_ready(state):
        return
    from windlass.node.devices import (
        discovery,  # a tenth of the time that the command takes on a box that runs
    )

    chosen = last_options(state)
    pretends = str(chosen.get("gpus", "")).startswith("simulated:")
    if not running and (request.gpus or request.gpu_memory) and not (pretends or discovery.has_files()):
        raise no_gpus(max(1, request.gpus), running=False)
    progress("starting the control plane")
    flags = ["--implicit", *(["--allow-network-filesystem"] if chosen.get("allowNetwork") is True else [])]
    start(state, flags, progress=progress)  # one that is being started already is waited for


def _create(invocation: Invocation, request: JobRequest, on_box: bool) -> dict[str, Any]:
    from windlass.kits import rng as chance

    rng = chance.system()
    for attempt in range(_TRIES):
        name = request.name or f"{base_name(request.command)}-{chance.name_suffix(rng)}"
        job = job_of(request, name, namespace=invocation.home_namespace, on_box=on_box, environ=os.environ)
        try:
            return invocation.client.create(VOLCANO_JOBS, job, field_validation="Strict")
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            if not request.name and attempt + 1 < _TRIES:
                continue
            raise _taken(name, base_name(request.command)) from error
    raise AssertionError("the last try returns or raises")
