"""``windlass crds``: what a cluster has to know of Windlass' and Volcano's kinds."""

from __future__ import annotations

from importlib.resources import files

import click


@click.command("crds")
def command() -> int:
    """Print the CustomResourceDefinitions."""
    folder = files("windlass.api") / "crds"
    texts = [
        entry.read_text().strip() + "\n"
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith((".yaml", ".yml"))
    ]
    click.echo("---\n".join(text.removeprefix("---\n") for text in texts), nl=False)
    return 0
