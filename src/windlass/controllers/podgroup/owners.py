"""Owners of pods, read with the client, and the rules that CustomResourceDefinitions declare."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.api.errors import StatusError
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource, by_kind
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import controller_of
from windlass.controllers.runner import Informers
from windlass.jobs.owners import paths
from windlass.jobs.owners.rules import OwnerRule, declared
from windlass.kits.clock import Clock

Json = dict[str, Any]
MAX_OWNERS = 8
FRESH_SECONDS = 1.0
"""Time (seconds) for which an owner that was read is used again: a gang's pods come together."""
READY_SECONDS = 10.0
"""Maximum time (seconds) to wait for the declarations: without the right to read them, they never come."""
_REMEMBERED = 512
GANG_LABEL = "grove.io/podgang"
"""Label of a pod of Grove: its PodGang, which tells the size of the gang and owns no pods."""
_GANG = {"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang"}


class _Meta(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Names(msgspec.Struct):
    plural: str = ""
    kind: str = ""


class _Spec(msgspec.Struct):
    group: str = ""
    scope: str = ""
    names: _Names = msgspec.field(default_factory=_Names)


class Declaration(msgspec.Struct):
    """The part of a CustomResourceDefinition that grouping reads."""

    metadata: _Meta
    spec: _Spec


class OwnerReader:
    """Reader of owner chains. A kind is known if Windlass or a CustomResourceDefinition declares it."""

    def __init__(self, client: Client, informers: Informers, clock: Clock | None) -> None:
        self._client = client
        self._clock = clock
        self._definitions: Informer[Declaration] = informers.informer(
            CUSTOM_RESOURCE_DEFINITIONS, decode=Declaration, later=True
        )
        self._asked_at: float | None = None
        self._read: OrderedDict[str, tuple[float, Json]] = OrderedDict()

    @property
    def ready(self) -> bool:
        """Return whether the declarations are known, or have not come for :data:`READY_SECONDS`."""
        if self._definitions.synced or self._clock is None:
            return True
        now = self._clock.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        return now - self._asked_at >= READY_SECONDS

    def rules(self) -> tuple[dict[tuple[str, str], OwnerRule], list[str]]:
        """Return the declared rules by (group, kind), and what cannot be read in them."""
        rules: dict[tuple[str, str], OwnerRule] = {}
        problems: list[str] = []
        for found in self._definitions.items.values():
            try:
                rule = declared(found.metadata.annotations or {})
            except paths.OwnerPathError as error:
                problems.append(f"CustomResourceDefinition {found.metadata.name}: {error}")
                continue
            if rule is not None:
                rules[found.spec.group, found.spec.names.kind] = rule
        return rules, problems

    async def owners(self, obj: Mapping[str, Any]) -> tuple[list[Json], list[str]]:
        """Return the controllers above an object, the nearest first, and what could not be read.

        An owner that cannot be read is known by its reference alone, and ends the chain.
        """
        namespace = obj["metadata"].get("namespace", "")
        chain: list[Json] = []
        problems: list[str] = []
        reference = controller_of(obj)
        while reference is not None and len(chain) < MAX_OWNERS:
            owner, problem = await self._owner(reference, namespace)
            if problem:
                problems.append(problem)
            chain.append(owner)
            reference = controller_of(owner)
        if gang := (obj["metadata"].get("labels") or {}).get(GANG_LABEL):
            owner, problem = await self._owner({**_GANG, "name": gang, "uid": ""}, namespace)
            problems += [problem] if problem else []
            chain.append(owner)
        return chain, problems

    async def _owner(self, reference: Json, namespace: str) -> tuple[Json, str]:
        uid = reference["uid"] or f"{reference['kind']} {namespace}/{reference['name']}"
        known = self._read.get(uid)
        now = self._clock.monotonic() if self._clock is not None else 0.0
        if self._clock is not None and known is not None and now - known[0] < FRESH_SECONDS:
            return known[1], ""
        stub: Json = {
            "apiVersion": reference["apiVersion"],
            "kind": reference["kind"],
            "metadata": {"name": reference["name"], "uid": reference["uid"]},
        }
        name = f"{reference['kind']} {reference['name']}"
        resource = self._resource(reference)
        if resource is None:
            return (
                stub,
                f"{name} cannot be read: no CustomResourceDefinition declares {reference['apiVersion']}",
            )
        try:
            owner = await self._client.find(
                resource, reference["name"], namespace if resource.namespaced else None
            )
        except StatusError as error:
            if error.code != 403:
                raise
            return stub, f"{name} cannot be read: add {resource.qualified} to grouping.owners of the chart"
        if owner is None or reference["uid"] not in ("", owner["metadata"].get("uid")):
            return stub, ""
        owner.setdefault("apiVersion", reference["apiVersion"])
        owner.setdefault("kind", reference["kind"])
        self._read[uid] = (now, owner)
        if len(self._read) > _REMEMBERED:
            self._read.popitem(last=False)
        return owner, ""

    def forget(self, uids: Sequence[str]) -> None:
        """Read these owners again."""
        for uid in uids:
            self._read.pop(uid, None)

    def _resource(self, reference: Json) -> Resource | None:
        found = by_kind(reference["apiVersion"], reference["kind"])
        if found is not None:
            return found
        group, _, version = str(reference["apiVersion"]).rpartition("/")
        for one in self._definitions.items.values():
            if (one.spec.group, one.spec.names.kind) == (group, reference["kind"]):
                plural, namespaced = one.spec.names.plural, one.spec.scope == "Namespaced"
                return Resource(group, version, plural, reference["kind"], namespaced, custom=True)
        return None
