"""``windlass docs``: pages of the documentation in the terminal, offline."""

from __future__ import annotations

import shutil
import sys

import click
from click.shell_completion import CompletionItem

from windlass.api.errors import WindlassError
from windlass.cli import manual
from windlass.cli.errors import nearest
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.cli.tables import pairs


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    pages = manual.installed()
    topics = pages.pages.values() if pages else ()
    return [
        CompletionItem(page.topic, help=page.title) for page in topics if page.topic.startswith(incomplete)
    ]


@click.command("docs")
@click.argument("topic", required=False, metavar="[TOPIC]", shell_complete=_complete)
@standard(namespace=False)
def command(invocation: Invocation, topic: str | None) -> int:
    """Print a page of the documentation, or list the topics."""
    pages = manual.installed()
    if pages is None:
        raise WindlassError(
            "WL-USE-404",
            "this installation contains no documentation",
            evidence="neither " + " nor ".join(str(place) for place in manual.PLACES) + " exists",
            remedies=("pip install --force-reinstall .",),
        )
    if topic is None:
        _list(invocation, pages)
        return 0
    page = pages.page(topic)
    if page is None:
        close = nearest(topic, pages.pages)
        raise WindlassError(
            "WL-USE-404",
            f'there is no page "{topic}"',
            evidence=f"{len(pages.pages)} topics are known",
            remedies=tuple(f"windlass docs {match}" for match in close) or ("windlass docs",),
        )
    text = page.path.read_text()
    if invocation.structured:
        emit(invocation, {"topic": page.topic, "title": page.title, "text": text}, names=[page.topic])
    elif sys.stdout.isatty() and len(text.splitlines()) > shutil.get_terminal_size().lines:
        click.echo_via_pager(text)
    else:
        invocation.out.write(text)
    return 0


def _list(invocation: Invocation, pages: manual.Manual) -> None:
    shown = list(pages.pages.values())
    if invocation.structured:
        records = [{"topic": page.topic, "title": page.title} for page in shown]
        emit(invocation, records, names=[page.topic for page in shown])
        return
    single = [page for page in shown if page.path.parent.name != "decisions" or page.topic == "decisions"]
    invocation.out.write(pairs([(page.topic, page.title) for page in single]))
