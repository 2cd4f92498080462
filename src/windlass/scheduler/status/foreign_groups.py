"""What is written on groups of other APIs than Volcano's: of KAI, of the coscheduling plug-in, of Kubernetes itself.

On the first two stands why they wait; on KAI's the same in KAI's own conditions
(:mod:`windlass.model.groups.kai_conditions`; not while KAI runs beside), and the moments that its policies go by; on
the plug-in's the status, unless somebody else keeps it (:mod:`windlass.model.groups.coscheduling_status`). On
Kubernetes' own stands one condition, and nothing else (:mod:`windlass.model.groups.native_conditions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.recorder import ObjectRef
from windlass.model.cluster import ownership
from windlass.model.cluster.cluster_model import WrittenGroup
from windlass.model.groups import coscheduling_status, kai_conditions, native_conditions, podgroup_status
from windlass.model.groups.member_counts import Members
from windlass.scheduler.status.kai_moments import Moments
from windlass.scheduler.status.writer_context import (
    COUNTS_SECONDS,
    OWN_WRITE_SECONDS,
    StatusWriterContext,
    record,
)


@dataclass(frozen=True, slots=True)
class _Echo:
    status: coscheduling_status.CoschedulingStatus
    at: float


@dataclass(frozen=True, slots=True)
class _ConditionEcho:
    words: tuple[str, str]
    at: float


class ForeignGroups:
    """Keys of the writes are ``group NS/NAME``, as of Volcano's."""

    def __init__(self, context: StatusWriterContext) -> None:
        self._context = context
        self._moments: Moments = {}
        self._echoes: dict[str, _Echo] = {}
        self._condition_echoes: dict[str, _ConditionEcho] = {}

    def look(self, key: str, members: Members, *, waits: bool) -> None:
        """Wish the writing of a group's status where it is another. ``waits``: whether anything of the group does: who
        led before may have ended between the start of one that does not, and the end of what it says."""
        native = self._context.model.native_of(key)
        if native is not None and not waits and self._condition_due(key, native, None) is not None:
            self._context.wish(f"group {key}")
        found = self._context.model.object_of(key)
        if found is None:
            return
        if not waits and names.EXPLANATION in found[1].annotations:
            self._context.wish(f"group {key}", OWN_WRITE_SECONDS)
        if (
            isinstance(found[1], views.KaiPodGroup)
            and not waits
            and self._conditions_due(found[1], None) is not None
        ):
            self._context.wish(f"group {key}")
        if not isinstance(found[1], views.CoschedulingGroup):
            return
        wanted = self._status_due(key, found[1], members)
        if wanted is not None:
            news = wanted.phase != found[1].phase and wanted.phase not in coscheduling_status.ON_THE_WAY
            self._context.wish(f"group {key}", 0.0 if news else COUNTS_SECONDS)

    def moments(self, found: Moments) -> None:
        """Moments that are to stand on groups of KAI."""
        for key, wanted in found.items():
            written = self._context.model.object_of(key)
            if written is None:
                continue
            if any(written[1].annotations.get(name) != text for name, text in wanted.items()):
                self._moments.setdefault(key, {}).update(wanted)
                self._context.wish(f"group {key}")

    def notes(self, key: str) -> dict[str, str | None]:
        """Annotations that are due on a group whose members are about to be bound."""
        found = self._context.model.object_of(key)
        past = {} if found is None else self._context.past_note(key, found[1].annotations)
        return {**self._moments.get(key, {}), **past}

    def gone(self, key: str) -> None:
        """The group and all its pods are gone."""
        self._moments.pop(key, None)
        self._echoes.pop(key, None)
        self._condition_echoes.pop(key, None)

    async def write(self, key: str, told: Explanation | None, blocked: bool) -> None:
        """``told``: why it waits; ``blocked``: its minimum does."""
        native = self._context.model.native_of(key)
        if native is not None:
            await self._write_condition(key, native, told if blocked else None)
        found = self._context.model.object_of(key)
        if found is None:
            return
        resource, view = found
        text = record(told)
        if told is not None and blocked and view.annotations.get(names.EXPLANATION) != text:
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            self._context.recorder.event(ref, "Warning", podgroup_status.UNSCHEDULABLE, told.message)
        if isinstance(view, views.CoschedulingGroup):
            await self._write_status(key, view)
        if key in self._moments:
            await self._write_moments(key, resource, view)
        past = self._context.past_note(key, view.annotations)
        await self._context.annotate(resource, view.namespace, view.name, view.annotations, text, along=past)
        if isinstance(view, views.KaiPodGroup):
            await self._write_conditions(view, told if blocked else None)

    async def _write_condition(self, key: str, view: views.NativeGroup, told: Explanation | None) -> None:
        wanted = self._condition_due(key, view, told)
        if wanted is None:
            return
        resource, patch = resources.NATIVE_POD_GROUPS, {"status": {"conditions": [wanted]}}
        await self._context.client.patch(
            resource, view.name, patch, view.namespace, kind="strategic", subresource="status"
        )
        words = (wanted["status"], wanted["message"])
        self._condition_echoes[key] = _ConditionEcho(words, self._context.clock.monotonic())
        self._context.metrics.writes.labels("podgroup").inc()

    def _condition_due(
        self, key: str, view: views.NativeGroup, told: Explanation | None
    ) -> native_conditions.Condition | None:
        """What is to be written; ``None``: nothing."""
        model = self._context.model
        if not model.known(key):
            return None
        wanted = native_conditions.desired(view, model.members(key), told, self._context.clock.now())
        echo = self._condition_echoes.get(key)
        if wanted is None or echo is None or echo.words != (wanted["status"], wanted["message"]):
            return wanted
        return wanted if self._context.clock.monotonic() - echo.at > OWN_WRITE_SECONDS else None

    async def _write_conditions(self, view: views.KaiPodGroup, told: Explanation | None) -> None:
        wanted = self._conditions_due(view, told)
        if wanted is None:
            return
        resource, status = resources.KAI_POD_GROUPS, {"status": {"schedulingConditions": wanted}}
        await self._context.client.patch(resource, view.name, status, view.namespace, subresource="status")
        self._context.metrics.writes.labels("podgroup").inc()

    def _conditions_due(
        self, view: views.KaiPodGroup, told: Explanation | None
    ) -> list[kai_conditions.Condition] | None:
        """What is to be written; ``None``: nothing."""
        if any(peer.kind == ownership.KAI for peer in self._context.options.beside):
            return None
        return kai_conditions.desired(view, told, self._context.clock.now())

    async def _write_moments(self, key: str, resource: resources.Resource, view: WrittenGroup) -> None:
        moments = self._moments.pop(key)
        changed = {name: at for name, at in moments.items() if view.annotations.get(name) != at}
        if not changed:
            return
        patch = {"metadata": {"annotations": changed}}
        try:
            await self._context.client.patch(resource, view.name, patch, view.namespace)
        except BaseException:
            self._moments[key] = {**moments, **self._moments.get(key, {})}
            raise
        self._context.metrics.writes.labels("moment").inc()

    def _status_due(
        self, key: str, view: views.CoschedulingGroup, members: Members
    ) -> coscheduling_status.CoschedulingStatus | None:
        """The status that is to be written; ``None`` where it stands, or is somebody else's to write."""
        if coscheduling_status.is_managed_by_others(view) or not self._context.model.known(key):
            return None
        wanted = coscheduling_status.desired(view, members, self._context.model.pods_of(key))
        if wanted == coscheduling_status.current(view):
            self._echoes.pop(key, None)
            return None
        echo = self._echoes.get(key)
        if echo is None or echo.status != wanted:
            return wanted
        return wanted if self._context.clock.monotonic() - echo.at > OWN_WRITE_SECONDS else None

    async def _write_status(self, key: str, view: views.CoschedulingGroup) -> None:
        wanted = self._status_due(key, view, self._context.model.members(key))
        if wanted is None:
            return
        resource = resources.COSCHEDULING_POD_GROUPS
        patch = wanted.patch()
        await self._context.client.patch(resource, view.name, patch, view.namespace, subresource="status")
        self._echoes[key] = _Echo(wanted, self._context.clock.monotonic())
        self._context.metrics.writes.labels("podgroup").inc()
