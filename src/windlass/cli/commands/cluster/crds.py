"""``windlass crds``: CustomResourceDefinitions of Windlass' and Volcano's kinds."""

from __future__ import annotations

from importlib.resources import files

import click

from windlass.api.job_kind_families import JOB_KIND_FAMILIES, OWN_FAMILIES
from windlass.cli import terminal
from windlass.cli.options import output_flag
from windlass.cli.output.formats import check_format, to_json

FORMATS = ("yaml", "json")


@click.command("crds")
@click.option(
    "--job-kinds",
    type=click.Choice([name for name in JOB_KIND_FAMILIES if name not in OWN_FAMILIES]),
    help="Those of a family of job kinds instead, which Windlass operates where no other operator runs.",
)
@output_flag(FORMATS)
def command(output: str | None, job_kinds: str | None) -> int:
    """Print the CustomResourceDefinitions."""
    form = check_format(output or "", FORMATS)
    directory = files("windlass.api") / "crds"
    if job_kinds is not None:
        directory /= job_kinds
    texts = [
        entry.read_text().strip() + "\n"
        for entry in sorted(directory.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith((".yaml", ".yml"))
    ]
    whole = "---\n".join(text.removeprefix("---\n") for text in texts)
    if form == "json":
        import yaml

        whole = to_json(list(yaml.safe_load_all(whole)))
    terminal.output().write(whole)
    return 0
