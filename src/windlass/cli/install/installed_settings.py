"""Settings of the installed Windlass, which apply unless the user gives others.

:func:`as_installed` reads them, :func:`keep` fills them in. The default image of an
older version is no choice of the user, and follows the version of the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import CONFIG_MAPS, DEPLOYMENTS
from windlass.cli.errors import unless_forbidden
from windlass.cli.install import gpu_sharing, objects
from windlass.cli.install.bind_guard import stored_credentials
from windlass.cli.install.objects import (
    BESIDE,
    CONFIGURED,
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
    """Return the installed options; only the namespace if Windlass is not installed.

    Raises ``StatusError``.
    """
    deployments = {name: client.find(DEPLOYMENTS, name, namespace) for name in objects.DEPLOYED}
    parts = {name: _part(deployment) for name, deployment in deployments.items() if deployment is not None}
    scheduler = deployments["windlass-scheduler"]
    if scheduler is None:
        return InstallOptions(namespace=namespace, parts=parts)
    names, next_to, grouped = (
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
        beside=next_to,
        grouped=tuple(name for name in grouped if name != "volcano"),
        proof=stored_credentials(client.find(SECRETS, GUARD, namespace)) if guarded else None,
        gpu_sharing=gpu_sharing.is_on(texts["settings.yaml"]),
        parts=parts,
    )


def others(client: BlockingClient, namespace: str) -> list[str]:
    """Return other namespaces with Windlass, installed by helm or not.

    Empty if this user may not look. Raises ``StatusError`` and ``Unreachable``.
    """
    deployments = unless_forbidden(lambda: client.list(DEPLOYMENTS, labels=objects.PART_OF).items, [])
    return sorted({obj["metadata"]["namespace"] for obj in deployments} - {namespace})


def reject_second(client: BlockingClient, namespace: str) -> None:
    """Raise ``WL-INSTALL-409`` if Windlass is in another namespace.

    Each installation has its own leaders, so two would schedule the same pods, and
    create the pods of the same jobs.
    """
    for other in others(client, namespace):
        raise WindlassError(
            "WL-INSTALL-409",
            f"Windlass is already installed in namespace {other}, and two would schedule the same pods and jobs",
            evidence=f"kubectl -n {other} get deployments -l {objects.PART_OF}",
            remedies=(f"windlass install -n {other}", f"windlass uninstall -n {other}"),
        )


def reject_absent(client: BlockingClient, namespace: str) -> None:
    """Raise ``WL-INSTALL-409`` if Windlass is in another namespace and not in this one.

    Objects of the whole cluster (CRDs, PriorityClasses) must not be deleted while in
    use.
    """
    if any(client.find(DEPLOYMENTS, name, namespace) is not None for name in objects.DEPLOYED):
        return
    for other in others(client, namespace):
        raise WindlassError(
            "WL-INSTALL-409",
            f"Windlass is not installed in namespace {namespace}, but in {other}",
            remedies=(f"windlass uninstall -n {other}",),
        )


def keep(given: InstallOptions, installed: InstallOptions) -> InstallOptions:
    """Return ``told``, completed by ``there`` (the installed options)."""
    return replace(
        given,
        scheduler_names=given.scheduler_names or installed.scheduler_names,
        configuration=given.configuration or installed.configuration,
        settings=given.settings or installed.settings,
        beside=given.beside or installed.beside,
        grouped=given.grouped or installed.grouped,
        proof=given.proof or installed.proof,
        gpu_sharing=given.gpu_sharing or installed.gpu_sharing,
        parts=installed.parts,
    )


def kept_text(given: InstallOptions, installed: InstallOptions, *, guard: bool, sharing: bool) -> str:
    """Return what differs from the defaults and was not given, for people; else empty.

    :param guard: no option for the bind guard was given
    :param sharing: no option for GPU sharing was given
    """
    import yaml

    defaults = objects.defaults()
    texts = []
    images = {name: part.image for name, part in installed.parts.items() if part.image}
    if images and not given.image:
        texts.append(f"image {_each(images)}")
    counts = {name: str(part.replicas) for name, part in installed.parts.items()}
    if not given.replicas and set(counts.values()) - {str(defaults.replicas)}:
        texts.append(f"instances {_each(counts)}")
    if not given.scheduler_names and installed.scheduler_names not in ((), defaults.scheduler_names):
        texts.append(f"scheduler names {', '.join(installed.scheduler_names)}")
    if not given.configuration and yaml.safe_load(installed.configuration or "{}"):
        texts.append("scheduler configuration")
    settings = yaml.safe_load(gpu_sharing.with_image(installed.settings, "")) if installed.settings else None
    if settings is not None and settings != yaml.safe_load(defaults.settings):
        texts.append("settings")
    if guard and installed.proof is not None:
        texts.append("bind guard")
    if sharing and installed.gpu_sharing:
        texts.append("GPU sharing")
    return "; ".join(texts)


def _each(found: Mapping[str, str]) -> str:
    """Return one value if all are equal; else each with its name."""
    values = set(found.values())
    if len(values) == 1:
        return values.pop()
    return ", ".join(f"{value} of {name}" for name, value in found.items())


def _part(deployment: Json) -> InstalledComponent:
    version = (deployment["metadata"].get("labels") or {}).get(_VERSION, "")
    image = _container(deployment)["image"]
    is_custom = image != f"{objects.IMAGE}:{version}"
    return InstalledComponent(image if is_custom else "", deployment["spec"].get("replicas", 1))


def _container(deployment: Json) -> Json:
    return deployment["spec"]["template"]["spec"]["containers"][0]
