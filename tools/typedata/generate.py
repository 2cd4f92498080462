"""Writes ``src/windlass/api/data/types.json.gz``: facts about the built-in kinds, no descriptions.

Usage: ``python tools/typedata/generate.py [--server URL --token TOKEN] [--check]``

Field names, list types, merge keys, required fields, defaults and choices come from ``/openapi/v3`` of
a running kube-apiserver (started here from the binaries of ``tools/kubernetes/build.sh`` unless one
is named); Go types, omitted empties and protobuf numbers from the Go modules ``k8s.io/api`` and
``k8s.io/apimachinery`` in Go's module cache. Both are Apache-2.0; see NOTICE.
"""

from __future__ import annotations

import argparse
import gzip
import json
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.extend(map(str, Path(__file__).resolve().parents[2].glob("tests/support/*/")))

from go_types import GoField, Sources
from realkube import ADMIN_TOKEN, serving

VERSION = "1.36.3"
MODULES = "v0.36.3"
TARGET = Path(__file__).parents[2] / "src/windlass/api/data/types.json.gz"
CORE = "k8s.io/api/core/v1."
META = "k8s.io/apimachinery/pkg/apis/meta/v1."
EXTENSIONS = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1."

# Group path of the document → root types in it, with the Go package of each.
ROOTS: dict[str, dict[str, str]] = {
    "api/v1": {
        "Pod": CORE,
        "Node": CORE,
        "Namespace": CORE,
        "Event": CORE,
        "ConfigMap": CORE,
        "Secret": CORE,
        "Service": CORE,
        "Endpoints": CORE,
        "ServiceAccount": CORE,
        "PersistentVolume": CORE,
        "PersistentVolumeClaim": CORE,
        "ResourceQuota": CORE,
        "LimitRange": CORE,
        "PodTemplate": CORE,
        "Binding": CORE,
        "PodTemplateSpec": CORE,
        "ObjectReference": CORE,
    }
    | {name: META for name in ("DeleteOptions", "Status", "LabelSelector", "ListMeta", "Condition")},
    "apis/events.k8s.io/v1": {"Event": "k8s.io/api/events/v1."},
    "apis/coordination.k8s.io/v1": {"Lease": "k8s.io/api/coordination/v1."},
    "apis/scheduling.k8s.io/v1": {"PriorityClass": "k8s.io/api/scheduling/v1."},
    "apis/scheduling.k8s.io/v1alpha2": {
        name: "k8s.io/api/scheduling/v1alpha2." for name in ("PodGroup", "Workload")
    },
    "apis/policy/v1": {name: "k8s.io/api/policy/v1." for name in ("PodDisruptionBudget", "Eviction")},
    "apis/resource.k8s.io/v1": {
        name: "k8s.io/api/resource/v1."
        for name in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    },
    "apis/discovery.k8s.io/v1": {"EndpointSlice": "k8s.io/api/discovery/v1."},
    "apis/apps/v1": {
        name: "k8s.io/api/apps/v1."
        for name in ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
    },
    "apis/batch/v1": {name: "k8s.io/api/batch/v1." for name in ("CronJob", "Job")},
    "apis/storage.k8s.io/v1": {
        name: "k8s.io/api/storage/v1."
        for name in ("CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass")
    },
    "apis/apiextensions.k8s.io/v1": {"CustomResourceDefinition": EXTENSIONS},
    "apis/autoscaling/v1": {"Scale": "k8s.io/api/autoscaling/v1."},
    "apis/autoscaling/v2": {"HorizontalPodAutoscaler": "k8s.io/api/autoscaling/v2."},
    "apis/authorization.k8s.io/v1": {
        name: "k8s.io/api/authorization/v1."
        for name in ("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")
    },
    "apis/authentication.k8s.io/v1": {
        name: "k8s.io/api/authentication/v1." for name in ("SelfSubjectReview", "TokenReview", "TokenRequest")
    },
}

Path_ = tuple[tuple[int, ...], tuple[str, ...]]


def fetch(server: str, token: str, path: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{server}/openapi/v3/{path}", headers={"Authorization": f"Bearer {token}"}
    )
    context = ssl._create_unverified_context() if server.startswith("https") else None
    with urllib.request.urlopen(request, context=context) as answer:
        return json.load(answer)


def openapi_name(full: str) -> str:
    """``k8s.io/api/core/v1.Pod`` → ``io.k8s.api.core.v1.Pod``."""
    return "io.k8s." + full.removeprefix("k8s.io/").replace("/", ".")


