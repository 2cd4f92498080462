"""``windlass doctor``: what is wrong with this box, and how to mend it."""

from __future__ import annotations

import click

from windlass.cli import failures
from windlass.cli.checks import FAIL, OK, all_checks
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output import emit

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@standard(namespace=False)
def command(invocation: Invocation) -> int:
    """Check this box and say how to mend what is wrong."""
    out = invocation.out
    records = []
    failed = 0
    for finding in all_checks(invocation):
        records.append(finding.as_record())
        failed += finding.level == FAIL
        if invocation.structured:
            continue
        out.line(
            f"{out.paint(f'{finding.level:<4}', _COLOURS[finding.level])}  {finding.name}: {finding.text}"
        )
        if finding.remedy and finding.level != OK:
            out.line(f"      try: {finding.remedy}")
    if invocation.structured:
        emit(invocation, {"checks": records}, names=[r["check"] for r in records if r["level"] != OK])
    return failures.FAILED if failed else failures.OK
