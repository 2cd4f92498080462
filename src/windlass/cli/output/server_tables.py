"""Tables made by the server (``as=Table``), printed as kubectl prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.api.resources import Resource
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.client import verbs
from windlass.client.transport import Request

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def as_table(request: Request) -> Request:
    return replace(request, headers={**request.headers, "accept": _TABLE})


class TablePrinter:
    """Prints tables, one per kind.

    A watch continues the last one with the same columns.
    """

    def __init__(self, invocation: Invocation, *, headers: bool, labels: bool, several: bool) -> None:
        self._invocation = invocation
        self._headers = headers
        self._labels = labels
        self._several = several
        self._printed = 0
        self._columns: list[str] = []
        self._shown: list[int] = []

    def show(self, resource: Resource, names: Sequence[str], selector: str, fields: str) -> int:
        """Print the table of a kind, and return the number of rows."""
        rows: list[list[str]] = []
        for page in self._pages(resource, names, selector, fields):
            rows += self._rows(resource, page)
        if rows:
            if self._printed:
                self._invocation.out.line()
            self._invocation.out.write(tables.render(self._columns, rows, show_header=self._headers))
            self._printed += 1
        return len(rows)

    def _pages(
        self, resource: Resource, names: Sequence[str], selector: str, fields: str
    ) -> Iterator[Mapping[str, Any]]:
        client = self._invocation.client
        if names:
            space = self._invocation.home_namespace if resource.namespaced else None
            for name in names:
                yield msgspec.json.decode(client.call(as_table(verbs.get(resource, name, space))))
            return
        token = ""
        while True:
            request = verbs.list_(
                resource,
                self._scope(resource),
                labels=selector,
                fields=fields,
                limit=500,
                continue_token=token,
            )
            page = msgspec.json.decode(client.call(as_table(request)))
            yield page
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    def _scope(self, resource: Resource) -> str | None:
        return self._invocation.listed_namespace if resource.namespaced else None

    def _rows(self, resource: Resource, page: Mapping[str, Any]) -> list[list[str]]:
        if page.get("kind") != "Table":
            page = _plain_table(page)
        definitions = page.get("columnDefinitions") or ()
        if definitions:
            self._shown = [
                at
                for at, column in enumerate(definitions)
                if self._invocation.wide or not column.get("priority")
            ]
            self._columns = [definitions[at]["name"].upper() for at in self._shown]
            if resource.namespaced and self._invocation.all_namespaces:
                self._columns.insert(0, "NAMESPACE")
            if self._labels:
                self._columns.append("LABELS")
        return [self._row(resource, row) for row in page.get("rows") or ()]

    def _row(self, resource: Resource, row: Mapping[str, Any]) -> list[str]:
        cells = [_cell(row["cells"][at]) for at in self._shown]
        metadata = (row.get("object") or {}).get("metadata") or {}
        if self._several and cells:
            kind = f"{resource.singular}.{resource.group}" if resource.group else resource.singular
            cells[0] = f"{kind}/{cells[0]}"
        if resource.namespaced and self._invocation.all_namespaces:
            cells.insert(0, metadata.get("namespace", ""))
        if self._labels:
            labels = metadata.get("labels") or {}
            cells.append(",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>")
        return cells

    def follow(self, resource: Resource, name: str | None, selector: str, fields: str) -> None:
        """Print a row for every change, until an interrupt or the end of the watch."""
        if name:
            fields = f"metadata.name={name}"
        client = self._invocation.client
        version = client.list(resource, self._scope(resource), limit=1).resource_version
        request = verbs.watch(
            resource,
            self._scope(resource),
            labels=selector,
            fields=fields,
            resource_version=version,
            bookmarks=False,
        )
        rest = b""
        widths: list[int] = []
        for chunk in client.stream(request.path, request.query, accept=_TABLE):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = msgspec.json.decode(line) if line.strip() else {}
                for row in self._rows(resource, event.get("object") or {}) if event else ():
                    widths = [
                        max(tables.cells(cell), widths[at] if at < len(widths) else 0)
                        for at, cell in enumerate(row)
                    ]
                    padded = (
                        cell + " " * (wide - tables.cells(cell))
                        for cell, wide in zip(row, widths, strict=True)
                    )
                    self._invocation.out.line("   ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _plain_table(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a table of names, for a server without tables."""
    items = answer.get("items") if "items" in answer else [answer]
    return {
        "columnDefinitions": [{"name": "Name"}, {"name": "Created"}],
        "rows": [
            {
                "cells": [item["metadata"]["name"], item["metadata"].get("creationTimestamp", "")],
                "object": item,
            }
            for item in items or ()
        ],
        "metadata": answer.get("metadata") or {},
    }
