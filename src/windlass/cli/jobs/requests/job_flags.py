"""Flags of ``run`` and ``submit``, start of the control plane, creation of the job."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.api import network_presets
from windlass.api.annotations import HOST_IMAGE
from windlass.api.errors import StatusError, WindlassError
from windlass.cli.foreign_commands import OPTIONS, duration_from_slurm, slurm_directives
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.kinds.kind_manifests import KINDS, build_manifest, resource_of
from windlass.cli.jobs.logs.log_lines import duration_seconds
from windlass.cli.jobs.preflight.capacity_checks import (
    check_amounts,
    check_capacity,
    check_name,
    check_near,
    no_gpus,
)
from windlass.cli.jobs.preflight.command_checks import check_command
from windlass.cli.jobs.requests.elastic_job import elastic_range
from windlass.cli.jobs.requests.job_builder import JobRequest, base_name, environment_of
from windlass.cli.options import completer, queue_flag

Function = TypeVar("Function", bound=Callable[..., Any])
_MAX_NAMES = 5
"""Maximum number of generated names that are tried."""
DEFAULT_TIME_LIMIT = ""
"""Default of ``--time``: no limit, so that the pods get no ``activeDeadlineSeconds``.

A duration (``2h``) would be the limit of each job without ``--time``.
"""
_PIPED_INPUT = (
    "a job has no standard input, so the data that is piped to this command is not read; "
    "to read a file: sh -c 'COMMAND < FILE'"
)


def _count(*names: str, least: int, **more: Any) -> Callable[[Function], Function]:
    return click.option(*names, type=click.IntRange(least), metavar="N", **more)


_FLAGS = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND..."),
    _count("-g", "--gpus", least=0, default=0, help="GPUs per rank."),
    _count(
        "-n",
        "--nodes",
        least=1,
        default=1,
        help="Number of ranks, which start together or not at all.",
    ),
    click.option(
        "--gpu-memory",
        default="",
        metavar="AMOUNT",
        help="Memory of each GPU, which is then shared with other pods: 10Gi (default: whole GPUs).",
    ),
    click.option("--gpu-model", default="", metavar="MODEL", help="GPUs of this model: H100,H200."),
    click.option(
        "--near",
        default="",
        metavar="LABEL",
        help="Run all ranks on nodes with one value of this label: rack, nvidia.com/gpu.clique.",
    ),
    click.option("--numa", is_flag=True, help="Take CPUs and GPUs of each rank from one NUMA node."),
    click.option(
        "--host-network",
        is_flag=True,
        help="Use the network of the node, as a notebook or a server needs it.",
    ),
    click.option(
        "--network",
        type=click.Choice(network_presets.PRESETS),
        default=None,
        help="Network preset. rdma: NCCL over InfiniBand or RoCE, ranks on nodes of one RDMA island if possible.",
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
    click.option(
        "--name",
        default="",
        metavar="NAME",
        help="Name of the job (default: derived from the command).",
    ),
    click.option(
        "-e",
        "--env",
        "environment",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable; without a value that of the caller.",
    ),
    click.option(
        "--workdir", default="", metavar="DIR", help="Working directory (default: the current one)."
    ),
    click.option(
        "-t",
        "--time",
        "time",
        default=DEFAULT_TIME_LIMIT,
        metavar="DURATION",
        help="Maximum run time: 2h (default: unlimited).",
    ),
    click.option(
        "--elastic",
        default="",
        metavar="MIN:MAX",
        help="Ranks of an elastic torchrun job: it starts with MIN, and grows and shrinks up to MAX with the room.",
    ),
    click.option(
        "--checkpoint-path",
        default="",
        metavar="PATH",
        help="File or directory of the checkpoints. windlass show tells whether one landed after SIGTERM.",
    ),
    click.option(
        "--checkpoint-hook",
        default="",
        metavar="COMMAND",
        help="Command, or http://:PORT/PATH, that saves a checkpoint before SIGTERM.",
    ),
    click.option(
        "--resume",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[JOB]",
        help="Create the next attempt of a job that has ended, with its name, checkpoints and attempts.",
        shell_complete=completer("jobs"),
    ),
    click.option("--image", default="", metavar="IMAGE", help="Container image (needed on a cluster)."),
    click.option(
        "--kind",
        type=click.Choice(KINDS, case_sensitive=False),
        default=KINDS[0],
        help="Kind of the job (default: vcjob, a Volcano Job).",
    ),
)


def job_flags(function: Function) -> Function:
    """Add the flags that describe a job and its needs."""
    for decorator in reversed(_FLAGS):
        function = decorator(function)
    return function


def job_request_of(given: dict[str, Any], *, followed: bool = False) -> JobRequest:
    """Return the job that the flags describe.

    Raises :class:`WindlassError` for invalid values.
    """
    time = given.pop("time")
    words = given.pop("words")
    queue = given.pop("queue") or "default"
    seconds = time_limit(time) if time else 0
    command_line = "windlass run" if followed else "windlass submit"
    given["elastic"] = elastic_range(given["elastic"], given["nodes"], command_line)
    if not words and given.get("resume") is None:
        context = click.get_current_context()
        raise click.MissingParameter(
            ctx=context, param=next(p for p in context.command.params if p.name == "words")
        )
    request = JobRequest(command=tuple(words), queue=queue, time_seconds=seconds, followed=followed, **given)
    check_amounts(request)
    check_name(request)
    check_near(request)
    return request


def time_limit(text: str) -> int:
    """Return a time limit in seconds.

    A number without a unit is rejected: it means minutes in Slurm, and seconds
    elsewhere.
    """
    meant = duration_from_slurm(text)
    if not meant:
        return duration_seconds("--time", text, least=1)
    plain = text.isascii() and text.isdecimal()
    raise WindlassError(
        "WL-USE-400",
        f"--time {text} has no unit" if plain else f"--time {text}: {text!r} is not a duration",
        evidence="durations read like 45s, 10m, 1h30m, 2d" + ("; Slurm counts in minutes" if plain else ""),
        remedies=(f"--time {meant}", *((f"--time {text}s",) if plain else ())),
    )


def create_job(
    invocation: Invocation,
    request: JobRequest,
    progress: Callable[[str], None],
    *,
    adjust: Callable[[dict[str, Any]], dict[str, Any]] = lambda job: job,
    checked: bool = False,
) -> dict[str, Any]:
    """Start the control plane if needed, check the job, create it, and return it.

    ``adjust`` returns what is created instead of a job as the flags describe it.
    ``checked``: an equal job was created just before, so the server is not asked again.
    Raises :class:`WindlassError`; for invalid arguments before anything is started.
    """
    embedded = not invocation.target.remote
    resource_of(request)
    if request.resume is not None and not request.command:
        from windlass.cli.jobs.requests.resume_run import check_flags

        check_flags(request)
        if embedded:
            _ensure_running(invocation, request, progress)
        return _next_attempt(invocation, request)
    environment_of(request, embedded=embedded, environ=os.environ)
    if checked:
        return _create(invocation, request, embedded, adjust)
    if embedded:
        check_command(request, os.environ)
        _warn_about_sbatch(invocation, request)
        _warn_about_image(invocation, request)
        _ensure_running(invocation, request, progress)
    elif not request.image:
        raise WindlassError(
            "WL-USE-400",
            "a job on a cluster needs an image",
            evidence="--kubeconfig or --context was given, so the command does not run on this machine",
            remedies=(f"{request.command_line} --image IMAGE -- …",),
        )
    ranks = request.elastic[0] if request.elastic is not None else request.nodes
    check_capacity(invocation, replace(request, nodes=ranks))
    if request.resume is not None:
        return _next_attempt(invocation, request)
    return _create(invocation, request, embedded, adjust)


def _next_attempt(invocation: Invocation, request: JobRequest) -> dict[str, Any]:
    from windlass.cli.jobs.requests.resume_run import create_next_attempt

    return create_next_attempt(invocation, request)


def _warn_about_sbatch(invocation: Invocation, request: JobRequest) -> None:
    script, options = slurm_directives(request.command, Path(request.workdir or os.getcwd()))
    if script:
        equivalents = (
            f"{option} ({OPTIONS[option]})" if OPTIONS.get(option, option) != option else option
            for option in options
        )
        invocation.note(
            f"note: the #SBATCH lines of {script} are ignored; use these options instead: {', '.join(equivalents)}"
        )


def _warn_about_image(invocation: Invocation, request: JobRequest) -> None:
    """Say that an image is not used, unless the image map of the node agent has an entry for it."""
    if request.image in ("", HOST_IMAGE):
        return
    from windlass.node.images import load_stored
    from windlass.node.options import image_entry

    if image_entry(load_stored(invocation.target.state.node), request.image) is None:
        invocation.note(
            f"note: --image {request.image} is not used on this machine: the command runs with the machine's files"
        )


def dry_run_job(invocation: Invocation, request: JobRequest) -> dict[str, Any]:
    """Return the job that would be created. Raises :class:`WindlassError`; nothing is started."""
    name = request.name or base_name(request.command)
    embedded = not invocation.target.remote
    return build_manifest(
        request, name, namespace=invocation.home_namespace, embedded=embedded, environ=os.environ
    )


def _already_exists(request: JobRequest, name: str) -> WindlassError:
    return WindlassError(
        "WL-JOB-409",
        f'job "{name}" already exists',
        evidence="a job keeps its name and its logs until it is deleted; the new one was not submitted",
        remedies=(
            f"windlass delete {request.kind} {name}",
            f"omit --name: each job then gets a new name, {base_name(request.command)}-…",
        ),
    )


def _ensure_running(invocation: Invocation, request: JobRequest, progress: Callable[[str], None]) -> None:
    from windlass.cli.bootstrap import is_ready, is_running, last_options, start

    state = invocation.target.state
    running = is_running(state)
    if running and is_ready(state):
        return
    from windlass.node.devices import (
        discovery,  # takes a tenth of the command's time if the control plane runs
    )

    options = last_options(state)
    simulated = str(options.get("gpus", "")).startswith("simulated:")
    if (
        not running
        and (request.gpus or request.gpu_memory)
        and not (simulated or discovery.has_device_files())
    ):
        raise no_gpus(max(1, request.gpus), running=False)
    progress("starting the control plane")
    flags = ["--implicit", *(["--allow-network-filesystem"] if options.get("allowNetwork") is True else [])]
    start(state, flags, progress=progress)  # waits if a start is already in progress


def _create(
    invocation: Invocation,
    request: JobRequest,
    embedded: bool,
    adjust: Callable[[dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    from windlass.kits import rng as chance

    rng, resource = chance.system(), resource_of(request)
    for attempt in range(_MAX_NAMES):
        name = request.name or f"{base_name(request.command)}-{chance.name_suffix(rng)}"
        job = build_manifest(
            request, name, namespace=invocation.home_namespace, embedded=embedded, environ=os.environ
        )
        try:
            created = invocation.client.create(resource, adjust(job), field_validation="Strict")
            return {"apiVersion": resource.api_version, "kind": resource.kind, **created}
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            if not request.name and attempt + 1 < _MAX_NAMES:
                continue
            raise _already_exists(request, name) from error
    raise AssertionError("the last try returns or raises")


def warn_about_piped_input(invocation: Invocation) -> None:
    """Print a warning, once per command, if data waits on standard input."""
    if _has_piped_input():
        invocation.warn(_PIPED_INPUT)


def _has_piped_input() -> bool:
    """Return whether unread data waits on standard input: a whole file, or bytes in a pipe.

    A file that was read in part belongs to a loop of the caller. A terminal waits for a
    person.
    """
    try:
        number = sys.stdin.fileno()
        kind = os.fstat(number)
        if stat.S_ISREG(kind.st_mode):
            return kind.st_size > 0 and os.lseek(number, 0, os.SEEK_CUR) == 0
        if not (stat.S_ISFIFO(kind.st_mode) or stat.S_ISSOCK(kind.st_mode)):
            return False
        (ready,) = struct.unpack("i", fcntl.ioctl(number, termios.FIONREAD, bytes(4)))
        return ready > 0
    except (OSError, ValueError, AttributeError):  # closed, or none at all
        return False
