"""Lifecycle hooks of one pod's containers: ``postStart`` and ``preStop``, with the kubelet's order and texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from windlass.kits.clock import Clock
from windlass.node.lifecycle.events import Note
from windlass.node.probes.handlers import ActionError
from windlass.node.runtime.runner import Handle

LEAST_GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL, also when the preStop hook has taken all of the grace."""

Carry = Callable[[str, str], Coroutine[Any, Any, None]]
"""Carries out a container's hook; raises :class:`ActionError`."""


class LifecycleHooks:
    """``hooks``: container → the names of its hooks."""

    def __init__(
        self,
        hooks: Mapping[str, frozenset[str]],
        clock: Clock,
        carry: Carry,
        *,
        note: Callable[[Note], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._hooks = hooks
        self._clock = clock
        self._carry = carry
        self._note = note
        self._spawn = spawn
        self._running: set[str] = set()
        self._post_start: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, _Stopping] = {}

    def has(self, container: str, hook: str) -> bool:
        return hook in self._hooks.get(container, ())

    def runs(self, container: str) -> None:
        """Its command runs: from now on there is something that a hook can be about."""
        self._running.add(container)

    def ended(self, container: str) -> None:
        """Its command has ended: hooks that are under way are given up."""
        self._running.discard(container)
        stopping = self._stopping.pop(container, None)
        if stopping is not None:
            stopping.task.cancel()
        if (task := self._post_start.pop(container, None)) is not None:
            task.cancel()

    async def post_start(self, container: str) -> bool:
        """Return whether the hook was carried out; False, too, when the container ended meanwhile."""
        task = self._post_start[container] = asyncio.ensure_future(self._carry(container, "postStart"))
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
        self._post_start.pop(container, None)
        if not task.cancelled() and task.exception() is None:
            return True
        if not task.cancelled() and not isinstance(task.exception(), ActionError):
            task.result()
        # What it said is not told, as in the kubelet: it may hold secrets.
        self._note(Note("Warning", "FailedPostStartHook", "PostStartHook failed"))
        return False

    def stop(self, container: str, handle: Handle, grace_seconds: float) -> None:
        """Have the container end within the grace: first its preStop hook, then SIGTERM. A later call may only
        shorten the grace."""
        stopping = self._stopping.get(container)
        if stopping is not None and not stopping.over:
            stopping.sooner(grace_seconds)
        elif stopping is not None or grace_seconds <= 0 or not self._first(container):
            handle.stop(grace_seconds)
        else:
            stopping = self._stopping[container] = _Stopping(self._clock, grace_seconds)
            stopping.task = self._spawn(self._pre_stop(container, handle, stopping))

    def _first(self, container: str) -> bool:
        return container in self._running and self.has(container, "preStop")

    async def _pre_stop(self, container: str, handle: Handle, stopping: _Stopping) -> None:
        hook = asyncio.ensure_future(self._carry(container, "preStop"))
        try:
            left = await stopping.wait(hook)
        finally:
            hook.cancel()
        if not hook.done() or hook.cancelled() or hook.exception() is not None:
            self._note(Note("Warning", "FailedPreStopHook", "PreStopHook failed"))
        stopping.over = True
        handle.stop(max(left, LEAST_GRACE_SECONDS) if stopping.grace_seconds > 0 else 0.0)


class _Stopping:
    """One container on its way out."""

    task: asyncio.Task[None]

    def __init__(self, clock: Clock, grace_seconds: float) -> None:
        self._clock = clock
        self.grace_seconds = grace_seconds
        self._due = clock.monotonic() + grace_seconds
        self._changed = asyncio.Event()
        self.over = False
        """The hook is; SIGTERM has been sent."""

    def sooner(self, grace_seconds: float) -> None:
        due = self._clock.monotonic() + grace_seconds
        if due < self._due:
            self._due, self.grace_seconds = due, grace_seconds
            self._changed.set()

    async def wait(self, hook: asyncio.Future[None]) -> float:
        """Until the hook is done or the grace is over; what is left of the grace then."""
        while not hook.done() and (left := self._due - self._clock.monotonic()) > 0:
            self._changed.clear()
            pause = asyncio.ensure_future(self._clock.sleep(left))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((hook, pause, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                changed.cancel()
        return max(0.0, self._due - self._clock.monotonic())
