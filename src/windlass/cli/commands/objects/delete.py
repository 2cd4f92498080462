"""``windlass delete``: delete objects, with kubectl's options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import Resource
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.manifests.kind_lookup import split_names
from windlass.cli.options import completer, standard, yes_flag
from windlass.cli.output.formats import emit

_Item = tuple[Resource, str | None, str]


@click.command("delete")
@click.argument("what", nargs=-1, metavar="KIND NAME...", shell_complete=completer("objects"))
@click.option("-f", "--filename", "sources", multiple=True, metavar="FILE", help="Objects of this manifest.")
@click.option("-l", "--selector", metavar="LABELS", default="", help="Objects with these labels.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    help="Deletion of the objects that it owns.",
)
@click.option("--grace-period", type=click.IntRange(0), metavar="SECONDS", help="Grace period for its end.")
@click.option("--now", is_flag=True, help="Same as --grace-period 0.")
@click.option("--ignore-not-found", is_flag=True, help="Ignore objects that do not exist.")
@click.option("--wait/--no-wait", default=True, help="Wait until they are gone (default).")
@yes_flag()
@standard()
def command(
    invocation: Invocation,
    what: tuple[str, ...],
    sources: tuple[str, ...],
    selector: str,
    everything: bool,
    cascade: str,
    grace_period: int | None,
    now: bool,
    ignore_not_found: bool,
    wait: bool,
    yes: bool,
) -> int:
    """Delete objects."""
    chosen = list(
        _from_files(invocation, sources) if sources else _named(invocation, what, selector, everything)
    )
    if everything and chosen and not yes and invocation.out.interactive:
        click.confirm(f"Delete {len(chosen)} object(s)?", abort=True, err=True)
    grace = 0 if now else grace_period
    deleted: list[tuple[_Item, str]] = []
    failed: list[WindlassError] = []
    for item in chosen:
        resource, namespace, name = item
        try:
            response = invocation.client.delete(
                resource, name, namespace, propagation=cascade.capitalize(), grace_seconds=grace
            )
        except StatusError as error:
            if error.code == 404 and ignore_not_found:
                continue
            if len(chosen) == 1:
                raise
            failed.append(errors.translate(error, invocation.client))
            invocation.err.write(errors.as_text(failed[-1], invocation.err.paint))
            continue
        uid = (response.get("details") or {}).get("uid") or (response.get("metadata") or {}).get("uid") or ""
        deleted.append((item, uid))
        if not invocation.structured:
            invocation.out.line(f'{_kind(resource)} "{name}" deleted')
    if wait:
        _until_gone(invocation, deleted)
    if invocation.structured:
        names = [f"{_kind(resource)}/{name}" for (resource, _, name), _ in deleted]
        emit(invocation, {"deleted": names}, names=names)
    return errors.exit_status(failed[0]) if failed else errors.OK


def _kind(resource: Resource) -> str:
    return f"{resource.singular}.{resource.group}" if resource.group else resource.singular


def _from_files(invocation: Invocation, sources: tuple[str, ...]) -> Iterator[_Item]:
    from windlass.cli.manifests.apply import resource_of
    from windlass.cli.manifests.read import read

    for document in reversed(read(sources)):
        resource = resource_of(document, lambda: invocation.client)
        metadata = document.obj.get("metadata") or {}
        namespace = metadata.get("namespace") or invocation.home_namespace
        if metadata.get("name"):
            yield resource, namespace if resource.namespaced else None, metadata["name"]


def _is_job(invocation: Invocation, name: str) -> bool:
    from windlass.cli.jobs.job_index import find

    try:
        return "/" not in name and bool(find(invocation, name))
    except WindlassError:
        return False


def _names_of_jobs(names: tuple[str, ...], error: WindlassError) -> WindlassError:
    jobs = f"{names[0]} is a job" if len(names) == 1 else f"{', '.join(names)} are jobs"
    return WindlassError(
        error.code,
        error.message,
        evidence=f"{jobs}: windlass delete needs the kind before the name",
        remedies=(f"windlass cancel {' '.join(names)}",),
    )


def _named(invocation: Invocation, what: tuple[str, ...], selector: str, everything: bool) -> Iterator[_Item]:
    try:
        requested = split_names(what, lambda: invocation.client) if what else []
    except WindlassError as error:
        if error.code == "WL-KIND-404" and all(_is_job(invocation, word) for word in what):
            raise _names_of_jobs(what, error) from None
        raise
    whole = [resource for resource, name in requested if name is None]
    if not requested or (whole and not (selector or everything)):
        kind = whole[0].plural if whole else "KIND"
        raise WindlassError(
            "WL-USE-400",
            "give names of objects, -l LABELS, --all, or -f FILE",
            evidence=f"only the kind was given: {kind}" if whole else "nothing was given",
            remedies=(f"windlass delete {kind} NAME", f"windlass delete {kind} --all"),
        )
    for resource, name in requested:
        namespace = invocation.home_namespace if resource.namespaced else None
        if name is not None:
            yield resource, namespace, name
        else:
            for item in invocation.client.list(resource, namespace, labels=selector).items:
                yield resource, item["metadata"].get("namespace"), item["metadata"]["name"]


def _present(invocation: Invocation, item: _Item) -> dict[str, Any] | None:
    """Return an object; ``None`` if it is gone, or its kind with it."""
    resource, namespace, name = item
    try:
        return invocation.client.find(resource, name, namespace)
    except StatusError as error:
        if error.code != 404:
            raise
        return None


def _until_gone(invocation: Invocation, deleted: list[tuple[_Item, str]]) -> None:
    """Wait until these objects are gone. A new object of the same name is ignored."""
    for (resource, namespace, name), uid in deleted:
        pause = 0.01
        while True:
            current = _present(invocation, (resource, namespace, name))
            if current is None or (uid and current["metadata"].get("uid") != uid):
                break
            invocation.clock.pause(pause)
            pause = min(0.5, pause * 1.5)
