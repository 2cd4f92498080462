"""Claims that the containers of a pod name (``resources.claims``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.wire import part


class ContainerWithClaims(Protocol):
    """Container of the wire."""

    @property
    def resources(self) -> msgspec.Raw: ...


class _Claim(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    device_class_name: str | None = None


class _Claims(msgspec.Struct, gc=False):
    claims: tuple[_Claim, ...] | None = None


_decoder = msgspec.json.Decoder(_Claims)


def class_claims(containers: Sequence[ContainerWithClaims], known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the claims that a container states by a device class alone: name and class, one device each."""
    for container in containers:
        if b"deviceClassName" not in bytes(container.resources):
            continue
        for claim in _claims(container):
            if claim.device_class_name and claim.name not in known:
                known.add(claim.name)
                yield claim.name, class_name(claim.device_class_name)


def unknown_claims(
    field: str, containers: Sequence[ContainerWithClaims], known: Collection[str]
) -> Iterator[FieldError]:
    """Yield an error for each claim that a container names and its pod does not have.

    The API server refuses such a pod. ``field``: that of the containers.
    """
    for at, container in enumerate(containers):
        if b"claims" not in bytes(container.resources):
            continue
        for position, claim in enumerate(_claims(container)):
            if claim.name not in known:
                place = f"{field}[{at}].resources.claims[{position}].name"
                names = f": {', '.join(sorted(known))}" if known else ", and it has none"
                words = f'Not found: "{claim.name}": it has to be in spec.resourceClaims of the pod{names}'
                yield FieldError(place, words, "FieldValueNotFound")


def _claims(container: ContainerWithClaims) -> tuple[_Claim, ...]:
    return part(_decoder, container.resources, "resources", _Claims, []).claims or ()


def class_name(name: str) -> str:
    """``nvidia.com/gpu`` → ``gpu.nvidia.com``: a slash is not allowed in the name of a device class."""
    domain, slash, leaf = name.partition("/")
    return f"{leaf}.{domain}" if slash else name
