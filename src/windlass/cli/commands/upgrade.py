"""``windlass upgrade``: what stands between a cluster and this version, before it is installed."""

from __future__ import annotations

import click

from windlass.cli import errors, tables
from windlass.cli.commands.install import need_cluster
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit

FORMATS = ("json", "yaml")


@click.command("upgrade")
@click.option(
    "--check", "check_only", is_flag=True, help="Look, and change nothing (what it does without flags too)."
)
@click.option("--migrate-storage", is_flag=True, help="Have objects stored in today's version of their kind.")
@standard(formats=FORMATS)
def command(invocation: Invocation, check_only: bool, migrate_storage: bool) -> int:
    """Check a cluster before an upgrade to this version.

    Versions, kinds, objects that would break, the configuration. Ends with 5 where something stands against it.
    """
    from windlass.cli.install import objects, upgrade

    need_cluster(invocation, "upgrade")
    client = invocation.client
    if migrate_storage and not check_only:
        for words in upgrade.migrate_storage(client):
            invocation.note(words)
    found = upgrade.check(client, invocation.namespace or objects.NAMESPACE)
    stops = [finding for finding in found if finding.level == upgrade.STOP]
    if invocation.structured:
        emit(invocation, {"ready": not stops, "findings": [finding.as_dict() for finding in found]})
        return errors.CONFLICT if stops else errors.OK
    aim = invocation.surroundings.aim
    rows = [
        [finding.level, finding.subject, finding.words, errors.remedy_with_target(finding.remedy, aim)]
        for finding in found
    ]
    invocation.out.write(tables.render(["", "WHAT", "HOW IT STANDS", "WHAT TO DO"], rows))
    if stops:
        count = len(stops)
        invocation.out.line(
            f"\n{count} thing{'' if count == 1 else 's'} to be done before this version is installed"
        )
        return errors.CONFLICT
    install = errors.remedy_with_target("windlass install", aim)
    invocation.out.line(
        f"\nready: {install}, or helm upgrade after windlass crds | kubectl apply --server-side -f -"
    )
    return errors.OK
