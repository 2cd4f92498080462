"""Schemas of custom kinds, read from the CustomResourceDefinitions in ``crds/``.

The same files are installed into a real cluster (``windlass crds``) and drive the embedded server,
so a field is known, typed and defaulted alike on both. A pod template is an open object in the
files (as large as all of Volcano's own otherwise); here it is checked as a PodTemplateSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from windlass.api.wire import schema
from windlass.api.wire.schema import BATCH, CORE, META, SchemaNode, Struct

EMBEDDED: Mapping[tuple[str, str], str] = {
    ("Job", "spec.tasks.template"): f"{CORE}PodTemplateSpec",
    ("PyTorchJob", "spec.pytorchReplicaSpecs.template"): f"{CORE}PodTemplateSpec",
    ("TFJob", "spec.tfReplicaSpecs.template"): f"{CORE}PodTemplateSpec",
    ("XGBoostJob", "spec.xgbReplicaSpecs.template"): f"{CORE}PodTemplateSpec",
    ("PaddleJob", "spec.paddleReplicaSpecs.template"): f"{CORE}PodTemplateSpec",
    ("MPIJob", "spec.mpiReplicaSpecs.template"): f"{CORE}PodTemplateSpec",
    ("JAXJob", "spec.jaxReplicaSpecs.template"): f"{CORE}PodTemplateSpec",
    ("JobSet", "spec.replicatedJobs.template"): f"{BATCH}JobTemplateSpec",
    ("JobSet", "spec.volumeClaimPolicies.templates"): f"{CORE}PersistentVolumeClaim",
    ("TrainingRuntime", "spec.template.spec.replicatedJobs.template"): f"{BATCH}JobTemplateSpec",
    ("ClusterTrainingRuntime", "spec.template.spec.replicatedJobs.template"): f"{BATCH}JobTemplateSpec",
    ("TrainJob", "spec.trainer.env"): f"{CORE}EnvVar",
    ("TrainJob", "spec.trainer.resourcesPerNode"): f"{CORE}ResourceRequirements",
    ("TrainJob", "spec.initializer.dataset.env"): f"{CORE}EnvVar",
    ("TrainJob", "spec.initializer.model.env"): f"{CORE}EnvVar",
    (
        "TrainJob",
        "spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template",
    ): f"{CORE}PodTemplateSpec",
    ("TrainJob", "spec.podTemplateOverrides.spec"): f"{CORE}PodSpec",
    ("AIGCJob", "spec.template"): f"{CORE}PodTemplateSpec",
    ("AIGCJob", "spec.resources"): f"{CORE}ResourceRequirements",
    ("LeaderWorkerSet", "spec.leaderWorkerTemplate.leaderTemplate"): f"{CORE}PodTemplateSpec",
    ("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate"): f"{CORE}PodTemplateSpec",
    ("LeaderWorkerSet", "spec.leaderWorkerTemplate.volumeClaimTemplates"): f"{CORE}PersistentVolumeClaim",
    **{
        (kind, f"spec{within}.{group}.template"): f"{CORE}PodTemplateSpec"
        for kind, within in (
            ("RayCluster", ""),
            ("RayJob", ".rayClusterSpec"),
            ("RayService", ".rayClusterConfig"),
            ("RayCronJob", ".jobTemplate.rayClusterSpec"),
        )
        for group in ("headGroupSpec", "workerGroupSpecs")
    },
    ("RayJob", "spec.submitterPodTemplate"): f"{CORE}PodTemplateSpec",
    ("RayCronJob", "spec.jobTemplate.submitterPodTemplate"): f"{CORE}PodTemplateSpec",
    ("Job", "spec.volumes.volumeClaim"): f"{CORE}PersistentVolumeClaimSpec",
    ("CronJob", "spec.jobTemplate.spec.tasks.template"): f"{CORE}PodTemplateSpec",
    ("CronJob", "spec.jobTemplate.spec.volumes.volumeClaim"): f"{CORE}PersistentVolumeClaimSpec",
    ("JobTemplate", "spec.tasks.template"): f"{CORE}PodTemplateSpec",
    ("JobTemplate", "spec.volumes.volumeClaim"): f"{CORE}PersistentVolumeClaimSpec",
    ("JobFlow", "spec.flows.patch.jobSpec.tasks.template"): f"{CORE}PodTemplateSpec",
    ("JobFlow", "spec.flows.patch.jobSpec.volumes.volumeClaim"): f"{CORE}PersistentVolumeClaimSpec",
}
"""(kind, path without indices) → the built-in struct that an open object there must be."""

FOLDERS = (
    "kai",
    "coscheduling",
    "nodes",
    "kubeflow",
    "mpi",
    "jobset",
    "leaderworkerset",
    "ray",
    "trainer",
    "volcano",
    "argo",
)
"""Folders of ``crds/``, one for each project that defines kinds."""

_BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "multipleOf",
)


@cache
def _files() -> dict[str, Traversable]:
    """File name → file of every shipped CustomResourceDefinition, in the order of their names."""
    folder = files("windlass.api") / "crds"
    return {
        entry.name: entry
        for place in (folder, *(folder / name for name in FOLDERS))
        for entry in sorted(place.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def crd_texts() -> dict[str, str]:
    """File name → text of every shipped CustomResourceDefinition, in the order of their names.

    The embedded server serves those of KAI Scheduler, of the coscheduling plug-in and of exporters on nodes, too; in
    a cluster that has KAI, or the plug-in, or such an exporter, they are its own.
    """
    return {name: entry.read_text() for name, entry in _files().items()}


@cache
def _parsed(name: str) -> dict[str, Any]:
    from windlass.api.wire import yaml_text

    return yaml_text.load_one(_files()[name].read_text())[0]


@cache
def crds() -> tuple[dict[str, Any], ...]:
    """The shipped CustomResourceDefinitions, each parsed once."""
    return tuple(_parsed(name) for name in _files())


@cache
def _versions(group: str) -> dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]]:
    """(version, kind) → definition and its version, of one group.

    Only the files of the group are parsed: all of them take a tenth of a second, and a start needs two groups.
    """
    return {
        (version["name"], crd["spec"]["names"]["kind"]): (crd, version)
        for crd in (_parsed(name) for name in _files() if name.startswith(f"{group}_"))
        for version in crd["spec"]["versions"]
    }


@cache
def struct_for(group: str, version: str, kind: str) -> Struct | None:
    """The struct of a custom kind; ``None`` where no CustomResourceDefinition declares it."""
    entry = _versions(group).get((version, kind))
    if entry is None:
        return None
    body = entry[1]["schema"]["openAPIV3Schema"]
    struct = _struct(body, kind, "")
    reverse = ".".join(reversed(group.split(".")))
    struct.name = f"{reverse}.{version}.{kind}"
    struct.kind = (group, version, kind)
    fields = struct.fields
    for name in ("apiVersion", "kind"):
        fields.setdefault(name, SchemaNode("string", go="string"))
    metadata = SchemaNode("struct", go="v1.ObjectMeta")
    metadata.struct = schema.builtin(f"{META}ObjectMeta")
    fields["metadata"] = metadata
    return struct


def schema_of(group: str, version: str, kind: str) -> Mapping[str, Any]:
    """``openAPIV3Schema`` of a custom kind; empty where no CustomResourceDefinition declares it."""
    entry = _versions(group).get((version, kind))
    return entry[1]["schema"]["openAPIV3Schema"] if entry else {}


def columns(group: str, version: str, kind: str) -> list[dict[str, Any]]:
    """``additionalPrinterColumns`` of a custom kind; empty where there are none."""
    entry = _versions(group).get((version, kind))
    return entry[1].get("additionalPrinterColumns", []) if entry else []


def subresources(group: str, version: str, kind: str) -> Mapping[str, Any]:
    """``subresources`` of a custom kind; empty where it declares none."""
    entry = _versions(group).get((version, kind))
    return entry[1].get("subresources") or {} if entry else {}


def _struct(body: Mapping[str, Any], kind: str, path: str) -> Struct:
    def build() -> dict[str, SchemaNode]:
        return {
            name: node_of(inner, kind, f"{path}.{name}" if path else name)
            for name, inner in body.get("properties", {}).items()
        }

    struct = Struct(path or kind, path.rsplit(".", 1)[-1] or kind, build)
    struct.required = tuple(body.get("required", ()))
    struct.description = body.get("description", "")
    return struct


def node_of(body: Mapping[str, Any], kind: str, path: str) -> SchemaNode:
    """The node of one JSON schema of a CustomResourceDefinition."""
    node = SchemaNode(_kind(body))
    # A list and its items have the same path. The struct is that of the items.
    embedded = EMBEDDED.get((kind, path)) if node.kind != "list" else None
    if embedded:
        node.kind, node.leaf, node.embedded = "struct", None, True
        node.struct = schema.builtin(embedded)
    elif node.kind == "struct":
        node.struct = _struct(body, kind, path)
    elif node.kind == "map":
        node.item = node_of(body["additionalProperties"], kind, path)
    elif node.kind == "list":
        node.item = node_of(body["items"], kind, path)
    node.keep_unknown = bool(body.get("x-kubernetes-preserve-unknown-fields")) and not embedded
    node.nullable = bool(body.get("nullable"))
    node.enum = tuple(body.get("enum", ()))
    node.format = body.get("format", "")
    node.bits = 32 if node.format == "int32" else 64
    node.default = body.get("default")
    node.list_type = body.get("x-kubernetes-list-type", "")
    node.list_keys = tuple(body.get("x-kubernetes-list-map-keys", ()))
    node.map_type = body.get("x-kubernetes-map-type", "")
    node.bounds = {name: body[name] for name in _BOUNDS if name in body}
    node.description = body.get("description", "")
    return node


def _kind(body: Mapping[str, Any]) -> str:
    if body.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    match body.get("type"):
        case "object":
            if "properties" in body:
                return "struct"
            return "map" if isinstance(body.get("additionalProperties"), Mapping) else "any"
        case "array":
            return "list"
        case str(word):
            return word
    return "any"
