"""Effects of a reconciliation, as plain data.

A ``reconcile`` function is pure: it maps an object and its observed surroundings to
:class:`Effects`, which ``controllers.apply_effects`` executes. Stages run in order, and
the actions of one stage run concurrently. After a failed stage no other stage is tried,
and the object is reconciled again later. A reconciliation must therefore be safe to
repeat after a stop between any two actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.api.owner_references import owner_reference
from windlass.api.resources import PODS, Resource
from windlass.api.views import Pod
from windlass.client.event_correlator import ObjectRef

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Create:
    """Create ``object``. An existing object counts as created if it has the same controller."""

    resource: Resource
    object: JsonObject
    event: EmitEvent | None = None
    """Event that is emitted once the action has succeeded."""


@dataclass(frozen=True, slots=True)
class Update:
    """Replace ``object``. Its resourceVersion makes a concurrent write a conflict."""

    resource: Resource
    object: JsonObject
    subresource: str | None = None
    event: EmitEvent | None = None
    """As of :class:`Create`."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-patch one object.

    With ``uid`` or ``resource_version`` only that incarnation or version is patched.
    """

    resource: Resource
    name: str
    patch: JsonObject
    namespace: str | None = None
    subresource: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    event: EmitEvent | None = None
    """As of :class:`Create`."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one incarnation (``uid``). An object that is gone counts as deleted.

    With ``resource_version`` a write in the meantime is a conflict.
    """

    resource: Resource
    name: str
    namespace: str | None = None
    uid: str | None = None
    propagation: str | None = None
    grace_seconds: int | None = None
    resource_version: str | None = None
    event: EmitEvent | None = None
    """As of :class:`Create`."""


Action = Create | Update | Patch | Delete


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Event. ``type``: Normal or Warning. ``lasting``: it describes a state and is emitted once."""

    about: ObjectRef
    type: str
    reason: str
    message: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """Result of a reconciliation.

    ``requeue_after``: seconds until the next reconciliation; ``None``: only after a
        change.
    ``about``: object that gets an event if the server rejects an action.
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
    """Builder of :class:`Effects`."""

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

    def requeue(self, seconds: float) -> None:
        """Reconcile again after ``seconds`` at the latest. The earliest of several calls counts."""
        seconds = max(0.0, seconds)
        self.requeue_after = seconds if self.requeue_after is None else min(self.requeue_after, seconds)

    def done(self) -> Effects:
        return Effects(tuple(self.stages), tuple(self.events), self.requeue_after, self.about)


def reference(resource: Resource, obj: Mapping[str, Any]) -> ObjectRef:
    """Return the event target of a raw object. Its kind may be absent, as in lists."""
    metadata = obj["metadata"]
    return ObjectRef(
        resource.api_version,
        resource.kind,
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        metadata.get("resourceVersion", ""),
    )


def pod_reference(pod: Pod) -> ObjectRef:
    """Return the event target of a pod."""
    return ObjectRef(PODS.api_version, PODS.kind, pod.namespace, pod.name, pod.uid, pod.resource_version)


def controller_reference(resource: Resource, obj: Mapping[str, Any]) -> JsonObject:
    """``metav1.NewControllerRef``: the ownerReference that a child of ``obj`` carries."""
    metadata = obj["metadata"]
    return owner_reference(resource, metadata["name"], metadata["uid"])


def controller_of(obj: Mapping[str, Any]) -> JsonObject | None:
    """The ownerReference with ``controller: true``, if there is one."""
    for owner in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    return None
