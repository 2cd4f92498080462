"""Events of objects, as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.resources import EVENTS
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.text import timestamp
from windlass.kits.timestamps import age


def about_objects(invocation: Invocation, objects: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the events about any of ``objects``, oldest first."""
    subjects = list(objects)
    spaces = {obj["metadata"].get("namespace") or "default" for obj in subjects}
    uids = {obj["metadata"].get("uid") for obj in subjects}
    named = {
        (obj.get("kind"), obj["metadata"]["name"]) for obj in subjects if not obj["metadata"].get("namespace")
    }
    events = []
    for space in sorted(spaces):
        fields = f"involvedObject.uid={subjects[0]['metadata'].get('uid')}" if len(subjects) == 1 else ""
        if fields and not subjects[0]["metadata"].get("namespace"):
            fields = f"involvedObject.name={subjects[0]['metadata']['name']}"
        for event in invocation.client.list(EVENTS, space, fields=fields).items:
            about = event.get("involvedObject") or {}
            if about.get("uid") in uids or (about.get("kind"), about.get("name")) in named:
                events.append(event)
    return sorted(events, key=last_seen)


def last_seen(event: Mapping[str, Any]) -> float:
    """Return the time at which the event was last seen, in Unix seconds."""
    series = event.get("series") or {}
    stamps = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    metadata = event.get("metadata") or {}
    return max(timestamp(text) for text in (*stamps, metadata.get("creationTimestamp")))


def render(
    invocation: Invocation, objects: Iterable[Mapping[str, Any]], *, most: int = 0, indent: str = ""
) -> str:
    """Return a table of the latest events; empty if there are none.

    :param most: maximum number of events; 0: all
    """
    events = about_objects(invocation, objects)[-most:]
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
                f"{age(now - last_seen(event))}{times}",
                str(source),
                str(event.get("message") or ""),
            ]
        )
    text = tables.render(("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), rows)
    return "".join(f"{indent}{line}\n" for line in text.splitlines())
