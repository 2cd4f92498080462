"""Putting Windlass into a cluster without helm, and taking it out again.

What is applied are the objects that the Helm chart gives with its default values (``data/install.yaml``, held
equal by a test), changed by what the user said or had installed (:mod:`windlass.cli.install.installed_settings`), and
the CRDs of ``windlass crds``. Applying is server-side and may be repeated; the server is asked about every object
beforehand, so that a refusal leaves nothing half-done (:mod:`windlass.cli.install.deploy`).
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
from windlass.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from windlass.cli.install import gpu_sharing
from windlass.cli.install.bind_guard import Proof
from windlass.client.blocking import BlockingClient

NAMESPACE = "windlass-system"
GUARD = "windlass-bind-guard"
IMAGE = "windlass"
"""The image that the chart names, without its tag."""
MANAGED_LABELS = ("app.kubernetes.io/managed-by", "windlass")
_OUR_KINDS = ("app.kubernetes.io/part-of", "windlass")
PART_OF = "=".join(_OUR_KINDS)
"""By which everything of Windlass is found, of ``windlass install`` and of helm."""
CRD = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, ("crd",)
)
SECRETS = Resource("", "v1", "secrets", "Secret")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
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
"""What others need comes first; the rest follows in the chart's order."""
SHARED = frozenset({NAMESPACES, PRIORITY_CLASSES, CRD})
"""Kinds of which somebody else may have made an object of the same name."""
NAMED, BESIDE, GROUPED, GUARDED = "--scheduler-name=", "--beside=", "--wait-for-group=", "--bind-guard="
DEPLOYED = ("windlass-scheduler", "windlass-controllers")
"""Deployments, and the leases that their instances hold."""
CONFIGURED = (("windlass-scheduler", "windlass.conf"), ("windlass-settings", "settings.yaml"))
"""ConfigMaps, and the file in each that is the user's."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InstalledComponent:
    """A Deployment as it is installed. ``image``: empty for the default one."""

    image: str
    replicas: int


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What the user said. ``configuration``, ``settings``: texts, empty for the defaults. ``beside``: schedulers that
    still run and hand their queues over (:mod:`windlass.cli.install.adopt`). ``grouped``: scheduler names for whose
    pods somebody else makes PodGroups. ``parts``: by Deployment, what holds where no image and no number is said."""

    namespace: str = NAMESPACE
    image: str = ""
    replicas: int = 0
    scheduler_names: tuple[str, ...] = ()
    configuration: str = ""
    settings: str = ""
    crds: bool = True
    beside: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    proof: Proof | None = None
    """Of the bind guard; None: without it."""
    gpu_sharing: bool = False
    inject: bool = True
    """With :attr:`gpu_sharing`: containers are told their card by a policy of the server."""
    parts: Mapping[str, InstalledComponent] = field(default_factory=dict)


def definitions() -> list[Json]:
    """The CustomResourceDefinitions of ``windlass crds``."""
    import yaml

    folder = files("windlass.api") / "crds"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return [obj for name in names for obj in yaml.safe_load_all((folder / name).read_text()) if obj]


def _check(options: InstallOptions) -> None:
    """What the chart's schema would refuse. Raises :class:`WindlassError`."""
    if options.image and not re.fullmatch(r"\S+", options.image):
        raise WindlassError(
            "WL-USE-400",
            f"--image {options.image!r} is no reference of an image",
            remedies=("--image registry.example/windlass:0.1.0",),
        )
    for name in options.scheduler_names:
        if name == "default-scheduler":
            raise WindlassError(
                "WL-USE-400",
                "--scheduler-name default-scheduler: these pods have a scheduler, the cluster's own",
                evidence="two that place the same pods take the room from one another",
                remedies=("schedulerName: windlass in the pods that Windlass is to place",),
            )
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
            raise WindlassError(
                "WL-USE-400",
                f"--scheduler-name {name!r} is no name of a scheduler",
                evidence="small letters, digits, - and . are",
                remedies=("--scheduler-name windlass",),
            )


def objects(options: InstallOptions) -> list[Json]:
    """Everything that is applied, in that order. Raises :class:`WindlassError`."""
    import yaml

    _check(options)
    name = "install.yaml" if options.proof is None else "install-bind-guard.yaml"
    text = (files("windlass.cli") / "data" / name).read_text()
    if options.proof is not None:
        text = options.proof.fill(text)
    found: list[Json] = list(yaml.safe_load_all(text))
    if options.gpu_sharing:
        found += gpu_sharing.objects(options.scheduler_names, inject=options.inject)
    found = [placed(obj, options.namespace) for obj in found]
    for obj in found:
        if obj["kind"] == "Deployment":
            _adapt(obj, options)
    _fill_files(found, options)
    label, value = MANAGED_LABELS
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": options.namespace, "labels": {label: value}},
    }
    whole = [space, *(definitions() if options.crds else ()), *found]
    rank = {kind: place for place, kind in enumerate(_ORDER)}
    return sorted(whole, key=lambda obj: rank.get(obj["kind"], len(rank)))


