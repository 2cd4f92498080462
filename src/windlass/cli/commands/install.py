"""``windlass install``: the scheduler, the controllers and the CRDs into a cluster, without helm."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.api.errors import WindlassError
from windlass.cli import failures
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output import emit

if TYPE_CHECKING:
    from windlass.cli.guarding import Proof
    from windlass.cli.installing import Wishes

FORMATS = ("json", "yaml", "name")


@click.command("install")
@click.option("--image", metavar="IMAGE", default="", help="Image of Windlass.")
@click.option("--replicas", type=click.IntRange(1, 5), metavar="N", help="Instances of each (default: 2).")
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Schedule pods that name it; may be repeated (default: windlass).",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Scheduler configuration.")
@click.option("--bind-guard", is_flag=True, help="Be asked before others bind pods (a webhook).")
@click.option("--crds/--no-crds", default=True, help="Also the CustomResourceDefinitions (default).")
@click.option("--wait", type=click.IntRange(1), metavar="SECONDS", help="Wait until all instances are ready.")
@click.option(
    "--adopt",
    type=click.Choice(("volcano", "kai", "kueue")),
    help="Take queues over from what schedules or queues now, one by one while it runs.",
)
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="With --adopt: take this queue over."
)
@click.option(
    "--finish", is_flag=True, help="With --adopt: all queues are taken over; stop the other scheduler."
)
@click.option("--dry-run", is_flag=True, help="Let the server check everything, write nothing.")
@standard(formats=FORMATS)
def command(
    invocation: Invocation,
    image: str,
    replicas: int | None,
    names: tuple[str, ...],
    config: Path | None,
    crds: bool,
    wait: int | None,
    dry_run: bool,
    adopt: str | None,
    queues: tuple[str, ...],
    finish: bool,
    bind_guard: bool,
) -> int:
    """Put Windlass into a cluster, or bring it up to date.

    With -o yaml the objects are only printed: for kubectl apply or a repository.

    With --adopt volcano or kai a cluster that runs that scheduler is looked at and reported on, and Windlass is put
    beside it; queues named by -q are taken over, without touching their pods. With --adopt kueue the queues of Kueue
    are made queues of Windlass, and Kueue admits nothing more to those named by -q. windlass uninstall --adopted goes
    back.
    """
    from windlass.cli import adopting, installing

    wishes = installing.Wishes(
        namespace=invocation.namespace or installing.NAMESPACE,
        image=image,
        replicas=replicas or 0,
        scheduler_names=names,
        configuration=_configuration(config),
        crds=crds,
    )
    if bind_guard:
        wishes = replace(wishes, proof=_proof(invocation, wishes.namespace))
    if adopt is None and (queues or finish):
        raise WindlassError("WL-USE-400", "--queue and --finish need --adopt")
    if adopt == "kueue":
        need_cluster(invocation)
        if finish:
            raise WindlassError(
                "WL-USE-400", "--adopt kueue stops nothing: Kueue has no part in placing pods"
            )
        return _translate(invocation, queues, wait=wait, dry_run=dry_run)
    if adopt is not None and not invocation.structured:
        need_cluster(invocation)
        installing.refuse_helms(invocation.client, wishes)
        return _take_over(invocation, adopt, wishes, queues, finish=finish, wait=wait, dry_run=dry_run)
    wanted = installing.objects(wishes)
    if invocation.structured:
        whole = {"apiVersion": "v1", "kind": "List", "items": wanted}
        emit(invocation, whole, names=[installing.title(obj) for obj in wanted])
        return failures.OK
    need_cluster(invocation)
    installing.refuse_helms(invocation.client, wishes)
    adopting.check_alone(installing.as_installed(invocation.client, wishes))
    return _apply(invocation, wishes, wanted, wait=wait, dry_run=dry_run)


def _apply(
    invocation: Invocation, wishes: Wishes, wanted: list[dict[str, Any]], *, wait: int | None, dry_run: bool
) -> int:
    """Apply all, take away what is not wanted any more, and wait where that is asked for."""
    from windlass.cli import installing

    apply_all(invocation, wanted, dry_run=dry_run)
    if wishes.proof is None:
        for title in installing.remove_guard(invocation.client, wishes.namespace, dry_run=dry_run):
            invocation.out.line(f"{title} deleted{' (dry run)' if dry_run else ''}")
    if wait is not None and not dry_run:
        installing.until_available(
            invocation.client,
            wishes.namespace,
            invocation.clock,
            float(wait),
            lambda name: invocation.out.line(f"{name} is ready"),
        )
    return failures.OK


def _proof(invocation: Invocation, namespace: str) -> Proof:
    """What the bind guard of the cluster has, if it lasts; else a new one."""
    from windlass.cli import guarding, installing

    now = datetime.datetime.fromtimestamp(invocation.clock.now(), datetime.UTC)
    if invocation.target.remote and not invocation.structured:
        kept = guarding.kept_proof(invocation.client.find(installing.SECRETS, installing.GUARD, namespace))
        if kept is not None and guarding.lasts(kept, now):
            return kept
    return guarding.make_proof(namespace, now)


def apply_all(invocation: Invocation, wanted: list[dict[str, Any]], *, dry_run: bool) -> None:
    """Apply, and tell of each object."""
    from windlass.cli import installing

    suffix = " (dry run)" if dry_run else ""
    for obj, action, _ in installing.apply(
        invocation.client, wanted, dry_run=dry_run, clock=invocation.clock
    ):
        invocation.out.line(f"{installing.title(obj)} {action}{suffix}")


def _take_over(
    invocation: Invocation,
    kind: str,
    wishes: Wishes,
    queues: tuple[str, ...],
    *,
    finish: bool,
    wait: int | None,
    dry_run: bool,
) -> int:
    """Report; install beside; mark queues; with ``finish`` stop the other scheduler. Every step may be repeated."""
    from windlass.cli import adopting, installing

    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    report = adopting.PREFLIGHTS[kind](client)
    invocation.out.write(adopting.report_text(report))
    adopting.check(report, queues, finish=finish)
    adopting.check_alone(installing.as_installed(client, wishes), kind)
    seconds = float(wait or adopting.PATIENCE_SECONDS)
    beside = adopting.wishes_beside(wishes, report)
    if not (finish and report.stopped):
        apply_all(invocation, adopting.wanted_objects(client, beside), dry_run=dry_run)
    if dry_run:
        return failures.OK
    if queues:
        wanted = report.below(queues)
        adopting.mark(client, report, wanted, adopted=True)
        adopting.until_handed(report, wanted, clock, seconds=seconds, back=False, tell=tell)
    if finish:
        for name in adopting.stop(client, report, clock, seconds=seconds):
            tell(f"{name} scaled to 0")
        alone = adopting.wishes_alone(beside, report)
        apply_all(invocation, adopting.wanted_objects(client, alone), dry_run=False)
        tell(f"{report.title} decides nothing any more; windlass uninstall --adopted goes back")
    return failures.OK


def _translate(invocation: Invocation, queues: tuple[str, ...], *, wait: int | None, dry_run: bool) -> int:
    """Kueue's queues as queues of Windlass: printed, or made; those of ``queues`` are handed over."""
    from windlass.cli import adopting, kueues

    found = kueues.read(invocation.client)
    if invocation.structured:
        items = [*found.queues, *found.namespaces, *found.groups]
        names = [f"{obj['kind'].lower()}/{obj['metadata']['name']}" for obj in items]
        emit(invocation, {"apiVersion": "v1", "kind": "List", "items": items}, names=names)
        for note in found.notes:
            invocation.note(f"note: {note}")
        return failures.OK
    invocation.out.write(kueues.text(found))
    invocation.out.write("\n" + kueues.standing(invocation.client))
    kueues.check(invocation.client, queues)
    for words in kueues.apply(invocation.client, found, dry_run=dry_run):
        invocation.out.line(words + (" (dry run)" if dry_run else ""))
    for name in () if dry_run else queues:
        seconds = float(wait or adopting.PATIENCE_SECONDS)
        kueues.hold(invocation.client, name, invocation.clock, seconds=seconds, tell=invocation.out.line)
    return failures.OK


def need_cluster(invocation: Invocation) -> None:
    """Raises :class:`WindlassError` where no cluster is named: a box has all of it already."""
    if invocation.target.remote:
        return
    raise WindlassError(
        "WL-USE-400",
        "no cluster is named",
        evidence="this box's own control plane needs no installation",
        remedies=("windlass --context NAME install", "windlass install -o yaml"),
    )


def _configuration(file: Path | None) -> str:
    """The text, once it is understood. Raises :class:`WindlassError`."""
    if file is None:
        return ""
    from windlass.scheduler.configuration import parse, read_text

    text = read_text(str(file))
    parse(text, str(file))
    return text
