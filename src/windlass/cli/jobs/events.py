"""Events of objects, as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.resources import EVENTS
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.text import timestamp
from windlass.kits.timestamps import age


def of(invocation: Invocation, objects: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events about any of ``objects``, oldest first."""
    wanted = list(objects)
    spaces = {obj["metadata"].get("namespace") or "default" for obj in wanted}
    uids = {obj["metadata"].get("uid") for obj in wanted}
    named = {
        (obj.get("kind"), obj["metadata"]["name"]) for obj in wanted if not obj["metadata"].get("namespace")
    }
    found = []
    for space in sorted(spaces):
        fields = f"involvedObject.uid={wanted[0]['metadata'].get('uid')}" if len(wanted) == 1 else ""
        if fields and not wanted[0]["metadata"].get("namespace"):
            fields = f"involvedObject.name={wanted[0]['metadata']['name']}"
        for event in invocation.client.list(EVENTS, space, fields=fields).items:
            about = event.get("involvedObject") or {}
            if about.get("uid") in uids or (about.get("kind"), about.get("name")) in named:
                found.append(event)
    return sorted(found, key=when)


def when(event: Mapping[str, Any]) -> float:
    """Unix seconds at which it was seen last."""
    series = event.get("series") or {}
    stamps = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    metadata = event.get("metadata") or {}
    return max(timestamp(text) for text in (*stamps, metadata.get("creationTimestamp")))


def lines(
    invocation: Invocation, objects: Iterable[Mapping[str, Any]], *, most: int = 0, indent: str = ""
) -> str:
    """A table of the latest events, of at most ``most`` of them (0: all); empty when there are none."""
    events = of(invocation, objects)[-most:]
    if not events:
        return ""
    now = invocation.clock.now()
    rows = []
    for event in events:
        count = int(event.get("count") or (event.get("series") or {}).get("count") or 1)
        times = f" (x{count})" if count > 1 else ""
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
        rows.append(
            [
                str(event.get("type") or "Normal"),
                str(event.get("reason") or ""),
                f"{age(now - when(event))}{times}",
                str(source),
                str(event.get("message") or ""),
            ]
        )
    text = tables.render(("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), rows)
    return "".join(f"{indent}{line}\n" for line in text.splitlines())
