"""What is installed holds on where nothing else is said: :func:`as_installed` reads it, :func:`keep` fills it in.

The default image of an older version is none that anybody chose: it goes along with the command's version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import CONFIG_MAPS
from windlass.cli.errors import unless_forbidden
from windlass.cli.install import gpu_sharing, objects
from windlass.cli.install.bind_guard import kept_proof
from windlass.cli.install.objects import (
    BESIDE,
    CONFIGURED,
    DEPLOYMENTS,
    GROUPED,
    GUARD,
    GUARDED,
    NAMED,
    SECRETS,
    InstalledComponent,
    InstallOptions,
)
from windlass.client.blocking import BlockingClient

Json = dict[str, Any]
_VERSION = "app.kubernetes.io/version"


def as_installed(client: BlockingClient, namespace: str) -> InstallOptions:
    """What stands in the cluster; nothing but the namespace where Windlass is not installed. Raises ``StatusError``."""
    found = {name: client.find(DEPLOYMENTS, name, namespace) for name in objects.DEPLOYED}
    parts = {name: _part(deployment) for name, deployment in found.items() if deployment is not None}
    scheduler = found["windlass-scheduler"]
    if scheduler is None:
        return InstallOptions(namespace=namespace, parts=parts)
    names, beside, grouped = (
        tuple(word.removeprefix(flag) for word in _container(scheduler)["args"] if word.startswith(flag))
        for flag in (NAMED, BESIDE, GROUPED)
    )
    texts = {}
    for name, file in CONFIGURED:
        data = (client.find(CONFIG_MAPS, name, namespace) or {}).get("data") or {}
        texts[file] = data.get(file, "")
    guarded = any(word.startswith(GUARDED) for word in _container(scheduler)["args"])
    return InstallOptions(
        namespace=namespace,
        scheduler_names=names,
        configuration=texts["windlass.conf"],
        settings=texts["settings.yaml"],
        beside=beside,
        grouped=tuple(name for name in grouped if name != "volcano"),
        proof=kept_proof(client.find(SECRETS, GUARD, namespace)) if guarded else None,
        gpu_sharing=gpu_sharing.is_on(texts["settings.yaml"]),
        parts=parts,
    )


def others(client: BlockingClient, namespace: str) -> list[str]:
    """Other namespaces in which Windlass is installed, by helm or not; none where this user may not look. Raises
    ``StatusError``, ``Unreachable``."""
    found = unless_forbidden(lambda: client.list(DEPLOYMENTS, labels=objects.PART_OF).items, [])
    return sorted({obj["metadata"]["namespace"] for obj in found} - {namespace})


def refuse_second(client: BlockingClient, namespace: str) -> None:
    """Raises ``WL-INSTALL-409`` where Windlass is in another namespace: each has leaders of its own, so two would place
    the same pods, and make the pods of the same jobs."""
    for space in others(client, namespace):
        raise WindlassError(
            "WL-INSTALL-409",
            f"Windlass is installed in namespace {space} already, and two would decide on the same pods and jobs",
            evidence=f"kubectl -n {space} get deployments -l {objects.PART_OF}",
            remedies=(f"windlass install -n {space}", f"windlass uninstall -n {space}"),
        )


def refuse_absent(client: BlockingClient, namespace: str) -> None:
    """Raises ``WL-INSTALL-409`` where Windlass is in another namespace and not in this one: what is the cluster's (its
    kinds, its PriorityClasses) is not to go from under it."""
    if any(client.find(DEPLOYMENTS, name, namespace) is not None for name in objects.DEPLOYED):
        return
    for space in others(client, namespace):
        raise WindlassError(
            "WL-INSTALL-409",
            f"Windlass is not installed in namespace {namespace}, but in {space}",
            remedies=(f"windlass uninstall -n {space}",),
        )


def keep(told: InstallOptions, there: InstallOptions) -> InstallOptions:
    """``told``, and where it is silent what is ``there``."""
    return replace(
        told,
        scheduler_names=told.scheduler_names or there.scheduler_names,
        configuration=told.configuration or there.configuration,
        settings=told.settings or there.settings,
        beside=told.beside or there.beside,
        grouped=told.grouped or there.grouped,
        proof=told.proof or there.proof,
        gpu_sharing=told.gpu_sharing or there.gpu_sharing,
        parts=there.parts,
    )


def kept_words(told: InstallOptions, there: InstallOptions, *, guard: bool, sharing: bool) -> str:
    """What differs from the defaults and was not named, for people; empty where nothing does. ``guard``, ``sharing``:
    the bind guard, the sharing of cards was not named."""
    import yaml

    defaults = objects.defaults()
    words = []
    images = {name: part.image for name, part in there.parts.items() if part.image}
    if images and not told.image:
        words.append(f"image {_each(images)}")
    counts = {name: str(part.replicas) for name, part in there.parts.items()}
    if not told.replicas and set(counts.values()) - {str(defaults.replicas)}:
        words.append(f"instances {_each(counts)}")
    if not told.scheduler_names and there.scheduler_names not in ((), defaults.scheduler_names):
        words.append(f"scheduler names {', '.join(there.scheduler_names)}")
    if not told.configuration and yaml.safe_load(there.configuration or "{}"):
        words.append("scheduler configuration")
    own = yaml.safe_load(gpu_sharing.switched(there.settings, "")) if there.settings else None
    if own is not None and own != yaml.safe_load(defaults.settings):
        words.append("settings")
    if guard and there.proof is not None:
        words.append("bind guard")
    if sharing and there.gpu_sharing:
        words.append("shared cards")
    return "; ".join(words)


def _each(found: Mapping[str, str]) -> str:
    """One value where all have the same."""
    values = set(found.values())
    if len(values) == 1:
        return values.pop()
    return ", ".join(f"{value} of {name}" for name, value in found.items())


def _part(deployment: Json) -> InstalledComponent:
    version = (deployment["metadata"].get("labels") or {}).get(_VERSION, "")
    image = _container(deployment)["image"]
    chosen = image != f"{objects.IMAGE}:{version}"
    return InstalledComponent(image if chosen else "", deployment["spec"].get("replicas", 1))


def _container(deployment: Json) -> Json:
    return deployment["spec"]["template"]["spec"]["containers"][0]
