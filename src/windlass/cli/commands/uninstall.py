"""``windlass uninstall``: takes out of a cluster what ``windlass install`` put there."""

from __future__ import annotations

import click

from windlass.cli import failures
from windlass.cli.commands.install import need_cluster
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard, yes_flag


@click.command("uninstall")
@click.option(
    "--purge",
    is_flag=True,
    help="Also the namespace, and the CustomResourceDefinitions with all queues, gangs and jobs.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be deleted.")
@yes_flag()
@standard(output=False)
def command(invocation: Invocation, purge: bool, dry_run: bool, yes: bool) -> int:
    """Take Windlass out of a cluster; queues, jobs and running pods stay."""
    from windlass.cli import installing

    need_cluster(invocation)
    if purge and not yes and not dry_run:
        click.confirm("Delete all queues, gangs and jobs of the cluster?", abort=True, err=True)
    wishes = installing.Wishes(namespace=invocation.namespace or installing.NAMESPACE)
    installing.refuse_helms(invocation.client, wishes)
    verb = "would be deleted" if dry_run else "deleted"
    count = 0
    for name in installing.remove(invocation.client, wishes, purge=purge, dry_run=dry_run):
        invocation.out.line(f"{name} {verb}")
        count += 1
    if not count:
        invocation.note("nothing of Windlass is there")
    return failures.OK
