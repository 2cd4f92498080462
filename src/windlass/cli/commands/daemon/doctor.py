"""``windlass doctor``: problems of this machine or of a cluster, with fixes."""

from __future__ import annotations

import click

from windlass.cli import errors
from windlass.cli.doctor import machine_checks
from windlass.cli.doctor.machine_checks import FAIL, OK
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@standard()
def command(invocation: Invocation) -> int:
    """Check this machine or a cluster, and suggest fixes.

    With --context or --kubeconfig it checks a cluster: installation of Windlass, leader, nodes, your rights.
    """
    if invocation.target.remote:
        from windlass.cli.doctor import cluster_checks

        results = cluster_checks.all_checks(invocation)
    else:
        results = machine_checks.all_checks(invocation)
    out = invocation.out
    records = []
    failed = 0
    for result in results:
        records.append(result.as_record())
        failed += result.level == FAIL
        if invocation.structured:
            continue
        out.line(f"{out.paint(f'{result.level:<4}', _COLOURS[result.level])}  {result.name}: {result.text}")
        if result.remedy and result.level != OK:
            out.line(
                f"      try: {errors.remedy_with_target(result.remedy, invocation.context.target_flags)}"
            )
    if invocation.structured:
        emit(invocation, {"checks": records}, names=[r["check"] for r in records if r["level"] != OK])
    return errors.FAILED if failed else errors.OK
