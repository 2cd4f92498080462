"""``windlass logs``: output of a job, from its submission to after its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from windlass.api.errors import StatusError, WindlassError
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.cancel import detach
from windlass.cli.jobs.creation_errors import note_creation_errors
from windlass.cli.jobs.job_index import find
from windlass.cli.jobs.jobs import Job, pod_phase, rank_of, task_of
from windlass.cli.jobs.logs import retained_logs
from windlass.cli.jobs.logs.follow import Follower, Phases, is_selected
from windlass.cli.jobs.logs.log_lines import LogView, Printer, duration_seconds, merged, pattern_of
from windlass.cli.jobs.logs.log_pieces import parsed
from windlass.cli.jobs.reasons import brief
from windlass.cli.options import job_argument, standard
from windlass.cli.text import natural_key


@click.command("logs")
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends; exit with its exit status.")
@click.option("--rank", metavar="N", help="Only this rank (an index, TASK-INDEX, or a pod's name).")
@click.option("--task", metavar="NAME", help="Only the ranks of this task.")
@click.option("--all", "everything", is_flag=True, help="All ranks; lines that ranks share are printed once.")
@click.option("-c", "--container", metavar="NAME", help="Only this container of each pod.")
@click.option("--since", metavar="DURATION", help="Only lines newer than this: 45s, 10m, 1h30m.")
@click.option(
    "-n", "--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines of each rank."
)
@click.option("--previous", is_flag=True, help="Output of the previous start of the container.")
@click.option("--grep", "grep", metavar="REGEX", help="Only matching lines.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line in front of it.")
@click.option(
    "--collapse", is_flag=True, help="Print a line once if several ranks write it at the same time."
)
@standard(short_namespace=False, formats=("json",))
def command(
    invocation: Invocation,
    job: str,
    follow: bool,
    rank: str | None,
    task: str | None,
    everything: bool,
    container: str | None,
    since: str | None,
    tail: int | None,
    previous: bool,
    grep: str | None,
    timestamps: bool,
    collapse: bool,
) -> int:
    """Print or follow a job's output."""
    options = LogView(
        rank=rank,
        task=task,
        container=container,
        since_seconds=duration_seconds("--since", since) if since else None,
        tail=tail,
        previous=previous,
        pattern=pattern_of(grep, f"windlass logs {job}"),
        timestamps=timestamps,
        collapse=collapse or (everything and invocation.out.interactive),
        as_json=invocation.structured,
    )
    found = find(invocation, job)
    if len(found.pods) >= found.members:  # the names of pods that do not exist yet are unknown
        _selected_pods(found, options)
    if follow and not previous:
        phases = Phases(invocation)
        follower = Follower(invocation, found, options, phases=phases)
        try:
            return follower.run()
        except KeyboardInterrupt:
            phases.end_line()
            return detach(invocation, follower.job)
    return _print(invocation, found, options)


def _print(invocation: Invocation, job: Job, options: LogView) -> int:
    chosen = _selected_pods(job, options)
    started = [pod for pod in chosen if pod_phase(pod) != "Pending"]
    retained = retained_logs.find(invocation, job, options)
    if not started and not retained:
        note_creation_errors(invocation, [job])
        state = f"{job.state}, {brief(job) or 'no reason is known'}"
        if job.finished and not job.pods:
            invocation.note(f"the pods of {job.name} and their logs are deleted: {state}")
        else:
            invocation.note(f"{job.name} has written nothing yet: {state}")
        return errors.OK
    streams: dict[str, Callable[[], Iterator[bytes]]] = retained_logs.streams(invocation, retained, options)
    for pod in started:
        for container in _containers(pod, options):
            label = rank_of(pod) if len(_containers(pod, options)) == 1 else f"{rank_of(pod)}/{container}"
            streams[label] = partial(_chunks, invocation, job, pod["metadata"]["name"], container, options)
    printer = Printer(invocation.out, options, prefixed=len(streams) > 1)
    if len(streams) == 1:
        ((rank, start),) = streams.items()
        for pieces in parsed(start()):
            printer.pieces(rank, pieces, 0.0)
    else:
        for rank, line in merged(streams):
            printer.line(rank, line.time, line.data, 0.0)
    printer.end()
    return errors.OK


def _selected_pods(job: Job, options: LogView) -> list[dict[str, Any]]:
    """Return the selected pods.

    Raises :class:`WindlassError` for a rank, a task or a container that the job does
    not have.
    """
    chosen = [pod for pod in job.pods if is_selected(pod, options)]
    if not chosen and (options.rank is not None or options.task is not None) and job.pods:
        raise _no_such_rank(job, options)
    if options.container is not None and chosen:
        _check_container(job, chosen, options.container)
    return chosen


def _containers(pod: dict[str, object], options: LogView) -> list[str]:
    spec: dict[str, list[dict[str, str]]] = pod.get("spec") or {}  # type: ignore[assignment]
    found = [container["name"] for container in spec.get("containers") or ()]
    return [options.container] if options.container else found


def _chunks(invocation: Invocation, job: Job, pod: str, container: str, options: LogView) -> Iterator[bytes]:
    client = invocation.new_client()
    try:
        yield from client.logs(
            job.namespace,
            pod,
            container=container,
            previous=options.previous,
            tail_lines=options.tail,
            since_seconds=options.since_seconds,
            timestamps=True,
        )
    except StatusError as error:
        if error.code == 404:
            yield from _log_of_deleted_pod(invocation, job, pod, container, options)
        elif error.code == 400:
            invocation.note(f"{pod}: {error.message}")
        else:
            raise
    finally:
        client.close()


def _log_of_deleted_pod(
    invocation: Invocation, job: Job, pod: str, container: str, options: LogView
) -> Iterator[bytes]:
    """Return the retained log of a pod that was deleted after the job's pods were listed."""
    uid = next(entry["metadata"]["uid"] for entry in job.pods if entry["metadata"]["name"] == pod)
    chunks = retained_logs.read_pod(invocation, job.namespace, pod, uid, container, options)
    if chunks is None:
        invocation.note(f"{pod} was deleted, and its log with it")
    else:
        yield from chunks


def _check_container(job: Job, pods: list[dict[str, object]], wanted_name: str) -> None:
    anyone = LogView()
    known = sorted({name for pod in pods for name in (*_containers(pod, anyone), *_first_containers(pod))})
    if wanted_name not in known:
        raise WindlassError(
            "WL-RANK-404",
            f'job "{job.name}" has no container {wanted_name}',
            evidence=f"existing containers: {', '.join(known)}",
            remedies=(f"windlass logs {job.name} -c {known[0]}",),
        )


def _first_containers(pod: dict[str, object]) -> list[str]:
    spec: dict[str, list[dict[str, str]]] = pod.get("spec") or {}  # type: ignore[assignment]
    return [container["name"] for container in spec.get("initContainers") or ()]


def _no_such_rank(job: Job, options: LogView) -> WindlassError:
    of_task = options.task is not None and not any(task_of(pod) == options.task for pod in job.pods)
    word, requested, of = ("task", options.task, task_of) if of_task else ("rank", options.rank, rank_of)
    known = sorted({of(pod) for pod in job.pods} - {""}, key=natural_key)
    return WindlassError(
        "WL-RANK-404",
        f'job "{job.name}" has no {word} {requested}',
        evidence=f"its {word}s: {', '.join(known[:12])}{' …' if len(known) > 12 else ''}"
        if known
        else f"its pods have no {word}",
        remedies=(f"windlass logs {job.name} --{word} {known[0]}",) if known else (),
    )
