"""``as=Table``: tables for kubectl, created by the server, in responses and watches.

In a watch, only the first event contains the column definitions. Bookmarks are tables
with one row of placeholder
cells. Errors remain plain Status objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from windlass.api import resources
from windlass.api.errors import bad_request
from windlass.api.resources import Resource
from windlass.api.wire import schema_crd
from windlass.kits.clock import Clock
from windlass.server.presentation import (
    tables_apps,
    tables_batch,
    tables_claims,
    tables_cluster,
    tables_custom,
    tables_pods,
    tables_storage,
)
from windlass.server.presentation.presenter import bookmark_metadata
from windlass.server.presentation.tables_common import TableOf
from windlass.server.request.events_v1 import to_events_v1
from windlass.store.records import Entry, Op

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_LINE = {op: b'{"type":"%b","object":' % op.name.encode() for op in Op}
_BOOKMARK = b'{"type":"BOOKMARK","object":'
_INCLUDES = ("", "Metadata", "Object", "None")

_TABLES: Mapping[Resource, TableOf] = {
    resources.PODS: tables_pods.PODS,
    resources.NODES: tables_cluster.NODES,
    resources.NAMESPACES: tables_cluster.NAMESPACES,
    resources.SERVICES: tables_cluster.SERVICES,
    resources.ENDPOINTS: tables_cluster.ENDPOINTS,
    resources.ENDPOINT_SLICES: tables_cluster.ENDPOINT_SLICES,
    resources.CONFIG_MAPS: tables_cluster.CONFIG_MAPS,
    resources.SECRETS: tables_cluster.SECRETS,
    resources.LEASES: tables_cluster.LEASES,
    resources.PRIORITY_CLASSES: tables_cluster.PRIORITY_CLASSES,
    resources.RESOURCE_QUOTAS: tables_cluster.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES: tables_cluster.LIMIT_RANGES,
    resources.POD_DISRUPTION_BUDGETS: tables_cluster.DISRUPTION_BUDGETS,
    resources.PERSISTENT_VOLUMES: tables_cluster.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS: tables_cluster.PERSISTENT_VOLUME_CLAIMS,
    resources.DEPLOYMENTS: tables_apps.DEPLOYMENTS,
    resources.REPLICA_SETS: tables_apps.REPLICA_SETS,
    resources.STORAGE_CLASSES: tables_storage.STORAGE_CLASSES,
    resources.STATEFUL_SETS: tables_apps.STATEFUL_SETS,
    resources.DAEMON_SETS: tables_apps.DAEMON_SETS,
    resources.CONTROLLER_REVISIONS: tables_apps.CONTROLLER_REVISIONS,
    resources.SCALES: tables_apps.SCALES,
    resources.DEVICE_CLASSES: tables_claims.DEVICE_CLASSES,
    resources.RESOURCE_CLAIMS: tables_claims.RESOURCE_CLAIMS,
    resources.RESOURCE_CLAIM_TEMPLATES: tables_claims.RESOURCE_CLAIM_TEMPLATES,
    resources.RESOURCE_SLICES: tables_claims.RESOURCE_SLICES,
    resources.BATCH_JOBS: tables_batch.JOBS,
    resources.CRON_JOBS: tables_batch.CRON_JOBS,
    resources.CUSTOM_RESOURCE_DEFINITIONS: tables_cluster.DEFINITIONS,
    resources.EVENTS: tables_cluster.EVENTS,
    resources.EVENTS_V1: tables_cluster.EVENTS,
}


@lru_cache(maxsize=1024)
def table_of(resource: Resource) -> TableOf:
    """Return the table layout of a kind."""
    if resource.definition is not None:
        return tables_custom.table_of(resource.definition.columns)
    if resource.custom:
        return tables_custom.table_of(schema_crd.columns(resource.group, resource.version, resource.kind))
    return _TABLES.get(resource, tables_cluster.OTHERS)


class TablePresenter:
    """Presenter of tables of one kind. Ages are computed when a row is encoded."""

    content_type = "application/json"

    def __init__(self, resource: Resource, clock: Clock, *, version: str = "v1", include: str = "") -> None:
        """``include``: query parameter ``includeObject``.

        Raises 400 if the value is not valid.
        """
        if include not in _INCLUDES:
            raise bad_request(
                f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": must be '
                "'Metadata', 'Object', 'None', or empty"
            )
        self.key = f"table:{version}:{include}:{resource.api_version}"
        self._resource = resource
        self._clock = clock
        self._version = version
        self._include = include or "Metadata"
        self._table = table_of(resource)
        self._columns = [column.as_dict() for column in self._table.columns]
        self._events_view = resource is resources.EVENTS_V1

    def single(self, entry: Entry) -> bytes:
        metadata = {"resourceVersion": str(entry.rv)}
        return _encode(self._document(metadata, [self._row(entry)], columns=True)) + b"\n"

    def open_list(self, metadata: dict[str, Any]) -> bytes:
        head = self._document(metadata, [], columns=True)
        del head["rows"]
        return _encode(head)[:-1] + b',"rows":['

    def items(self, entries: Sequence[Entry]) -> bytes:
        return b",".join([_encode(self._row(entry)) for entry in entries])

    def close_list(self) -> bytes:
        return b"]}\n"

    def line(self, op: Op, entry: Entry, *, first: bool) -> bytes:
        document = self._document({"resourceVersion": str(entry.rv)}, [self._row(entry)], columns=first)
        return b"%b%b}\n" % (_LINE[op], _encode(document))

    def bookmark(self, rv: int, *, initial_end: bool, first: bool) -> bytes:
        metadata = bookmark_metadata(rv, initial_end)
        cells = self._table.cells({"metadata": {}}, self._clock.now())
        row = {"cells": cells, "object": self._partial(metadata)}
        return b"%b%b}\n" % (_BOOKMARK, _encode(self._document(metadata, [row], columns=first)))

    def _document(self, metadata: Mapping[str, Any], rows: list[Any], *, columns: bool) -> dict[str, Any]:
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
            "columnDefinitions": self._columns if columns else None,
            "rows": rows,
        }

    def _partial(self, metadata: Any) -> dict[str, Any]:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
        }

    def _row(self, entry: Entry) -> dict[str, Any]:
        obj = _decode(entry.data)
        if self._resource.definition is not None:
            obj = self._resource.definition.read(obj)
        if self._events_view:
            obj = to_events_v1(obj)
        row: dict[str, Any] = {"cells": self._table.cells(obj, self._clock.now())}
        conditions = self._table.conditions(obj)
        if conditions:
            row["conditions"] = conditions
        if self._include == "Metadata":
            row["object"] = self._partial(obj["metadata"])
        elif self._include == "Object":
            whole = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
            row["object"] = {**obj, **whole}
        else:
            row["object"] = None
        return row
