"""``windlass sim claims``: experiments on published traces."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit


@click.command("claims", short_help="Try claims of the field on traces.")
@click.argument("named", nargs=-1, metavar="[ID]...")
@click.option(
    "--traces",
    "folder",
    default=None,
    metavar="DIR",
    help="Directory of published traces (default: small traces that Windlass generates).",
)
@click.option("--only", "ids", multiple=True, metavar="IDS", help="The same by comma, such as E2,E5.")
@click.option(
    "--jobs", type=click.IntRange(1, 256), default=1, metavar="N", help="Processes at once (default: 1)."
)
@standard(namespace=False, formats=("json", "yaml", "table", "markdown"))
def command(
    invocation: Invocation, named: tuple[str, ...], folder: str | None, ids: tuple[str, ...], jobs: int
) -> int:
    """Try claims of the field on traces: claim, baseline, Windlass.

    ID: an experiment (E2), or a claim by its number in the list of requirements (N14). With published traces all of
    them take an hour. The exit status is 2 if an experiment was not run because its traces are missing.
    """
    from windlass.cli.output.progress import report_missing
    from windlass_lab.commands import experiment_runs
    from windlass_lab.experiments import report

    experiments = experiment_runs.chosen((*named, *ids))
    experiment_runs.check_folder(folder)
    results = experiment_runs.run(invocation, folder, experiments, jobs)
    if invocation.output == "markdown":
        invocation.out.write(report.markdown([result.document for result in results]))
    elif invocation.output in ("", "table"):
        invocation.out.write(experiment_runs.as_table(results, folder))
    else:
        emit(invocation, experiment_runs.document(results, folder))
    tried = {result.experiment.id for result in results}
    status = report_missing(invocation, [each.id for each in experiments if each.id not in tried])
    if not status:
        experiment_runs.check_all_run(folder, results)
    return status
