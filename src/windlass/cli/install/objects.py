"""Objects that install Windlass in a cluster without helm.

They are the objects of the Helm chart with its default values (``data/install.yaml``,
compared by a test), and the CRDs of ``windlass crds``. Options of the user or of the
installation change them (:mod:`windlass.cli.install.installed_settings`). They are
applied server-side, which may be repeated. The server checks every object first, so
that a rejection changes nothing (:mod:`windlass.cli.install.deploy`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from windlass.api.annotations import DEVICE_RESERVATION
from windlass.api.errors import WindlassError
from windlass.api.fields.aigc import IMAGE_VARIABLE
from windlass.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from windlass.cli.install import gpu_sharing
from windlass.cli.install.bind_guard import GuardCredentials
from windlass.client.blocking import BlockingClient

NAMESPACE = "windlass-system"
GUARD = "windlass-bind-guard"
IMAGE = "windlass"
"""Image of the chart, without its tag."""
MANAGED_LABELS = ("app.kubernetes.io/managed-by", "windlass")
_PART_OF_LABEL = ("app.kubernetes.io/part-of", "windlass")
PART_OF = "=".join(_PART_OF_LABEL)
"""Label of all objects of Windlass, of ``windlass install`` and of helm."""
CRD = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, ("crd",)
)
SECRETS = Resource("", "v1", "secrets", "Secret")
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
)
_RBAC = "rbac.authorization.k8s.io"
KINDS = {
    resource.kind: resource
    for resource in (
        CRD,
        NAMESPACES,
        SERVICE_ACCOUNTS,
        CONFIG_MAPS,
        SERVICES,
        DEPLOYMENTS,
        SECRETS,
        WEBHOOKS,
        PRIORITY_CLASSES,
        POD_DISRUPTION_BUDGETS,
        gpu_sharing.POLICIES,
        gpu_sharing.POLICY_BINDINGS,
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    )
}
_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
)
"""Order of kinds that others need. All other kinds follow in the chart's order."""
SHARED = frozenset({NAMESPACES, PRIORITY_CLASSES, CRD})
"""Kinds of objects that may have another owner under the same name."""
NAMED, BESIDE, GROUPED, GUARDED = "--scheduler-name=", "--beside=", "--wait-for-group=", "--bind-guard="
DEPLOYED = ("windlass-scheduler", "windlass-controllers")
"""Names of the Deployments, and of the leases that their instances hold."""
CONFIGURED = (("windlass-scheduler", "windlass.conf"), ("windlass-settings", "settings.yaml"))
"""Names of ConfigMaps, each with the file that belongs to the user."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InstalledComponent:
    """One installed Deployment. ``image``: empty for the default."""

    image: str
    replicas: int


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """Options of the user.

    ``configuration``, ``settings``: texts; empty for the defaults. ``beside``:
    schedulers that still run and hand their queues over
    (:mod:`windlass.cli.install.adopt`). ``grouped``: scheduler names; another
    controller creates PodGroups for their pods. ``parts``: by Deployment, values for
    the case that no image or number is given.
    """

    namespace: str = NAMESPACE
    image: str = ""
    replicas: int = 0
    scheduler_names: tuple[str, ...] = ()
    configuration: str = ""
    settings: str = ""
    crds: bool = True
    beside: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    proof: GuardCredentials | None = None
    """Credentials of the bind guard; ``None``: no bind guard."""
    gpu_sharing: bool = False
    inject: bool = True
    """With :attr:`gpu_sharing`: containers get their device by a policy of the server.
    """
    parts: Mapping[str, InstalledComponent] = field(default_factory=dict)


def definitions() -> list[Json]:
    """Return the CustomResourceDefinitions of ``windlass crds``."""
    import yaml

    directory = files("windlass.api") / "crds"
    names = sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(".yaml"))
    return [obj for name in names for obj in yaml.safe_load_all((directory / name).read_text()) if obj]


def _check(options: InstallOptions) -> None:
    """Check what the chart's schema would reject. Raises :class:`WindlassError`."""
    if options.image and not re.fullmatch(r"\S+", options.image):
        raise WindlassError(
            "WL-USE-400",
            f"--image {options.image!r} is not a valid image reference",
            remedies=("--image registry.example/windlass:0.1.0",),
        )
    for name in options.scheduler_names:
        if name == "default-scheduler":
            raise WindlassError(
                "WL-USE-400",
                "--scheduler-name default-scheduler is not possible: the cluster's own scheduler serves these pods",
                evidence="two schedulers of the same pods would compete for the same capacity",
                remedies=("set schedulerName: windlass in the pods that Windlass shall schedule",),
            )
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
            raise WindlassError(
                "WL-USE-400",
                f"--scheduler-name {name!r} is not a valid name",
                evidence="a name consists of lower-case letters, digits, - and .",
                remedies=("--scheduler-name windlass",),
            )


