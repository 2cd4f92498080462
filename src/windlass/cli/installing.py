"""Putting Windlass into a cluster without helm, and taking it out again.

What is applied are the objects that the Helm chart gives with its default values (``data/install.yaml``, held
equal by a test), changed by what the user said, and the CRDs of ``windlass crds``. Applying is server-side and may
be repeated; it takes back the fields that it sets, and leaves those that others have added.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from windlass.cli.guarding import Proof, kept_proof
from windlass.cli.invocation import PausingClock
from windlass.client.blocking import BlockingClient

NAMESPACE = "windlass-system"
GUARD = "windlass-bind-guard"
MANAGER = "windlass-install"
OURS = ("app.kubernetes.io/managed-by", "windlass")
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
_NAME, _BESIDE, _GROUPED = "--scheduler-name=", "--beside=", "--wait-for-group="
ESTABLISHED_SECONDS = 60.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user said. ``configuration``: text of a scheduler configuration, empty for the default policy.
    ``beside``: schedulers that still run and hand their queues over (:mod:`windlass.cli.adopting`). ``grouped``:
    scheduler names for whose pods somebody else makes PodGroups."""

    namespace: str = NAMESPACE
    image: str = ""
    replicas: int = 0
    scheduler_names: tuple[str, ...] = ()
    configuration: str = ""
    crds: bool = True
    beside: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    proof: Proof | None = None
    """Of the bind guard; None: without it."""


def definitions() -> list[Json]:
    """The CustomResourceDefinitions of ``windlass crds``."""
    import yaml

    folder = files("windlass.api") / "crds"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return [obj for name in names for obj in yaml.safe_load_all((folder / name).read_text()) if obj]


def _check(wishes: Wishes) -> None:
    """What the chart's schema would refuse. Raises :class:`WindlassError`."""
    if wishes.image and not re.fullmatch(r"\S+", wishes.image):
        raise WindlassError("WL-USE-400", f"--image {wishes.image!r} is no reference of an image")
    for name in wishes.scheduler_names:
        if name == "default-scheduler":
            raise WindlassError(
                "WL-USE-400",
                "--scheduler-name default-scheduler: these pods have a scheduler, the cluster's own",
                evidence="two that place the same pods take the room from one another",
                remedies=("schedulerName: windlass in the pods that Windlass is to place",),
            )
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
            raise WindlassError("WL-USE-400", f"--scheduler-name {name!r} is no name of a scheduler")


def objects(wishes: Wishes) -> list[Json]:
    """Everything that is applied, in that order. Raises :class:`WindlassError`."""
    import yaml

    _check(wishes)
    name = "install.yaml" if wishes.proof is None else "install-bind-guard.yaml"
    text = (files("windlass.cli") / "data" / name).read_text()
    if wishes.proof is not None:
        text = wishes.proof.fill(text)
    found: list[Json] = [_placed(obj, wishes.namespace) for obj in yaml.safe_load_all(text)]
    for obj in found:
        if obj["kind"] == "Deployment":
            _adapt(obj, wishes)
        elif obj["kind"] == "ConfigMap" and "windlass.conf" in obj["data"] and wishes.configuration:
            obj["data"]["windlass.conf"] = wishes.configuration
    label, value = OURS
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": wishes.namespace, "labels": {label: value}},
    }
    whole = [space, *(definitions() if wishes.crds else ()), *found]
    rank = {kind: place for place, kind in enumerate(_ORDER)}
    return sorted(whole, key=lambda obj: rank.get(obj["kind"], len(rank)))


def _placed(obj: Json, namespace: str) -> Json:
    """The object in another namespace than the usual one; cluster-wide names then say it, as the chart's do."""
    placed = copy.deepcopy(obj)
    metadata = placed["metadata"]
    if "namespace" in metadata:
        metadata["namespace"] = namespace
    for subject in placed.get("subjects") or ():
        subject["namespace"] = namespace
    if obj["kind"] == WEBHOOKS.kind:
        _place_hooks(placed, namespace)
    if namespace != NAMESPACE and obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
        metadata["name"] = f"{namespace}:{metadata['name']}"
        if "roleRef" in placed:
            placed["roleRef"]["name"] = metadata["name"]
    return placed


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
    found = [_placed(obj, namespace) for obj in yaml.safe_load_all(text)]
    return [obj for obj in reversed(found) if obj["metadata"]["name"].startswith(GUARD)]