def extras(field: GoField, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI extensions of a field: list type and keys, merge key and
    strategy, choices, default."""
    found: dict[str, Any] = {}
    for key, short in (
        ("x-kubernetes-list-type", "lt"),
        ("x-kubernetes-list-map-keys", "lk"),
        ("x-kubernetes-map-type", "mt"),
        ("x-kubernetes-patch-merge-key", "mk"),
        ("x-kubernetes-patch-strategy", "ps"),
        ("enum", "en"),
        ("format", "fm"),
    ):
        if key in schema:
            found[short] = schema[key]
    if schema.get("default") not in (None, {}, ""):
        found["df"] = schema["default"]
    if field.patch_merge_key:
        found["mk"] = field.patch_merge_key
    if field.patch_strategy:
        found["ps"] = field.patch_strategy
    return found


def derivable(field: GoField) -> bool:
    """Return whether the Go type name follows from the type alone."""
    return field.type in ("s", "b") and field.go in ("string", "bool")


class Builder:
    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.schemas: dict[str, Any] = {}
        self.types: dict[str, Any] = {}

    def add(self, full: str) -> None:
        name = openapi_name(full)
        if name in self.types:
            return
        schema = self.schemas.get(name, {})
        entry: dict[str, Any] = {"f": {}}
        self.types[name] = entry
        if schema.get("required"):
            entry["r"] = schema["required"]
        if "x-kubernetes-group-version-kind" in schema:
            kinds = schema["x-kubernetes-group-version-kind"]
            if len(kinds) == 1:
                entry["k"] = [kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"]]
        if schema.get("x-kubernetes-map-type"):
            entry["mt"] = schema["x-kubernetes-map-type"]
        self.fill(entry, full, ((), ()), schema.get("properties", {}))
        unknown = set(schema.get("properties", {})) - set(entry["f"])
        if unknown:
            raise SystemExit(f"{name}: OpenAPI has fields that Go has not: {sorted(unknown)}")

    def fill(self, entry: dict[str, Any], full: str, path: Path_, properties: dict[str, Any]) -> None:
        """``path``: protobuf numbers and Go names of the inlined structs that lead here."""
        for field in self.sources.fields(full):
            numbers = (*path[0], field.number)
            if not field.json:
                self.fill(entry, str(field.type)[2:], (numbers, (*path[1], field.name)), properties)
                continue
            schema = properties.get(field.json, {})
            flags = "e" * field.omit_empty + "z" * field.omit_zero + "p" * field.pointer
            more = extras(field, schema)
            if path[1] and path[1] != ("TypeMeta",):
                more["il"] = ".".join(path[1])
            entry["f"][field.json] = [
                self.type_spec(field.type),
                "" if derivable(field) else field.go,
                flags,
                ".".join(map(str, numbers)) if all(numbers) else "",
                more,
            ]

    def type_spec(self, spec: Any) -> Any:
        if isinstance(spec, list):
            return [spec[0], self.type_spec(spec[1])]
        if spec.startswith("o:"):
            self.add(spec[2:])
            return f"o:{openapi_name(spec[2:])}"
        return spec


def served(server: str, token: str, path: str) -> dict[str, Any] | None:
    """Return the schemas of a group; ``None`` if the server has it switched off."""
    try:
        return fetch(server, token, path)["components"]["schemas"]
    except urllib.error.HTTPError as problem:
        if problem.code != 404 or "alpha" not in path:
            raise
        return None


def known_types(path: str) -> dict[str, Any]:
    """Return the types of a group that the server does not have, as they were written before."""
    group, version = path.removeprefix("apis/").split("/")
    prefix = f"io.k8s.api.{group.partition('.')[0]}.{version}."
    types = json.loads(gzip.decompress(TARGET.read_bytes()))["types"]
    return {name: entry for name, entry in types.items() if name.startswith(prefix)}


def build(server: str, token: str, modules: Path) -> bytes:
    builder = Builder(Sources(modules, MODULES))
    documents = {path: schemas for path in ROOTS if (schemas := served(server, token, path)) is not None}
    for schemas in documents.values():
        builder.schemas |= schemas
    for path, roots in ROOTS.items():
        if path not in documents:
            builder.types |= known_types(path)
            continue
        builder.schemas |= documents[path]  # a document states the group of DeleteOptions as its own
        for name, package in roots.items():
            builder.add(package + name)
    data = {"kubernetes": VERSION, "types": dict(sorted(builder.types.items()))}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", help="URL of a running kube-apiserver; without it one is started")
    parser.add_argument("--token", default=ADMIN_TOKEN)
    parser.add_argument("--check", action="store_true", help="only tell whether the file is current")
    options = parser.parse_args()
    modules = Path(subprocess.check_output(["go", "env", "GOMODCACHE"], text=True).strip())
    if options.server:
        raw = build(options.server, options.token, modules)
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            serving(Path(folder), controllers=False, audit=False, gangs=True) as kube,
        ):
            raw = build(kube.connection.server, ADMIN_TOKEN, modules)
    if options.check:
        current = gzip.decompress(TARGET.read_bytes()) == raw
        print("current" if current else f"{TARGET} is out of date", file=sys.stderr)
        return 0 if current else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(gzip.compress(raw, 9, mtime=0))
    print(f"{TARGET}: {len(raw)} bytes, {TARGET.stat().st_size} packed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