def objects(options: InstallOptions) -> list[Json]:
    """Return all objects to apply, in this order. Raises :class:`WindlassError`."""
    import yaml

    _check(options)
    name = "install.yaml" if options.proof is None else "install-bind-guard.yaml"
    text = (files("windlass.cli") / "data" / name).read_text()
    if options.proof is not None:
        text = options.proof.fill(text)
    items: list[Json] = list(yaml.safe_load_all(text))
    if options.gpu_sharing:
        items += gpu_sharing.objects(options.scheduler_names, inject=options.inject)
    items = [in_namespace(obj, options.namespace) for obj in items]
    for obj in items:
        if obj["kind"] == "Deployment":
            _adapt(obj, options)
    _set_files(items, options)
    label, value = MANAGED_LABELS
    namespace_object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": options.namespace, "labels": {label: value}},
    }
    all_objects = [namespace_object, *(definitions() if options.crds else ()), *items]
    rank = {kind: number for number, kind in enumerate(_ORDER)}
    return sorted(all_objects, key=lambda obj: rank.get(obj["kind"], len(rank)))


def _set_files(found: Sequence[Json], options: InstallOptions) -> None:
    """Set the files of the ConfigMaps by the options."""
    (image,) = (
        obj["spec"]["template"]["spec"]["containers"][0]["image"]
        for obj in found
        if obj["kind"] == "Deployment" and obj["metadata"]["name"] == DEPLOYED[0]
    )
    texts = {"windlass.conf": options.configuration, "settings.yaml": options.settings}
    for obj in found:
        if obj["kind"] == "ConfigMap":
            data = {file: texts[file] or text for file, text in obj["data"].items()}
            if "settings.yaml" in data:
                holder = image if options.gpu_sharing else ""
                data["settings.yaml"] = gpu_sharing.with_image(data["settings.yaml"], holder)
            obj["data"] = data


def in_namespace(obj: Json, namespace: str) -> Json:
    """Return the object for another namespace.

    As in the chart, names of cluster-wide objects then contain the namespace.
    """
    moved = copy.deepcopy(obj)
    metadata = moved["metadata"]
    if metadata.get("namespace") == NAMESPACE:
        metadata["namespace"] = namespace
    for subject in moved.get("subjects") or ():
        subject["namespace"] = namespace
    if obj["kind"] == WEBHOOKS.kind:
        _place_hooks(moved, namespace)
    if namespace == NAMESPACE:
        return moved
    if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
        metadata["name"] = f"{namespace}:{metadata['name']}"
        if "roleRef" in moved:
            moved["roleRef"]["name"] = metadata["name"]
    elif obj["kind"] in (gpu_sharing.POLICIES.kind, gpu_sharing.POLICY_BINDINGS.kind):
        metadata["name"] = f"{namespace}.{metadata['name']}"
        if "policyName" in moved["spec"]:
            moved["spec"]["policyName"] = metadata["name"]
    return moved


