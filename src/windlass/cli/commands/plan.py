"""``windlass plan``: what the scheduler would do with a cluster that runs, or with a dump of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.api.errors import WindlassError
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.client.errors import Unreachable

if TYPE_CHECKING:
    from windlass.cli.simulate.plan import PlanRequest

FORMATS = ("json", "yaml", "table")


@click.command("plan")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Dump of a cluster; - for stdin."
)
@click.option("--config", metavar="FILE", help="Scheduler configuration in Volcano's format.")
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Plan pods that name it; may be repeated (default: windlass, volcano, kai-scheduler; of a dump all pods).",
)
@click.option("--cycles", type=click.IntRange(1, 10_000), metavar="N", help="Scheduling cycles (default: 1).")
@click.option("--until-stable", is_flag=True, help="Cycles until nothing changes any more (at most 50).")
@click.option("--now", metavar="TIME", help="The time it is, in RFC 3339 (default: now).")
@click.option("--batch", metavar="DIR", help="Plan every folder of DIR, each with an options.json.")
@standard(namespace=False, formats=FORMATS)
def command(
    invocation: Invocation,
    files: tuple[str, ...],
    config: str | None,
    names: tuple[str, ...],
    cycles: int | None,
    until_stable: bool,
    now: str | None,
    batch: str | None,
) -> int:
    """Show what the scheduler would do with a cluster.

    This box, or with --context or --kubeconfig the cluster, is read as it is now; nothing is written, and Windlass
    need not be installed there. With -f a dump is read.
    """
    moment = moment_of(invocation, now)
    if cycles is not None and until_stable:
        raise WindlassError(
            "WL-USE-400",
            "--cycles and --until-stable exclude one another",
            remedies=("--until-stable goes on until nothing changes, --cycles for so many",),
        )
    if batch is not None:
        if files or config or names or cycles is not None or until_stable:
            raise WindlassError(
                "WL-USE-400",
                "--batch reads everything else from the options.json of its folders",
                remedies=("windlass plan --batch FOLDER",),
            )
        return _batch(invocation, Path(batch), moment)
    from windlass.cli.simulate.plan import PlanRequest, plan

    request = PlanRequest(files, config or "", moment, cycles or 1, until_stable, names)
    if files:
        document = plan(request, invocation.warn)
    else:
        document = _of_running(invocation, request)
    if invocation.output in ("", "table"):
        invocation.out.write(as_text(document))
    else:
        emit(invocation, document)
    return 0


def _of_running(invocation: Invocation, request: PlanRequest) -> dict[str, Any]:
    """The plan for the cluster that is aimed at, or for this box."""
    from windlass.cli.simulate.plan import plan_live

    embedded = not invocation.target.remote
    try:
        return plan_live(invocation.client, request, invocation.warn, embedded=embedded)
    except Unreachable as error:
        if not embedded:
            raise
        raise WindlassError(
            "WL-USE-400",
            "there is nothing to plan: no file and no context is named, and this box does not run",
            evidence=error.message,
            remedies=(
                "windlass plan -f cluster.yaml",
                "windlass --context NAME plan",
                "windlass up --detach",
            ),
        ) from error


def moment_of(invocation: Invocation, text: str | None) -> float:
    """Unix seconds of ``--now``. Raises :class:`WindlassError`."""
    from windlass.kits.timestamps import parse_rfc3339

    if text is None:
        return invocation.clock.now()
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise WindlassError(
            "WL-USE-400", f"--now {text} is no time", remedies=("--now 2026-01-01T12:00:00Z",)
        ) from None


def _batch(invocation: Invocation, folder: Path, moment: float) -> int:
    from windlass.cli.simulate.plan_batch import run

    planned, failed = run(folder, moment)
    invocation.note(f"{planned} planned, {failed} with an error")
    return 0


_EVENTS = (("evictions", "evict"), ("binds", "bind"), ("nominations", "promise"))


def as_text(plan: dict[str, Any]) -> str:
    """The plan for people: what happens cycle by cycle, what waits and why, the queues."""
    rows = [
        [str(entry["cycle"]), word, f"{entry['namespace']}/{entry['pod']}", entry["node"], _note(entry)]
        for word, entry in sorted(
            ((word, entry) for name, word in _EVENTS for entry in plan[name]),
            key=lambda pair: pair[1]["cycle"],
        )
    ]
    parts = []
    if rows:
        parts.append(tables.render(["CYCLE", "DECISION", "POD", "NODE", "NOTE"], rows))
    else:
        parts.append("nothing is decided\n")
    waiting = [
        [
            f"{entry['namespace']}/{entry['podGroup']}",
            entry["queue"],
            str(len(entry["pods"])),
            entry["code"],
            entry["message"],
        ]
        for entry in plan["pending"]
    ]
    if waiting:
        parts.append(tables.render(["WAITING", "QUEUE", "PODS", "CODE", "WHY"], waiting))
    shares = [
        [entry["name"], *(_amounts(entry[field]) for field in ("fairShare", "allocated", "requested"))]
        for entry in plan["queues"]
    ]
    parts.append(tables.render(["QUEUE", "FAIR SHARE", "ALLOCATED", "REQUESTED"], shares))
    cycles = plan["cycles"]
    parts.append(
        f"{cycles} cycle{'' if cycles == 1 else 's'}; "
        + ("nothing more would change\n" if plan["stable"] else "more would change in the next\n")
    )
    return "\n".join(parts)


def _note(entry: dict[str, Any]) -> str:
    if "devices" in entry:
        told = "devices " + ",".join(map(_device, entry["devices"]))
        return ", ".join(filter(None, (told, _zones(entry))))
    if "zones" in entry:
        return _zones(entry)
    if "action" in entry:
        return entry["action"] + (f" for {entry['for']}" if "for" in entry else "")
    return ""


def _device(device: dict[str, Any]) -> str:
    """``3``, of a part ``3 (0.5)`` or ``3 (1g.10gb)``."""
    part = device.get("profile") or (f"{device['share']:g}" if device["share"] < 1 else "")
    return f"{device['index']} ({part})" if part else str(device["index"])


def _zones(entry: dict[str, Any]) -> str:
    """``NUMA zone 0``, ``NUMA zones 0,1``."""
    numbers = [str(part["zone"]) for part in entry.get("zones", ())]
    return f"NUMA zone{'s' * (len(numbers) > 1)} {','.join(numbers)}" if numbers else ""


def _amounts(vector: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in vector.items()) or "-"
