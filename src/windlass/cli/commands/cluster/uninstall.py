"""``windlass uninstall``: delete from a cluster what ``windlass install`` created."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.commands.cluster.install import InstallRun, need_cluster, report_reserved
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
    help="Also delete the namespace, and the CustomResourceDefinitions with all queues, gangs and jobs.",
)
@click.option("--adopted", is_flag=True, help="Give queues back to their former scheduler.")
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="With --adopted: only this queue."
)
@click.option(
    "--wait", type=click.IntRange(1), default=120, metavar="SECONDS", help="With --adopted: timeout."
)
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
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

    With --adopted the queues that windlass install --adopt took over are given back first: all, or those given by -q.
    With -q Windlass stays for the others.
    """
    from windlass.cli.install import adopt, installed_settings, objects, remove

    need_cluster(invocation, "uninstall")
    if queues and not adopted:
        raise WindlassError(
            "WL-USE-400", "--queue needs --adopted", remedies=("windlass uninstall --adopted --queue NAME",)
        )
    options = objects.InstallOptions(namespace=invocation.namespace or objects.NAMESPACE)
    if not queues:  # checks first, so that a rejection gives nothing back
        objects.reject_helm(invocation.client, options)
        installed_settings.reject_absent(invocation.client, options.namespace)
        if purge and not yes and not dry_run:
            click.confirm("Delete all queues, gangs and jobs of the cluster?", abort=True, err=True)
    if not adopted:
        adopt.check_alone(installed_settings.as_installed(invocation.client, options.namespace))
    plan = _removal_plan(invocation, options.namespace, purge=purge) if not queues else []
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
        invocation.note("there are no objects of Windlass")
    report_reserved(invocation, disabled=True)
    return errors.OK


def _removal_plan(invocation: Invocation, namespace: str, *, purge: bool) -> list[RemovalPlan]:
    """Return the objects to delete, all of which this user may delete."""
    from windlass.cli.install import installed_settings, remove

    others = installed_settings.others(invocation.client, namespace)
    if others:
        kinds = "the CustomResourceDefinitions and PriorityClasses" if purge else "the PriorityClasses"
        invocation.note(f"{kinds} stay, for Windlass in namespace {join_words(others)}")
    plan = remove.all_objects(invocation.client, namespace, purge=purge, alone=not others)
    remove.check_allowed(invocation.client, plan)
    return plan


def give_back(invocation: Invocation, queues: tuple[str, ...], *, seconds: float, dry_run: bool) -> None:
    """Give the gangs of queues (all, if none are named) back to their former scheduler.

    It is started again first, if it was stopped. At each time exactly one scheduler
    decides on a gang. ``dry_run``: only print.
    """
    from windlass.cli.install import adopt, adopt_kueue

    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    kueue_queues = adopt_kueue.held(client)
    for name in kueue_queues if not queues else [name for name in queues if name in kueue_queues]:
        if dry_run:
            tell(f"queue {name} would be given back to Kueue")
            continue
        adopt_kueue.release(client, name, clock, seconds=seconds, tell=tell)
    remaining = tuple(name for name in queues if name not in kueue_queues)
    if queues and not remaining:
        return
    for report in adopt.reports_of(client):
        named = [row.name for row in report.queues if row.name in remaining]
        if remaining and not named:
            continue
        if dry_run:
            for row in report.queues:
                if row.adopted and (not named or row.name in report.below(named)):
                    tell(f"queue {row.name} would be given back to {report.title}")
        else:
            _give_back(invocation, report, report.below(named), seconds=seconds)
        remaining = tuple(name for name in remaining if name not in named)
        if queues and not remaining:
            return
    if remaining:
        raise WindlassError(
            "WL-QUEUE-404", f'queue "{remaining[0]}" does not exist', remedies=("kubectl get queues",)
        )


def _give_back(invocation: Invocation, report: Report, queues: list[str], *, seconds: float) -> None:
    """Give back ``queues`` of this scheduler; if empty, all that are marked."""
    from windlass.cli.install import adopt, installed_settings, objects

    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    marked = [row.name for row in report.queues if row.adopted]
    if report.stopped:
        installed = installed_settings.as_installed(client, invocation.namespace or objects.NAMESPACE)
        next_to = adopt.options_next_to(installed, report)
        InstallRun(invocation, force=True).put(adopt.wanted_objects(client, next_to))
        adopt.wait_until_handed_over(
            report, marked, clock, seconds=seconds, back=False, tell=lambda _text: None
        )
        for name in adopt.start(client, report):
            tell(f"{name} scaled to its former instances")
    wanted = queues or marked
    adopt.mark(client, report, wanted, adopted=False)
    adopt.wait_until_handed_over(report, wanted, clock, seconds=seconds, back=True, tell=tell)