def _place_hooks(hooks: Json, namespace: str) -> None:
    if namespace != NAMESPACE:
        hooks["metadata"]["name"] += f".{namespace}"
    for hook in hooks["webhooks"]:
        hook["clientConfig"]["service"]["namespace"] = namespace
        for condition in hook["matchConditions"]:
            condition["expression"] = condition["expression"].replace(f":{NAMESPACE}:", f":{namespace}:")


def guard_objects(namespace: str) -> list[Json]:
    """Return the objects of the bind guard without credentials, the last applied first."""
    import yaml

    text = (files("windlass.cli") / "data" / "install-bind-guard.yaml").read_text()
    found = [in_namespace(obj, namespace) for obj in yaml.safe_load_all(text)]
    return [obj for obj in reversed(found) if obj["metadata"]["name"].startswith(GUARD)]


def _adapt(deployment: Json, options: InstallOptions) -> None:
    spec = deployment["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    part = options.parts.get(deployment["metadata"]["name"], InstalledComponent("", spec["replicas"]))
    container["image"] = options.image or part.image or container["image"]
    for variable in container["env"]:
        if variable["name"] == IMAGE_VARIABLE:
            variable["value"] = container["image"]
    spec["replicas"] = options.replicas or part.replicas
    container["args"] += [f"{BESIDE}{name}" for name in options.beside]
    if container["args"][0] != "scheduler":
        return
    if options.scheduler_names:
        place = next(at for at, word in enumerate(container["args"]) if word.startswith(NAMED))
        other_arguments = [word for word in container["args"] if not word.startswith(NAMED)]
        container["args"] = [
            *other_arguments[:place],
            *(f"{NAMED}{name}" for name in options.scheduler_names),
            *other_arguments[place:],
        ]
    if options.gpu_sharing:
        spec["template"]["metadata"].setdefault("annotations", {})[DEVICE_RESERVATION] = "enabled"
    if options.grouped:
        container["args"] += [f"{GROUPED}{name}" for name in ("volcano", *options.grouped)]


def defaults() -> InstallOptions:
    """Return the default number of instances, scheduler names and settings."""
    found = objects(InstallOptions(crds=False))
    (scheduler,) = (
        o for o in found if o["kind"] == "Deployment" and o["metadata"]["name"].endswith("scheduler")
    )
    (settings,) = (o for o in found if o["kind"] == "ConfigMap" and "settings.yaml" in o["data"])
    arguments = scheduler["spec"]["template"]["spec"]["containers"][0]["args"]
    return InstallOptions(
        replicas=scheduler["spec"]["replicas"],
        scheduler_names=tuple(word.removeprefix(NAMED) for word in arguments if word.startswith(NAMED)),
        settings=settings["data"]["settings.yaml"],
    )


def reject_helm(client: BlockingClient, options: InstallOptions) -> None:
    """Raise ``WL-INSTALL-409`` if helm installed Windlass in the namespace.

    Two installers must not write the same objects.
    """
    for name in DEPLOYED:
        found = client.find(DEPLOYMENTS, name, options.namespace) or {"metadata": {}}
        if (found["metadata"].get("labels") or {}).get(MANAGED_LABELS[0]) == "Helm":
            raise WindlassError(
                "WL-INSTALL-409",
                f"Windlass in namespace {options.namespace} was installed by helm",
                evidence=f"deployment.apps/{name} has the label {MANAGED_LABELS[0]}=Helm",
                remedies=(
                    f"helm upgrade windlass deploy/helm/windlass -n {options.namespace}",
                    f"helm uninstall windlass -n {options.namespace}",
                ),
            )


def is_managed(obj: Json) -> bool:
    """Return whether an object was created by ``windlass install``; a CRD, by Windlass at all."""
    label, value = _PART_OF_LABEL if obj.get("kind") == CRD.kind else MANAGED_LABELS
    return (obj["metadata"].get("labels") or {}).get(label) == value


def title(obj: Json) -> str:
    """Return the title of an object: ``deployment.apps/windlass-scheduler``."""
    return titled(KINDS[obj["kind"]], obj["metadata"]["name"])


def titled(resource: Resource, name: str) -> str:
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.singular}{group}/{name}"
