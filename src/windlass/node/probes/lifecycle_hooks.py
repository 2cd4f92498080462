"""Lifecycle hooks of one pod's containers (``postStart``, ``preStop``, and ``checkpoint``).

Order and event texts are the kubelet's. The checkpoint hook is Windlass' own and runs
before preStop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from windlass.kits.clock import Clock
from windlass.node.lifecycle.events import RecordEvent
from windlass.node.probes.handlers import ActionError
from windlass.node.runtime.runner import Handle

MIN_GRACE_SECONDS = 2.0
"""Minimum time in seconds between SIGTERM and SIGKILL, even after a long preStop hook."""

_BEFORE_STOP = ("checkpoint", "preStop")
"""Hooks that run before SIGTERM, in this order."""
RunHook = Callable[[str, str], Coroutine[Any, Any, None]]
"""Runs a hook of a container. Raises :class:`ActionError`."""


class LifecycleHooks:
    """Lifecycle hooks of one pod. ``hooks``: container → names of its hooks."""

    def __init__(
        self,
        hooks: Mapping[str, frozenset[str]],
        clock: Clock,
        run_hook: RunHook,
        *,
        record_event: Callable[[RecordEvent], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        signalled: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``signalled``: called with a container that is sent SIGTERM."""
        self._signalled = signalled
        self._hooks = hooks
        self._clock = clock
        self._run_hook = run_hook
        self._record_event = record_event
        self._spawn = spawn
        self._running: set[str] = set()
        self._post_start: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, _Stopping] = {}

    def has(self, container: str, hook: str) -> bool:
        return hook in self._hooks.get(container, ())

    def command_started(self, container: str) -> None:
        """Allow hooks of this container: its command is running."""
        self._running.add(container)

    def ended(self, container: str) -> None:
        """Cancel running hooks: the container's command has ended."""
        self._running.discard(container)
        stopping = self._stopping.pop(container, None)
        if stopping is not None:
            stopping.task.cancel()
        if (task := self._post_start.pop(container, None)) is not None:
            task.cancel()

    async def post_start(self, container: str) -> bool:
        """Run the hook. Return False if it failed or the container ended meanwhile."""
        task = self._post_start[container] = asyncio.ensure_future(self._run_hook(container, "postStart"))
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
        self._post_start.pop(container, None)
        if not task.cancelled() and task.exception() is None:
            return True
        if not task.cancelled() and not isinstance(task.exception(), ActionError):
            task.result()
        # Its output is not published, as in the kubelet: it may contain secrets.
        self._record_event(RecordEvent("Warning", "FailedPostStartHook", "PostStartHook failed"))
        return False

    def stop(self, container: str, handle: Handle, grace_seconds: float) -> None:
        """Stop the container within the grace period: first its hooks, then SIGTERM.

        A later call can only shorten the grace period.
        """
        stopping = self._stopping.get(container)
        if stopping is not None and not stopping.hook_done:
            stopping.shorten(grace_seconds)
        elif stopping is not None or grace_seconds <= 0 or not self._runs_pre_stop(container):
            self._send_stop(container, handle, grace_seconds)
        else:
            stopping = self._stopping[container] = _Stopping(self._clock, grace_seconds)
            stopping.task = self._spawn(self._before_stop(container, handle, stopping))

    def _send_stop(self, container: str, handle: Handle, grace_seconds: float) -> None:
        if container in self._running:
            self._signalled(container)
        handle.stop(grace_seconds)

    def _runs_pre_stop(self, container: str) -> bool:
        return container in self._running and any(self.has(container, hook) for hook in _BEFORE_STOP)

    async def _before_stop(self, container: str, handle: Handle, stopping: _Stopping) -> None:
        left = stopping.grace_seconds
        for name in _BEFORE_STOP:
            if not self.has(container, name):
                continue
            hook = asyncio.ensure_future(self._run_hook(container, name))
            try:
                left = await stopping.wait(hook)
            finally:
                hook.cancel()
            if not hook.done() or hook.cancelled() or hook.exception() is not None:
                self._record_event(_failure(name, hook))
        stopping.hook_done = True
        self._send_stop(
            container, handle, max(left, MIN_GRACE_SECONDS) if stopping.grace_seconds > 0 else 0.0
        )


def _failure(name: str, hook: asyncio.Future[None]) -> RecordEvent:
    if name == "preStop":
        return RecordEvent("Warning", "FailedPreStopHook", "PreStopHook failed")
    why = str(hook.exception()) if hook.done() and not hook.cancelled() else "it did not end in time"
    return RecordEvent("Warning", "FailedCheckpointHook", f"the checkpoint hook failed: {why}")


class _Stopping:
    """Stop of one container."""

    task: asyncio.Task[None]

    def __init__(self, clock: Clock, grace_seconds: float) -> None:
        self._clock = clock
        self.grace_seconds = grace_seconds
        self._due = clock.monotonic() + grace_seconds
        self._changed = asyncio.Event()
        self.hook_done = False
        """True after the hook has ended and SIGTERM was sent."""

    def shorten(self, grace_seconds: float) -> None:
        due = self._clock.monotonic() + grace_seconds
        if due < self._due:
            self._due, self.grace_seconds = due, grace_seconds
            self._changed.set()

    async def wait(self, hook: asyncio.Future[None]) -> float:
        """Wait until the hook is done or the grace period is over. Return the rest of the grace period."""
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