def remove_guard(client: BlockingClient, namespace: str, *, dry_run: bool) -> Iterator[str]:
    """Titles of what is deleted of the bind guard. Raises ``StatusError``, ``Unreachable``."""
    for obj in guard_objects(namespace):
        resource, metadata = KINDS[obj["kind"]], obj["metadata"]
        if client.find(resource, metadata["name"], metadata.get("namespace")) is not None:
            if not dry_run:
                client.delete(resource, metadata["name"], metadata.get("namespace"))
            yield title(obj)


def _adapt(deployment: Json, wishes: Wishes) -> None:
    spec = deployment["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    if wishes.image:
        container["image"] = wishes.image
    if wishes.replicas:
        spec["replicas"] = wishes.replicas
    container["args"] += [f"{_BESIDE}{name}" for name in wishes.beside]
    if container["args"][0] != "scheduler":
        return
    if wishes.scheduler_names:
        kept = [argument for argument in container["args"] if not argument.startswith(_NAME)]
        container["args"] = [*kept, *(f"{_NAME}{name}" for name in wishes.scheduler_names)]
    if wishes.grouped:
        container["args"] += [f"{_GROUPED}{name}" for name in ("volcano", *wishes.grouped)]


def as_installed(client: BlockingClient, wishes: Wishes) -> Wishes:
    """``wishes`` with the image, the number of instances, the scheduler names, who is beside and the configuration that
    are in the cluster; as they are where Windlass is not installed. Raises ``StatusError``."""
    found = client.find(DEPLOYMENTS, "windlass-scheduler", wishes.namespace)
    if found is None:
        return wishes
    (container,) = found["spec"]["template"]["spec"]["containers"]
    names, beside, grouped = (
        tuple(word.removeprefix(flag) for word in container["args"] if word.startswith(flag))
        for flag in (_NAME, _BESIDE, _GROUPED)
    )
    data = (client.find(CONFIG_MAPS, "windlass-scheduler", wishes.namespace) or {}).get("data") or {}
    return replace(
        wishes,
        image=container["image"],
        replicas=found["spec"].get("replicas", 0),
        scheduler_names=names,
        beside=beside,
        grouped=tuple(name for name in grouped if name != "volcano"),
        configuration=data.get("windlass.conf", ""),
        proof=kept_proof(client.find(SECRETS, GUARD, wishes.namespace)) or wishes.proof,
    )


def refuse_helms(client: BlockingClient, wishes: Wishes) -> None:
    """Raises ``WL-INSTALL-409`` where helm put Windlass into the namespace: two must not write the same objects."""
    for obj in objects(wishes):
        if obj["kind"] != DEPLOYMENTS.kind:
            continue
        found = client.find(DEPLOYMENTS, obj["metadata"]["name"], wishes.namespace) or {"metadata": {}}
        if (found["metadata"].get("labels") or {}).get(OURS[0]) == "Helm":
            raise WindlassError(
                "WL-INSTALL-409",
                f"helm has installed Windlass in namespace {wishes.namespace}",
                evidence=f"{title(obj)} has the label {OURS[0]}=Helm",
                remedies=(
                    f"helm upgrade windlass deploy/helm/windlass -n {wishes.namespace}",
                    f"helm uninstall windlass -n {wishes.namespace}",
                ),
            )


def title(obj: Json) -> str:
    """``deployment.apps/windlass-scheduler``."""
    resource = KINDS[obj["kind"]]
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.singular}{group}/{obj['metadata']['name']}"


