"""Follower of a process's settings file, such as a mounted ConfigMap.

An invalid file changes nothing: the current settings stay in force. The log, an event
on the process's own pod (given by ``POD_NAME`` and ``POD_UID``) and
``windlass_settings_…`` report file, field, reason and remedy. The live fields of a
valid file take effect at once. Fields that need a restart are named in the log.
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
"""Callback with all values in force and the paths of the live ones that changed."""


class SettingsEventSink(Protocol):
    def event(self, ref: ObjectRef, type: str, reason: str, message: str) -> None: ...


def own_pod(environment: Mapping[str, str]) -> ObjectRef | None:
    """Return the pod of this process, as given by the downward API."""
    name, uid = environment.get("POD_NAME", ""), environment.get("POD_UID", "")
    namespace = environment.get("POD_NAMESPACE", "")
    return ObjectRef("v1", "Pod", namespace, name, uid) if name and uid and namespace else None


class SettingsFile:
    """Settings file with its current state.

    :param text: content at the start
    :param flags: values of the command line, which take precedence
    """

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
        """Error in the current content of the file."""
        family = MetricFactory(registry, "settings")
        self._good = family.gauge(
            "last_reload_successful", "1 while the settings file is in force, 0: it is invalid"
        )
        self._reloads = family.counter("reloads_total", "New contents of the settings file", ["result"])
        self._good.set(1)

    def _all(self, file_values: Values) -> dict[str, Setting]:
        return {**settings.defaults(), **file_values, **self._flags}

    async def run(self, apply: Apply, recorder: SettingsEventSink, pod: ObjectRef | None) -> None:
        """Check the file periodically until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self.check(apply, recorder, pod)

    def check(self, apply: Apply, recorder: SettingsEventSink, pod: ObjectRef | None) -> None:
        """Read the file and apply it if it has changed."""
        try:
            text = read_text(self._path)
            if text == self._text and (self.fault is None or self.fault.code == settings.REFUSED):
                return
            self._text = text
            wanted = self._all(settings.read(text, self._path))
        except WindlassError as error:
            self._reject(error, recorder, pod)
            return
        self.fault = None
        self._good.set(1)
        self._reloads.labels("taken over").inc()
        self._apply_values(wanted, apply)

    def _apply_values(self, wanted: Values, apply: Apply) -> None:
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
        new_values = {path: settings.shown(values[path]) for path in sorted(changed)}
        log.info("settings taken over", file=self._path, **new_values)
        if waiting:
            log.warning("settings that need a restart", file=self._path, fields=",".join(waiting))
        if changed:
            apply(values, frozenset(changed))

    def _reject(self, error: WindlassError, recorder: SettingsEventSink, pod: ObjectRef | None) -> None:
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
