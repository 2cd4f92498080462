"""Follows the settings file of a process while it runs, as a mounted ConfigMap changes.

A file that is wrong changes nothing: what is in force stays, and the log, an event on the process's own pod (where
``POD_NAME`` and ``POD_UID`` say which that is) and ``windlass_settings_…`` tell file, field, reason and remedy. Of a
good file the live fields are taken over at once; those that need a restart are named in the log until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry

from windlass.api.errors import WindlassError
from windlass.app import settings
from windlass.app.settings import Setting, Values
from windlass.client.event_correlator import ObjectRef
from windlass.kits.clock import Clock
from windlass.observe import logs
from windlass.observe.metrics import MetricFactory
from windlass.scheduler.configuration import CHECK_SECONDS, read_text

log = logs.get("settings")
Apply = Callable[[Values, frozenset[str]], None]
"""Called with all values in force and the paths of the live ones that changed."""


class SettingsEventSink(Protocol):
    def event(self, ref: ObjectRef, type: str, reason: str, message: str) -> None: ...


def own_pod(environment: Mapping[str, str]) -> ObjectRef | None:
    """The pod that this process runs in, as the downward API tells."""
    name, uid = environment.get("POD_NAME", ""), environment.get("POD_UID", "")
    namespace = environment.get("POD_NAMESPACE", "")
    return ObjectRef("v1", "Pod", namespace, name, uid) if name and uid and namespace else None


class SettingsFile:
    """``text`` is what was read at the start, ``flags`` what the command line says: that always wins."""

    def __init__(
        self, path: str, text: str, flags: Values, role: str, clock: Clock, registry: CollectorRegistry
    ) -> None:
        self._path = path
        self._text = text
        self._flags = flags
        self._role = role
        self._clock = clock
        self._started = self._all(settings.read(text, path))
        self.values: Values = self._started
        self.fault: WindlassError | None = None
        """What is wrong with the file as it is now."""
        family = MetricFactory(registry, "settings")
        self._good = family.gauge(
            "last_reload_successful", "1 while the settings file is in force, 0: it is wrong"
        )
        self._reloads = family.counter("reloads_total", "New contents of the settings file", ["result"])
        self._good.set(1)

    def _all(self, found: Values) -> dict[str, Setting]:
        return {**settings.defaults(), **found, **self._flags}

    async def run(self, apply: Apply, recorder: SettingsEventSink, pod: ObjectRef | None) -> None:
        """Look at the file until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self.look(apply, recorder, pod)

    def look(self, apply: Apply, recorder: SettingsEventSink, pod: ObjectRef | None) -> None:
        """Take in the file if it has changed."""
        try:
            text = read_text(self._path)
            if text == self._text and (self.fault is None or self.fault.code == settings.REFUSED):
                return
            self._text = text
            wanted = self._all(settings.read(text, self._path))
        except WindlassError as error:
            self._refuse(error, recorder, pod)
            return
        self.fault = None
        self._good.set(1)
        self._reloads.labels("taken over").inc()
        self._take(wanted, apply)

    def _take(self, wanted: Values, apply: Apply) -> None:
        changed, waiting = set(), []
        values = dict(self.values)
        for path, field in settings.BY_PATH.items():
            if self._role not in field.roles:
                continue
            if field.live and wanted[path] != self.values[path]:
                changed.add(path)
                values[path] = wanted[path]
            elif not field.live and wanted[path] != self._started[path]:
                waiting.append(path)
        self.values = values
        said = {path: settings.shown(values[path]) for path in sorted(changed)}
        log.info("settings taken over", file=self._path, **said)
        if waiting:
            log.warning("settings that need a restart", file=self._path, fields=",".join(waiting))
        if changed:
            apply(values, frozenset(changed))

    def _refuse(self, error: WindlassError, recorder: SettingsEventSink, pod: ObjectRef | None) -> None:
        if self.fault is not None and self.fault.message == error.message:
            return
        self.fault = error
        self._good.set(0)
        self._reloads.labels("refused").inc()
        remedy = error.remedies[0] if error.remedies else ""
        log.error("settings refused; those before stay in force", why=error.message, remedy=remedy)
        if pod is not None:
            message = f"{error.message}; {remedy}" if remedy else error.message
            recorder.event(pod, "Warning", "SettingsRefused", message)