def apply(
    client: BlockingClient, wanted: Sequence[Json], *, dry_run: bool, clock: PausingClock
) -> Iterator[tuple[Json, str, Json]]:
    """Each object as it was wanted, what became of it (created, configured, unchanged) and as it is now.

    Waits until the CRDs are served before going on. A dry run lets the server check each object whose
    namespace and kind it knows already. Raises ``StatusError``, ``Unreachable``, :class:`WindlassError`.
    """
    pending: list[str] = []
    fresh = False
    for obj in wanted:
        if obj["kind"] != CRD.kind and pending:
            _until_served(client, pending, clock)
            pending = []
        resource, metadata = KINDS[obj["kind"]], obj["metadata"]
        name, space = metadata["name"], metadata.get("namespace")
        before = client.find(resource, name, space)
        if dry_run and fresh and space:
            yield obj, "created", obj  # its namespace would be made only just now
            continue
        after = client.patch(
            resource, name, obj, space, kind="apply", field_manager=MANAGER, force=True, dry_run=dry_run
        )
        fresh = fresh or (resource is NAMESPACES and before is None)
        if resource is CRD and not dry_run:
            pending.append(name)
        yield obj, _became(before, after), after
    if pending:
        _until_served(client, pending, clock)


def _became(before: Json | None, after: Json) -> str:
    if before is None:
        return "created"
    same = _lasting(before) == _lasting(after)
    return "unchanged" if same else "configured"


def _lasting(obj: Json) -> Json:
    """The object without what every write or the server changes."""
    kept = {
        key: value for key, value in obj.items() if key not in ("status", "metadata", "apiVersion", "kind")
    }
    names = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
    return {**kept, "metadata": {k: v for k, v in obj["metadata"].items() if k not in names}}


def _until_served(client: BlockingClient, names: Sequence[str], clock: PausingClock) -> None:
    deadline = clock.monotonic() + ESTABLISHED_SECONDS
    for name in names:
        while not _condition(client.get(CRD, name), "Established"):
            if clock.monotonic() > deadline:
                raise WindlassError(
                    "WL-INSTALL-504",
                    f"the CustomResourceDefinition {name} is not served",
                    evidence=f"not Established after {ESTABLISHED_SECONDS:.0f} s",
                    remedies=(f"kubectl get crd {name} -o yaml",),
                )
            clock.pause(0.1)


def _condition(obj: Json, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def until_available(
    client: BlockingClient, namespace: str, clock: PausingClock, seconds: float, tell: Callable[[str], None]
) -> None:
    """Return when every Deployment has all its instances ready. Raises ``WL-INSTALL-504`` after ``seconds``."""
    deadline = clock.monotonic() + seconds
    names = [obj["metadata"]["name"] for obj in objects(Wishes(crds=False)) if obj["kind"] == "Deployment"]
    for name in names:
        while not _rolled_out(found := client.get(DEPLOYMENTS, name, namespace)):
            if clock.monotonic() > deadline:
                status = found.get("status") or {}
                raise WindlassError(
                    "WL-INSTALL-504",
                    f"deployment {namespace}/{name} is not available",
                    evidence=f"{status.get('readyReplicas') or 0} of {found['spec']['replicas']} ready "
                    f"after {seconds:.0f} s",
                    remedies=(f"kubectl -n {namespace} describe pods -l app.kubernetes.io/name=windlass",),
                )
            clock.pause(0.5)
        tell(name)


def _rolled_out(deployment: Json) -> bool:
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return seen and status.get("updatedReplicas") == wanted == status.get("readyReplicas")


def remove(client: BlockingClient, wishes: Wishes, *, purge: bool, dry_run: bool) -> Iterator[str]:
    """Titles of what is deleted, the last applied first. ``purge``: also the namespace if ``install`` made it
    and the CRDs with every object of theirs. Raises ``StatusError``, ``Unreachable``."""
    yield from remove_guard(client, wishes.namespace, dry_run=dry_run)
    for obj in reversed(objects(wishes)):
        resource, metadata = KINDS[obj["kind"]], obj["metadata"]
        if resource in (CRD, NAMESPACES) and not purge:
            continue
        found = client.find(resource, metadata["name"], metadata.get("namespace"))
        if found is None or (resource is NAMESPACES and not _made_here(found)):
            continue
        if not dry_run:
            try:
                client.delete(
                    resource, metadata["name"], metadata.get("namespace"), uid=found["metadata"]["uid"]
                )
            except StatusError as error:
                if error.code != 404:
                    raise
        yield title(obj)


def _made_here(namespace: Json) -> bool:
    label, value = OURS
    return (namespace["metadata"].get("labels") or {}).get(label) == value