def _fill_files(found: Sequence[Json], options: InstallOptions) -> None:
    """The files of the ConfigMaps as they are wished for."""
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
                data["settings.yaml"] = gpu_sharing.switched(data["settings.yaml"], holder)
            obj["data"] = data


def placed(obj: Json, namespace: str) -> Json:
    """The object in another namespace than the usual one; cluster-wide names then say it, as the chart's do."""
    found = copy.deepcopy(obj)
    metadata = found["metadata"]
    if metadata.get("namespace") == NAMESPACE:
        metadata["namespace"] = namespace
    for subject in found.get("subjects") or ():
        subject["namespace"] = namespace
    if obj["kind"] == WEBHOOKS.kind:
        _place_hooks(found, namespace)
    if namespace == NAMESPACE:
        return found
    if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
        metadata["name"] = f"{namespace}:{metadata['name']}"
        if "roleRef" in found:
            found["roleRef"]["name"] = metadata["name"]
    elif obj["kind"] in (gpu_sharing.POLICIES.kind, gpu_sharing.POLICY_BINDINGS.kind):
        metadata["name"] = f"{namespace}.{metadata['name']}"
        if "policyName" in found["spec"]:
            found["spec"]["policyName"] = metadata["name"]
    return found


def _place_hooks(hooks: Json, namespace: str) -> None:
    if namespace != NAMESPACE:
        hooks["metadata"]["name"] += f".{namespace}"
    for hook in hooks["webhooks"]:
        hook["clientConfig"]["service"]["namespace"] = namespace
        for condition in hook["matchConditions"]:
            condition["expression"] = condition["expression"].replace(f":{NAMESPACE}:", f":{namespace}:")


def guard_objects(namespace: str) -> list[Json]:
    """What the bind guard has of its own, the last applied first; without what it proves itself with."""
    import yaml

    text = (files("windlass.cli") / "data" / "install-bind-guard.yaml").read_text()
    found = [placed(obj, namespace) for obj in yaml.safe_load_all(text)]
    return [obj for obj in reversed(found) if obj["metadata"]["name"].startswith(GUARD)]


def _adapt(deployment: Json, options: InstallOptions) -> None:
    spec = deployment["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    part = options.parts.get(deployment["metadata"]["name"], InstalledComponent("", spec["replicas"]))
    container["image"] = options.image or part.image or container["image"]
    spec["replicas"] = options.replicas or part.replicas
    container["args"] += [f"{BESIDE}{name}" for name in options.beside]
    if container["args"][0] != "scheduler":
        return
    if options.scheduler_names:
        place = next(at for at, word in enumerate(container["args"]) if word.startswith(NAMED))
        others = [word for word in container["args"] if not word.startswith(NAMED)]
        container["args"] = [
            *others[:place],
            *(f"{NAMED}{name}" for name in options.scheduler_names),
            *others[place:],
        ]
    if options.gpu_sharing:
        spec["template"]["metadata"].setdefault("annotations", {})[DEVICE_RESERVATION] = "enabled"
    if options.grouped:
        container["args"] += [f"{GROUPED}{name}" for name in ("volcano", *options.grouped)]


def defaults() -> InstallOptions:
    """What the objects say without any wish: number of instances, scheduler names, settings."""
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


def refuse_helms(client: BlockingClient, options: InstallOptions) -> None:
    """Raises ``WL-INSTALL-409`` where helm put Windlass into the namespace: two must not write the same objects."""
    for name in DEPLOYED:
        found = client.find(DEPLOYMENTS, name, options.namespace) or {"metadata": {}}
        if (found["metadata"].get("labels") or {}).get(MANAGED_LABELS[0]) == "Helm":
            raise WindlassError(
                "WL-INSTALL-409",
                f"helm has installed Windlass in namespace {options.namespace}",
                evidence=f"deployment.apps/{name} has the label {MANAGED_LABELS[0]}=Helm",
                remedies=(
                    f"helm upgrade windlass deploy/helm/windlass -n {options.namespace}",
                    f"helm uninstall windlass -n {options.namespace}",
                ),
            )


def is_ours(obj: Json) -> bool:
    """Whether an object that is in the cluster was made by ``windlass install``, a kind by Windlass at all."""
    label, value = _OUR_KINDS if obj.get("kind") == CRD.kind else MANAGED_LABELS
    return (obj["metadata"].get("labels") or {}).get(label) == value


def title(obj: Json) -> str:
    """``deployment.apps/windlass-scheduler``."""
    return titled(KINDS[obj["kind"]], obj["metadata"]["name"])


def titled(resource: Resource, name: str) -> str:
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.singular}{group}/{name}"
