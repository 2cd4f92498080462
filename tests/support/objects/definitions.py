"""A CustomResourceDefinition with every part of structural schemas, and objects of its kind."""

from __future__ import annotations

from typing import Any

GROUP = "conformance.example.com"
_TEXT = {"type": "string"}

FULL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 100},
                "small": {"type": "integer", "format": "int32"},
                "even": {"type": "integer", "multipleOf": 2},
                "ratio": {"type": "number", "maximum": 1, "exclusiveMaximum": True},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "code": {"type": "string", "pattern": "^[0-9]+$", "minLength": 1, "maxLength": 5},
                "when": {"type": "string", "format": "date-time"},
                "maybe": {"type": "string", "nullable": True},
                "replicas": {"type": "integer"},
                "flags": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "minItems": 1,
                    "maxItems": 3,
                    "items": _TEXT,
                },
                "rows": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": _TEXT, "value": {"type": "string", "default": "none"}},
                    },
                },
                "nested": {"type": "object", "properties": {"level": {"type": "integer", "default": 7}}},
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {"a": _TEXT}}},
                },
                "port": {"x-kubernetes-int-or-string": True},
                "limits": {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 2,
                    "additionalProperties": {
                        "x-kubernetes-int-or-string": True,
                        "anyOf": [{"type": "integer"}, {"type": "string"}],
                    },
                },
                "source": {
                    "type": "object",
                    "properties": {"url": _TEXT, "path": _TEXT},
                    "oneOf": [{"required": ["url"]}, {"required": ["path"]}],
                },
                "either": {
                    "type": "object",
                    "properties": {"a": _TEXT, "b": _TEXT, "c": {"type": "integer"}},
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
                "both": {"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]},
                "never": {"type": "string", "not": {"enum": ["root"]}},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": _TEXT,
                "replicas": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"type": _TEXT, "status": _TEXT}},
                },
            },
        },
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Flags", "type": "string", "jsonPath": ".spec.flags"},
]


def definition(
    plural: str,
    kind: str,
    *,
    schema: dict[str, Any],
    group: str = GROUP,
    scope: str = "Namespaced",
    scale: bool = False,
    **names: Any,
) -> dict[str, Any]:
    """A definition with one version, ``v1``. ``scale``: columns, selectable fields and both subresources, too."""
    version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    if scale:
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        version["subresources"] = {"status": {}, "scale": paths}
        version["additionalPrinterColumns"] = COLUMNS
        version["selectableFields"] = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [version],
        },
    }


def thing(name: str, spec: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """An object of the kind ``Thing``."""
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Thing", "metadata": {"name": name}, "spec": spec}
