"""OpenAPI v3: an index, and one document per group and version. OpenAPI v2: a reference to it.

The documents suffice for kubectl's create, apply, edit, explain and scale: operations
with parameters and kinds, and
schemas with list types, merge keys and defaults. Built-in kinds have no descriptions;
Windlass' own kinds have those of
their CustomResourceDefinitions. Documents depend only on the type data and on users'
CustomResourceDefinitions, and are created on demand. Their hash is that of these sources.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

import windlass
from windlass.api.resources import Resource
from windlass.api.structural.definition import Definition
from windlass.api.wire import schema, schema_crd
from windlass.api.wire.schema import CORE, META, SchemaNode, Struct
from windlass.client.transport import Request, Response
from windlass.server.custom_kinds import BUILT_IN_ONLY, ServedKinds
from windlass.server.presentation import discovery, responses
from windlass.server.subresources import served

_encode = msgspec.json.Encoder().encode
_PREFIX = "/openapi/v3"
_TITLE = "Windlass"
_SEE_VERSION_3 = "Schemas of all kinds are at /openapi/v3."
_GNOSTIC = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_REF = "#/components/schemas/"
_IMMUTABLE = "public, immutable"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TIME, _MICRO, _PATCH = f"{META}Time", f"{META}MicroTime", f"{META}Patch"
_FIXED: Mapping[str, dict[str, Any]] = {
    _QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    _INT_OR_STRING: {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    _TIME: {"type": "string", "format": "date-time"},
    _MICRO: {"type": "string", "format": "date-time"},
    _PATCH: {"type": "object"},
}
_SCALARS: Mapping[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "number": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "duration": {"type": "string"},
    "any": {"type": "object"},
}
_REFERENCES = {"quantity": _QUANTITY, "int-or-string": _INT_OR_STRING, "time": _TIME, "microtime": _MICRO}
_MEDIA = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_LIST_PARAMETERS = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)
_WRITE_PARAMETERS = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"))
_DELETE_PARAMETERS = (
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)


def answer(request: Request, kinds: ServedKinds = BUILT_IN_ONLY) -> Response | None:
    """Return the response for ``/openapi/v3`` and below, and ``/openapi/v2``; ``None`` for other paths."""
    path = request.path.rstrip("/")
    if path == "/openapi/v2":
        return _without_schemas(request)
    if path != _PREFIX and not path.startswith(f"{_PREFIX}/"):
        return None
    if path == _PREFIX:
        response = responses.json(200, _index(kinds))
        response.headers = {"content-type": "text/plain; charset=utf-8"}
        return response
    name = path.removeprefix(f"{_PREFIX}/")
    if name not in _names(kinds):
        return responses.text(404, "404 page not found\n")
    digest = _digest(name, kinds)
    requested = _requested_hash(request.query)
    if requested is not None and requested != digest:
        return Response(301, {"location": f"{_PREFIX}/{name}?hash={digest}"})
    return _document_response(request, name, digest, kinds, pinned=requested is not None)


def _without_schemas(request: Request) -> Response:
    """Return an OpenAPI v2 document without kinds, which points to version 3.

    kubectl looks up kinds there that version 3 does not have. Without any document, it reports that
    this failed, instead of ``no matches for kind``.
    """
    if "protobuf" not in request.headers.get("accept", ""):
        info = {"title": _TITLE, "version": windlass.__version__, "description": _SEE_VERSION_3}
        return responses.json(200, {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})
    title, version, description = (
        _field(number, text.encode())
        for number, text in ((1, _TITLE), (2, windlass.__version__), (3, _SEE_VERSION_3))
    )
    body = _field(1, b"2.0") + _field(2, title + version + description) + _field(8, b"") + _field(9, b"")
    return Response(200, {"content-type": _GNOSTIC}, body)


def _field(number: int, data: bytes) -> bytes:
    """Return a field of a protobuf message: bytes, or a message of less than 128 bytes."""
    assert len(data) < 128
    return bytes((number << 3 | 2, len(data))) + data


def _document_response(
    request: Request, name: str, digest: str, kinds: ServedKinds, *, pinned: bool
) -> Response:
    tag = f'"{digest}"'
    headers = {"content-type": "application/json", "etag": tag, "vary": "Accept, Accept-Encoding"}
    if pinned:
        headers |= {"cache-control": _IMMUTABLE, "expires": "Thu, 31 Dec 2099 23:59:59 GMT"}
    if request.headers.get("if-none-match") == tag:
        return Response(304, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(200, {**headers, "content-encoding": "gzip"}, _packed(name, kinds))
    return Response(200, headers, document_bytes(name, kinds))


def _requested_hash(query: str) -> str | None:
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key == "hash":
            return value
    return None


def _names(kinds: ServedKinds) -> dict[str, tuple[str, str]]:
    """Return (group, version) by document name (``api/v1``, ``apis/policy/v1``)."""
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, versions in discovery.groups(kinds).items()
        for version in versions
    }


def _index(kinds: ServedKinds) -> dict[str, Any]:
    return {
        "paths": {
            name: {"serverRelativeURL": f"{_PREFIX}/{name}?hash={_digest(name, kinds)}"}
            for name in sorted(_names(kinds))
        }
    }


@cache
def _source() -> bytes:
    """Return the bytes that determine every document."""
    summed = hashlib.sha512(windlass.__version__.encode())
    summed.update((files("windlass.api") / "data/types.json.gz").read_bytes())
    for text in schema_crd.crd_texts().values():
        summed.update(text.encode())
    return summed.digest()


def _digest(name: str, kinds: ServedKinds) -> str:
    return kinds.document(("digest", name), lambda: _new_digest(name, kinds))


def _new_digest(name: str, kinds: ServedKinds) -> str:
    summed = hashlib.sha512(_source() + name.encode())
    for resource in discovery.of_version(*_names(kinds)[name], kinds):
        if resource.definition is not None:
            summed.update(f"{resource.plural}/{resource.definition.revision}".encode())
    return summed.hexdigest().upper()


def _packed(name: str, kinds: ServedKinds) -> bytes:
    return kinds.document(("packed", name), lambda: gzip.compress(document_bytes(name, kinds), 6, mtime=0))


def document_bytes(name: str, kinds: ServedKinds = BUILT_IN_ONLY) -> bytes:
    """Return the document of ``api/v1`` or ``apis/GROUP/VERSION`` as JSON."""
    group, version = _names(kinds)[name]
    return kinds.document(("openapi", name), lambda: _encode(document(group, version, kinds)) + b"\n")


# --- one document -------------------------------------------------------------------------------------


def document(group: str, version: str, kinds: ServedKinds = BUILT_IN_ONLY) -> dict[str, Any]:
    """Return the OpenAPI document of one group and version."""
    schemas = _Schemas()
    paths: dict[str, Any] = {}
    for resource in discovery.of_version(group, version, kinds):
        if resource.definition is not None:
            _paths(resource, schemas.add_defined(resource, resource.definition), schemas, paths)
            continue
        struct = schema.for_kind(group, version, resource.kind)
        if struct is not None:
            _paths(resource, schemas.add_kind(resource, struct), schemas, paths)
    schemas.add_fixed(_PATCH)
    for name in ("DeleteOptions", "Status"):
        schemas.add(schema.builtin(f"{META}{name}"))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": ".".join(schema.kubernetes_version().split(".")[:2])},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.found.items()))},
    }


class _Schemas:
    """Component schemas, with all schemas that they refer to."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add_fixed(self, name: str) -> str:
        self.found.setdefault(name, dict(_FIXED[name]))
        return name

    def add_kind(self, resource: Resource, struct: Struct) -> str:
        return self._with_list(resource, self.add(struct, (resource.group, resource.version, resource.kind)))

    def add_defined(self, resource: Resource, definition: Definition) -> str:
        """Add the schema of a user's CustomResourceDefinition as it is written there."""
        reverse = ".".join(reversed(resource.group.split(".")))
        name = f"{reverse}.{resource.version}.{resource.kind}"
        entry = self._object(definition.schema)
        kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
        entry["x-kubernetes-group-version-kind"] = [kind]
        self.found[name] = entry
        return self._with_list(resource, name)

    def _object(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of an object, with references to the types of its header."""
        metadata = self.add(schema.builtin(f"{META}ObjectMeta"))
        header: dict[str, Any] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        header["metadata"] = {"allOf": [{"$ref": f"{_REF}{metadata}"}]}
        properties = {key: self._part(inner) for key, inner in (body.get("properties") or {}).items()}
        return {**body, "type": "object", "properties": {**properties, **header}}

    def _part(self, body: Any) -> Any:
        if not isinstance(body, Mapping):
            return body
        if body.get("x-kubernetes-embedded-resource"):
            return self._object(body)
        found = {**body}
        for name in ("items", "additionalProperties"):
            if name in found:
                found[name] = self._part(found[name])
        if body.get("properties"):
            found["properties"] = {key: self._part(inner) for key, inner in body["properties"].items()}
        return found

    def _with_list(self, resource: Resource, name: str) -> str:
        if "list" in resource.verbs:
            self.found[f"{name}List"] = {
                "type": "object",
                "required": ["items"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "items": {
                        "type": "array",
                        "items": {"default": {}, "allOf": [{"$ref": f"{_REF}{name}"}]},
                    },
                    "kind": {"type": "string"},
                    "metadata": {
                        "default": {},
                        "allOf": [{"$ref": f"{_REF}{self.add(schema.builtin(f'{META}ListMeta'))}"}],
                    },
                },
                "x-kubernetes-group-version-kind": [
                    {"group": resource.group, "kind": resource.list_kind, "version": resource.version}
                ],
            }
        return name

    def add(self, struct: Struct, kind: tuple[str, str, str] | None = None) -> str:
        if struct.name in self.found:
            return struct.name
        entry: dict[str, Any] = {"type": "object"}
        self.found[struct.name] = entry
        if struct.description:
            entry["description"] = struct.description
        if struct.required:
            entry["required"] = list(struct.required)
        entry["properties"] = {name: self.property(node) for name, node in sorted(struct.fields.items())}
        if struct.map_type:
            entry["x-kubernetes-map-type"] = struct.map_type
        gvk = kind or struct.kind
        if gvk is not None:
            group, version, name = gvk
            entry["x-kubernetes-group-version-kind"] = [{"group": group, "kind": name, "version": version}]
        return struct.name

    def property(self, node: SchemaNode) -> dict[str, Any]:
        """Return the schema of a field or item."""
        result = self._shape(node)
        if node.default is not None:
            result["default"] = node.default
        if node.enum:
            result["enum"] = list(node.enum)
        if node.description:
            result["description"] = node.description
        for key, value in (
            ("x-kubernetes-list-type", node.list_type),
            ("x-kubernetes-map-type", node.map_type),
            ("x-kubernetes-patch-merge-key", node.merge_key),
            ("x-kubernetes-patch-strategy", ",".join(node.strategy)),
        ):
            if value:
                result[key] = value
        if node.list_keys:
            result["x-kubernetes-list-map-keys"] = list(node.list_keys)
        result |= node.bounds
        return result

    def _shape(self, node: SchemaNode) -> dict[str, Any]:
        match node.kind:
            case "struct":
                return self._struct(node)
            case "list":
                item = self.property(node.item)  # type: ignore[arg-type]
                return {"type": "array", "items": item}
            case "map":
                return {"type": "object", "additionalProperties": self.property(node.item)}  # type: ignore[arg-type]
            case "integer":
                return {"type": "integer", "format": f"int{node.bits}"}
            case kind if kind in _REFERENCES:
                return {"allOf": [{"$ref": f"{_REF}{self.add_fixed(_REFERENCES[kind])}"}]}
        scalar = dict(_SCALARS[node.kind])
        if node.kind == "string" and node.format:
            scalar["format"] = node.format
        return scalar

    def _struct(self, node: SchemaNode) -> dict[str, Any]:
        struct: Struct = node.struct  # type: ignore[assignment]
        if struct.name.startswith("io.k8s."):
            reference: dict[str, Any] = {"allOf": [{"$ref": f"{_REF}{self.add(struct)}"}]}
            return reference if node.pointer else {"default": {}, **reference}
        inline: dict[str, Any] = {"type": "object"}
        if struct.required:
            inline["required"] = list(struct.required)
        inline["properties"] = {name: self.property(inner) for name, inner in sorted(struct.fields.items())}
        return inline


# --- paths --------------------------------------------------------------------------------------------


def _paths(resource: Resource, name: str, schemas: _Schemas, paths: dict[str, Any]) -> None:
    base = (
        "/".join(("/apis", resource.group, resource.version))
        if resource.group
        else f"/api/{resource.version}"
    )
    collection = (
        f"{base}/namespaces/{{namespace}}/{resource.plural}"
        if resource.namespaced
        else f"{base}/{resource.plural}"
    )
    scope = [_path_parameter("namespace")] if resource.namespaced else []
    make = _Operations(resource, name)
    if resource.namespaced and "list" in resource.verbs:
        paths[f"{base}/{resource.plural}"] = {"get": make.list()}
    paths[collection] = make.collection() | ({"parameters": scope} if scope else {})
    named = make.item()
    if named:
        paths[f"{collection}/{{name}}"] = named | {"parameters": [_path_parameter("name"), *scope]}
    for sub, entry in served(resource):
        if entry.is_view:
            below = _Operations(resource, name).item(entry.verbs)
            paths[f"{collection}/{{name}}/{sub}"] = below | {"parameters": [_path_parameter("name"), *scope]}
    if resource.plural == "pods" and not resource.group:
        binding = schemas.add(schema.builtin(f"{CORE}Binding"))
        post = _Operations(resource, binding).post()
        paths[f"{collection}/{{name}}/binding"] = {
            "post": post,
            "parameters": [_path_parameter("name"), *scope],
        }


class _Operations:
    """Operations of one kind.

    ``body``: name of the schema of request and response.
    """

    def __init__(self, resource: Resource, body: str) -> None:
        self.resource = resource
        self.body = body
        self.gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    def collection(self) -> dict[str, Any]:
        operations: dict[str, Any] = {}
        if "list" in self.resource.verbs:
            operations["get"] = self.list()
        if "create" in self.resource.verbs:
            operations["post"] = self.post()
        if "deletecollection" in self.resource.verbs:
            parameters = (*_DELETE_PARAMETERS, *_LIST_PARAMETERS)
            operations["delete"] = self._operation("deletecollection", parameters, f"{META}Status")
        return operations

    def item(self, allowed: Sequence[str] | None = None) -> dict[str, Any]:
        verbs = allowed if allowed is not None else self.resource.verbs
        operations: dict[str, Any] = {}
        if "get" in verbs:
            operations["get"] = self._operation("get", (), self.body)
        if "update" in verbs:
            operations["put"] = self._operation("put", _WRITE_PARAMETERS, self.body, sent=self.body)
        if "patch" in verbs:
            operations["patch"] = self._patch()
        if "delete" in verbs:
            operations["delete"] = self._operation(
                "delete", _DELETE_PARAMETERS, f"{META}Status", sent=f"{META}DeleteOptions", must=False
            )
        return operations

    def list(self) -> dict[str, Any]:
        return self._operation("list", _LIST_PARAMETERS, f"{self.body}List")

    def post(self) -> dict[str, Any]:
        return self._operation("post", _WRITE_PARAMETERS, self.body, sent=self.body)

    def _patch(self) -> dict[str, Any]:
        operation = self._operation("patch", (*_WRITE_PARAMETERS, ("force", "boolean")), self.body)
        kinds = ["application/json-patch+json", "application/merge-patch+json"]
        if not self.resource.custom:
            kinds.append("application/strategic-merge-patch+json")
        operation["requestBody"] = {
            "content": {kind: {"schema": {"$ref": f"{_REF}{_PATCH}"}} for kind in kinds},
            "required": True,
        }
        return operation

    def _operation(
        self, action: str, parameters: Any, answered: str, *, sent: str = "", must: bool = True
    ) -> dict[str, Any]:
        media = _MEDIA[:2] if self.resource.custom else _MEDIA
        group = "".join(
            part.capitalize() for part in (self.resource.group.split(".")[0] or "core").split("-")
        )
        content = {kind: {"schema": {"$ref": f"{_REF}{answered}"}} for kind in media[:2]}
        operation: dict[str, Any] = {
            "tags": [f"{group[0].lower()}{group[1:]}_{self.resource.version}"],
            "operationId": f"{action}{group}{self.resource.version.capitalize()}{self.body.rsplit('.', 1)[1]}",
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
                for name, kind in parameters
            ],
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk,
        }
        if sent:
            operation["requestBody"] = {
                "content": {kind: {"schema": {"$ref": f"{_REF}{sent}"}} for kind in media},
                **({"required": True} if must else {}),
            }
        return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
