"""``windlass uninstall``: takes out of a cluster what ``windlass install`` put there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.commands.install import InstallRun, need_cluster, tell_held
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard, yes_flag
from windlass.cli.text import join_words

if TYPE_CHECKING:
    from windlass.cli.install.adopt_common import Report
    from windlass.cli.install.remove import RemovalPlan


@click.command("uninstall")
@click.option(
    "--purge",
    is_flag=True,
    help="Also the namespace, and the CustomResourceDefinitions with all queues, gangs and jobs.",
)
@click.option("--adopted", is_flag=True, help="Give queues back to the scheduler that they were taken from.")
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="With --adopted: only this queue."
)
@click.option(
    "--wait", type=click.IntRange(1), default=120, metavar="SECONDS", help="With --adopted: how long."
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be deleted.")
@yes_flag()
@standard(output=False)
def command(
    invocation: Invocation,
    purge: bool,
    adopted: bool,
    queues: tuple[str, ...],
    wait: int,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove Windlass from a cluster; queues, jobs and running pods stay.

    With --adopted the queues that windlass install --adopt took over are given back first, all or those named by -q;
    with -q Windlass stays for the others.
    """
    from windlass.cli.install import adopt, installed_settings, objects, remove

    need_cluster(invocation, "uninstall")
    if queues and not adopted:
        raise WindlassError(
            "WL-USE-400", "--queue needs --adopted", remedies=("windlass uninstall --adopted --queue NAME",)
        )
    options = objects.InstallOptions(namespace=invocation.namespace or objects.NAMESPACE)
    if not queues:  # what is refused gives nothing back first
        objects.refuse_helms(invocation.client, options)
        installed_settings.refuse_absent(invocation.client, options.namespace)
        if purge and not yes and not dry_run:
            click.confirm("Delete all queues, gangs and jobs of the cluster?", abort=True, err=True)
    if not adopted:
        adopt.check_alone(installed_settings.as_installed(invocation.client, options.namespace))
    plan = _leaving(invocation, options.namespace, purge=purge) if not queues else []
    if adopted:
        give_back(invocation, queues, seconds=float(wait), dry_run=dry_run)
        if queues:
            return errors.OK
    verb = "would be deleted" if dry_run else "deleted"
    count = 0
    for name in remove.delete(invocation.client, plan, dry_run=dry_run):
        invocation.out.line(f"{name} {verb}")
        count += 1
    if not count:
        invocation.note("nothing of Windlass is there")
    tell_held(invocation, going=True)
    return errors.OK


def _leaving(invocation: Invocation, namespace: str, *, purge: bool) -> list[RemovalPlan]:
    """What is to go, all of which this user may delete."""
    from windlass.cli.install import installed_settings, remove

    others = installed_settings.others(invocation.client, namespace)
    if others:
        kinds = "the CustomResourceDefinitions and PriorityClasses" if purge else "the PriorityClasses"
        invocation.note(f"{kinds} stay, for Windlass in namespace {join_words(others)}")
    plan = remove.everything(invocation.client, namespace, purge=purge, alone=not others)
    remove.check_allowed(invocation.client, plan)
    return plan


def give_back(invocation: Invocation, queues: tuple[str, ...], *, seconds: float, dry_run: bool) -> None:
    """Hand the gangs of queues (of all, without any) back to the scheduler that they were taken from, which is started
    again first if it was stopped. ``dry_run``: only tell of it.

    Between the two of them there is always exactly one that decides a gang."""
    from windlass.cli.install import adopt, adopt_kueue

    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    held = adopt_kueue.held(client)
    for name in held if not queues else [name for name in queues if name in held]:
        if dry_run:
            tell(f"queue {name} would be given back to Kueue")
            continue
        adopt_kueue.let_go(client, name, clock, seconds=seconds, tell=tell)
    left = tuple(name for name in queues if name not in held)
    if queues and not left:
        return
    for report in adopt.found_in(client):
        named = [row.name for row in report.queues if row.name in left]
        if left and not named:
            continue
        if dry_run:
            for row in report.queues:
                if row.adopted and (not named or row.name in report.below(named)):
                    tell(f"queue {row.name} would be given back to {report.title}")
        else:
            _give_back(invocation, report, report.below(named), seconds=seconds)
        left = tuple(name for name in left if name not in named)
        if queues and not left:
            return
    if left:
        raise WindlassError("WL-QUEUE-404", f"there is no queue {left[0]}", remedies=("kubectl get queues",))


def _give_back(invocation: Invocation, report: Report, queues: list[str], *, seconds: float) -> None:
    """``queues``: of this scheduler; none: all that are marked."""
    from windlass.cli.install import adopt, installed_settings, objects

    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    marked = [row.name for row in report.queues if row.adopted]
    if report.stopped:
        there = installed_settings.as_installed(client, invocation.namespace or objects.NAMESPACE)
        beside = adopt.wishes_beside(there, report)
        InstallRun(invocation, force=True).put(adopt.wanted_objects(client, beside))
        adopt.until_handed(report, marked, clock, seconds=seconds, back=False, tell=lambda _text: None)
        for name in adopt.start(client, report):
            tell(f"{name} has its instances again")
    wanted = queues or marked
    adopt.mark(client, report, wanted, adopted=False)
    adopt.until_handed(report, wanted, clock, seconds=seconds, back=True, tell=tell)
