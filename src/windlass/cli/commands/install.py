"""``windlass install``: the scheduler, the controllers and the CRDs into a cluster, without helm."""

from __future__ import annotations

from pathlib import Path

import click

from windlass.api.errors import WindlassError
from windlass.cli import failures
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output import emit

FORMATS = ("json", "yaml", "name")


@click.command("install")
@click.option("--image", metavar="IMAGE", default="", help="Image of Windlass.")
@click.option("--replicas", type=click.IntRange(1, 5), metavar="N", help="Instances of each (default: 2).")
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Schedule pods that name it; may be repeated (default: windlass).",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Scheduler configuration.")
@click.option("--crds/--no-crds", default=True, help="Also the CustomResourceDefinitions (default).")
@click.option("--wait", type=click.IntRange(1), metavar="SECONDS", help="Wait until all instances are ready.")
@click.option("--dry-run", is_flag=True, help="Let the server check everything, write nothing.")
@standard(formats=FORMATS)
def command(
    invocation: Invocation,
    image: str,
    replicas: int | None,
    names: tuple[str, ...],
    config: Path | None,
    crds: bool,
    wait: int | None,
    dry_run: bool,
) -> int:
    """Put Windlass into a cluster, or bring it up to date.

    With -o yaml the objects are only printed: for kubectl apply or a repository.
    """
    from windlass.cli import installing

    wishes = installing.Wishes(
        namespace=invocation.namespace or installing.NAMESPACE,
        image=image,
        replicas=replicas or 0,
        scheduler_names=names,
        configuration=_configuration(config),
        crds=crds,
    )
    wanted = installing.objects(wishes)
    if invocation.structured:
        whole = {"apiVersion": "v1", "kind": "List", "items": wanted}
        emit(invocation, whole, names=[installing.title(obj) for obj in wanted])
        return failures.OK
    need_cluster(invocation)
    installing.refuse_helms(invocation.client, wishes)
    suffix = " (dry run)" if dry_run else ""
    applied = installing.apply(invocation.client, wanted, dry_run=dry_run, clock=invocation.clock)
    for obj, action, _ in applied:
        invocation.out.line(f"{installing.title(obj)} {action}{suffix}")
    if wait is not None and not dry_run:
        installing.until_available(
            invocation.client,
            wishes.namespace,
            invocation.clock,
            float(wait),
            lambda name: invocation.out.line(f"{name} is ready"),
        )
    return failures.OK


def need_cluster(invocation: Invocation) -> None:
    """Raises :class:`WindlassError` where no cluster is named: a box has all of it already."""
    if invocation.target.remote:
        return
    raise WindlassError(
        "WL-USE-400",
        "no cluster is named",
        evidence="this box's own control plane needs no installation",
        remedies=("windlass --context NAME install", "windlass install -o yaml"),
    )


def _configuration(file: Path | None) -> str:
    """The text, once it is understood. Raises :class:`WindlassError`."""
    if file is None:
        return ""
    from windlass.model.scheduler_config import ConfigError, parse

    try:
        text = file.read_text()
        parse(text)
    except OSError as error:
        raise WindlassError(
            "WL-USE-400", f"{file} cannot be read: {error.strerror}", remedies=(f"ls -l {file}",)
        ) from error
    except ConfigError as error:
        raise WindlassError(
            "WL-CONFIG-465", f"{file}: {error}", remedies=("windlass help WL-CONFIG-465",)
        ) from error
    return text
