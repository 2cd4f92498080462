"""What a reconciler wants done, as plain data.

A ``step`` is pure: it looks at an object and at what surrounds it and answers with :class:`Effects`.
``controllers.apply_effects`` carries them out. Stages run in order, the actions of one stage side by side;
the first stage with a failure is the last one tried, and the object is looked at again later. A step
must therefore be safe to repeat after a stop between any two actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.api.resources import Resource
from windlass.client.event_correlator import ObjectRef

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Create:
    """Create ``object``. One that is there already counts as created if it has the same controller."""

    resource: Resource
    object: JsonObject


@dataclass(frozen=True, slots=True)
class Update:
    """Replace ``object`` (with its resourceVersion: a conflict means that somebody was faster)."""

    resource: Resource
    object: JsonObject
    subresource: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-patch one object. With ``uid`` or ``resource_version`` it is that incarnation or none."""

    resource: Resource
    name: str
    patch: JsonObject
    namespace: str | None = None
    subresource: str | None = None
    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one incarnation (``uid``). One that is gone counts as deleted. With ``resource_version``: if nobody has
    written on it since (else a conflict)."""

    resource: Resource
    name: str
    namespace: str | None = None
    uid: str | None = None
    propagation: str | None = None
    grace_seconds: int | None = None
    resource_version: str | None = None


Action = Create | Update | Patch | Delete


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """``type`` is Normal or Warning. ``lasting``: it describes how things are, and is told once."""

    about: ObjectRef
    type: str
    reason: str
    message: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """``requeue_after``: look again after so many seconds (None: only when something changes).

    ``about``: the object that is told (by an event) when the server refuses an action.
    """

    stages: tuple[tuple[Action, ...], ...] = ()
    events: tuple[EmitEvent, ...] = ()
    requeue_after: float | None = None
    about: ObjectRef | None = None

    def actions(self) -> Iterable[Action]:
        """All actions in order."""
        return (action for stage in self.stages for action in stage)

    @property
    def creates(self) -> list[Create]:
        return [action for action in self.actions() if isinstance(action, Create)]

    @property
    def updates(self) -> list[Update]:
        return [action for action in self.actions() if isinstance(action, Update)]

    @property
    def patches(self) -> list[Patch]:
        return [action for action in self.actions() if isinstance(action, Patch)]

    @property
    def deletes(self) -> list[Delete]:
        return [action for action in self.actions() if isinstance(action, Delete)]


NOTHING = Effects()


@dataclass(slots=True)
class EffectPlan:
    """Collects effects while a step thinks."""

    stages: list[tuple[Action, ...]] = field(default_factory=list)
    events: list[EmitEvent] = field(default_factory=list)
    requeue_after: float | None = None
    about: ObjectRef | None = None

    def stage(self, *actions: Action) -> None:
        """Add a stage; an empty one is left out."""
        if actions:
            self.stages.append(actions)

    def event(self, event: EmitEvent) -> None:
        self.events.append(event)

    def look_again(self, seconds: float) -> None:
        """At the latest after ``seconds`` (of several wishes the earliest holds)."""
        seconds = max(0.0, seconds)
        self.requeue_after = seconds if self.requeue_after is None else min(self.requeue_after, seconds)

    def done(self) -> Effects:
        return Effects(tuple(self.stages), tuple(self.events), self.requeue_after, self.about)


def reference(resource: Resource, obj: Mapping[str, Any]) -> ObjectRef:
    """The event target for a raw object, whose kind may be left out (as in lists)."""
    metadata = obj["metadata"]
    return ObjectRef(
        resource.api_version,
        resource.kind,
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        metadata.get("resourceVersion", ""),
    )


def controller_reference(resource: Resource, obj: Mapping[str, Any]) -> JsonObject:
    """``metav1.NewControllerRef``: the ownerReference that a child of ``obj`` carries."""
    metadata = obj["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Mapping[str, Any]) -> JsonObject | None:
    """The ownerReference with ``controller: true``, if there is one."""
    for owner in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    return None
