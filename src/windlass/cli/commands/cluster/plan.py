"""``windlass plan``: decisions of the scheduler for a running cluster, or for a dump."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.api.errors import WindlassError
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.client.errors import Unreachable
from windlass.kits.printable import visible

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
    help="Plan pods of this scheduler; may be repeated (default: windlass, volcano, kai-scheduler; for a dump all).",
)
@click.option(
    "--cycles", type=click.IntRange(1, 10_000), metavar="N", help="Number of scheduling cycles (default: 1)."
)
@click.option("--until-stable", is_flag=True, help="Run cycles until nothing changes (at most 50).")
@click.option("--now", metavar="TIME", help="Time of the plan, in RFC 3339 (default: now).")
@click.option("--batch", metavar="DIR", help="Plan every directory in DIR that has an options.json.")
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

    It reads this machine's cluster, or with --context or --kubeconfig another one, or with -f a dump. Nothing is
    written, and Windlass need not be installed there.
    """
    time = time_of(invocation, now)
    if cycles is not None and until_stable:
        raise WindlassError(
            "WL-USE-400",
            "--cycles and --until-stable exclude each other",
            remedies=("--until-stable   (until nothing changes)", "--cycles N   (a fixed number)"),
        )
    if batch is not None:
        if files or config or names or cycles is not None or until_stable:
            raise WindlassError(
                "WL-USE-400",
                "--batch cannot be combined with other options; each directory has its own options.json",
                remedies=("windlass plan --batch DIR",),
            )
        return _batch(invocation, Path(batch), time)
    from windlass.cli.simulate.plan import PlanRequest, plan

    request = PlanRequest(files, config or "", time, cycles or 1, until_stable, names)
    if files:
        document = plan(request, invocation.warn)
    else:
        document = _plan_of_running(invocation, request)
    if invocation.output in ("", "table"):
        invocation.out.write(as_text(document))
    else:
        emit(invocation, document)
    return 0


def _plan_of_running(invocation: Invocation, request: PlanRequest) -> dict[str, Any]:
    """Return the plan for the named cluster, or for this machine."""
    from windlass.cli.simulate.plan import plan_live

    embedded = not invocation.target.remote
    try:
        return plan_live(invocation.client, request, invocation.warn, embedded=embedded)
    except Unreachable as error:
        if not embedded:
            raise
        raise WindlassError(
            "WL-USE-400",
            "there is nothing to plan: no file or context is given, and no control plane runs on this machine",
            evidence=error.message,
            remedies=(
                "windlass plan -f cluster.yaml",
                "windlass --context NAME plan",
                "windlass up --detach",
            ),
        ) from error


def time_of(invocation: Invocation, text: str | None) -> float:
    """Return ``--now`` in Unix seconds. Raises :class:`WindlassError`."""
    from windlass.kits.timestamps import parse_rfc3339

    if text is None:
        return invocation.clock.now()
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise WindlassError(
            "WL-USE-400", f"--now {text} is not a valid time", remedies=("--now 2026-01-01T12:00:00Z",)
        ) from None


def _batch(invocation: Invocation, directory: Path, time: float) -> int:
    from windlass.cli.simulate.plan_batch import run

    planned, failed = run(directory, time)
    invocation.note(f"{planned} planned, {failed} with an error")
    return 0


_EVENTS = (("evictions", "evict"), ("binds", "bind"), ("nominations", "nominate"))


def as_text(plan: dict[str, Any]) -> str:
    """Return the plan for people: decisions by cycle, pending groups with remedies, queues."""
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
        parts.append("no decisions\n")
    waiting = [
        [
            f"{entry['namespace']}/{entry['podGroup']}",
            entry["queue"],
            str(len(entry["pods"])),
            entry["code"],
            entry["waitingHelps"],
            entry["message"],
        ]
        for entry in plan["pending"]
    ]
    if waiting:
        header = ["PENDING", "QUEUE", "PODS", "CODE", "WAITING HELPS", "WHY"]
        parts.append(tables.render(header, waiting))
    parts += _remedies(plan["pending"])
    shares = [
        [entry["name"], *(_amounts(entry[field]) for field in ("fairShare", "allocated", "requested"))]
        for entry in plan["queues"]
    ]
    parts.append(tables.render(["QUEUE", "FAIR SHARE", "ALLOCATED", "REQUESTED"], shares))
    cycles = plan["cycles"]
    parts.append(
        f"{cycles} cycle{'' if cycles == 1 else 's'}; "
        + ("another cycle would change nothing\n" if plan["stable"] else "the next cycle would change more\n")
    )
    return "\n".join(parts)


def _remedies(pending: Sequence[dict[str, Any]]) -> list[str]:
    """Return one text with the remedies of each pending group; empty if there are none."""
    lines = [
        visible(f"to start {entry['namespace']}/{entry['podGroup']}: {remedy}\n")
        for entry in pending
        for remedy in entry["remedies"]
    ]
    return ["".join(lines)] if lines else []


def _note(entry: dict[str, Any]) -> str:
    if "devices" in entry:
        devices = "devices " + ",".join(map(_device, entry["devices"]))
        return ", ".join(filter(None, (devices, _zones(entry))))
    if "zones" in entry:
        return _zones(entry)
    if "action" in entry:
        return entry["action"] + (f" for {entry['for']}" if "for" in entry else "")
    return ""


def _device(device: dict[str, Any]) -> str:
    """Return the index of a device, with its share: ``3``, ``3 (0.5)``, ``3 (1g.10gb)``."""
    share = device.get("profile") or (f"{device['share']:g}" if device["share"] < 1 else "")
    return f"{device['index']} ({share})" if share else str(device["index"])


def _zones(entry: dict[str, Any]) -> str:
    """Return the NUMA nodes: ``NUMA node 0``, ``NUMA nodes 0,1``."""
    numbers = [str(part["zone"]) for part in entry.get("zones", ())]
    return f"NUMA node{'s' * (len(numbers) > 1)} {','.join(numbers)}" if numbers else ""


def _amounts(vector: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in vector.items()) or "-"
