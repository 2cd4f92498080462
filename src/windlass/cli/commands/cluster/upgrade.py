"""``windlass upgrade``: obstacles to the installation of this version in a cluster."""

from __future__ import annotations

import click

from windlass.cli import errors, tables
from windlass.cli.commands.cluster.install import need_cluster
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit

FORMATS = ("json", "yaml")


@click.command("upgrade")
@click.option("--check", "check_only", is_flag=True, help="Check, and change nothing (the default).")
@click.option("--migrate-storage", is_flag=True, help="Store objects in the current version of their kind.")
@standard(formats=FORMATS)
def command(invocation: Invocation, check_only: bool, migrate_storage: bool) -> int:
    """Check a cluster before an upgrade to this version.

    It checks versions, kinds, objects that would become invalid, and the configuration. The exit status is 5 if there
    is an obstacle.
    """
    from windlass.cli.install import objects, upgrade

    need_cluster(invocation, "upgrade")
    client = invocation.client
    if migrate_storage and not check_only:
        for text in upgrade.migrate_storage(client):
            invocation.note(text)
    findings = upgrade.check(client, invocation.namespace or objects.NAMESPACE)
    stops = [finding for finding in findings if finding.level == upgrade.STOP]
    if invocation.structured:
        emit(invocation, {"ready": not stops, "findings": [finding.as_dict() for finding in findings]})
        return errors.CONFLICT if stops else errors.OK
    flags = invocation.context.target_flags
    rows = [
        [finding.level, finding.subject, finding.words, errors.remedy_with_target(finding.remedy, flags)]
        for finding in findings
    ]
    invocation.out.write(tables.render(["", "SUBJECT", "STATE", "REMEDY"], rows))
    if stops:
        count = len(stops)
        invocation.out.line(
            f"\n{count} obstacle{'' if count == 1 else 's'} to remove before this version is installed"
        )
        return errors.CONFLICT
    install = errors.remedy_with_target("windlass install", flags)
    invocation.out.line(
        f"\nready: {install}   (or helm upgrade, after windlass crds | kubectl apply --server-side -f -)"
    )
    return errors.OK
