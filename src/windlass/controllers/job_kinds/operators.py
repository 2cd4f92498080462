"""Recognition of the operators of other projects by their Deployments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.controllers.job_kinds.families import FAMILIES, KindFamily


class _Container(msgspec.Struct):
    image: str = ""


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []


class _Template(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _Spec(msgspec.Struct):
    replicas: int | None = None
    template: _Template = msgspec.field(default_factory=_Template)


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    deletionTimestamp: str | None = None


class _Deployment(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class OperatorDeployment(msgspec.Struct, frozen=True):
    """Deployment that runs the operator of a family, ``deployment`` as ``namespace/name``."""

    key: str
    families: tuple[str, ...]


_decoder = msgspec.json.Decoder(_Deployment)


def decode_operator(raw: msgspec.Raw | bytes) -> OperatorDeployment | None:
    """Return the operator that a Deployment runs, ``None`` where it is none or has no replicas."""
    return _operator_of(_decoder.decode(raw))


def operator_of(deployment: Mapping[str, Any]) -> OperatorDeployment | None:
    """Return the operator that a Deployment runs, as :func:`decode_operator` does."""
    return _operator_of(msgspec.convert(deployment, _Deployment))


def owner_of(family: KindFamily, operators: Iterable[OperatorDeployment]) -> str:
    """Return the Deployment, as ``namespace/name``, that operates a family; ``""``: none does."""
    return min((found.key for found in operators if family.name in found.families), default="")


def _operator_of(deployment: _Deployment) -> OperatorDeployment | None:
    if deployment.spec.replicas == 0 or deployment.metadata.deletionTimestamp is not None:
        return None
    images = [_repository(container.image) for container in deployment.spec.template.spec.containers]
    families = tuple(
        family.name
        for family in FAMILIES
        if deployment.metadata.name in family.deployments
        or any(image == own or image.endswith(f"/{own}") for image in images for own in family.images)
    )
    if not families:
        return None
    return OperatorDeployment(f"{deployment.metadata.namespace}/{deployment.metadata.name}", families)


def _repository(image: str) -> str:
    """Return the image's name without digest and tag. The port of a registry is not taken for a tag."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]
