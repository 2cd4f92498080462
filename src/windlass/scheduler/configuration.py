"""Configuration of the scheduler: a file or Volcano's ConfigMap, followed while it runs.

An invalid file at the start is an error. Later it is only reported, and the
configuration in force stays. The text of the file is compared every few seconds: a
mounted ConfigMap changes by renamed directories, which no file event shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from prometheus_client import CollectorRegistry

from windlass.api import resources, text_files
from windlass.api.errors import WindlassError
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock
from windlass.model import scheduler_config
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.scheduler_config import CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE, ConfigError, Parsed
from windlass.observe import logs
from windlass.observe.metrics import MetricFactory
from windlass.spi.configuration import SchedulerConfig

CONFIG_ERROR = "WL-CONFIG-465"
_CODES = text_files.FileCodes(CONFIG_ERROR)
CHECK_SECONDS = 2.0
"""Interval in seconds between checks of the file."""
Adopt = Callable[[SchedulerConfig], None]
log = logs.get("scheduler")


def config_error(path: str, error: ConfigError) -> WindlassError:
    """Return the error with file, line, field and remedy."""
    place = f"{path}:{error.line}" if error.line else path
    what = f"{error.field}: {error.message}" if error.field else error.message
    return WindlassError(CONFIG_ERROR, f"{place}: {what}", remedies=(error.remedy,) if error.remedy else ())


def read_text(path: str) -> str:
    """Return the text of a file. Raises :class:`WindlassError`."""
    return text_files.read_text(path, _CODES)


def parse(text: str, path: str) -> Parsed:
    """Return the configuration in ``text``, after checking all its names.

    Raises :class:`WindlassError`.
    """
    try:
        parsed = scheduler_config.parse(text)
    except ConfigError as error:
        raise config_error(path, error) from error
    try:
        make_engine(parsed.config, lambda _text: None)
    except ValueError as error:
        line = parsed.line_of("configurations")
        raise config_error(path, ConfigError(str(error), line=line, field="configurations")) from error
    return parsed


class ConfigFile:
    """Follows a configuration file."""

    def __init__(self, path: str, clock: Clock, registry: CollectorRegistry | None = None) -> None:
        family = MetricFactory(registry or CollectorRegistry(), "configuration")
        self._good = family.gauge(
            "last_reload_successful", "1 while the scheduler configuration is in force, 0: it is invalid"
        )
        self._good.set(1)
        self._path = path
        self._clock = clock
        self._text = ""
        self.fault: WindlassError | None = None
        """Error of the current file. ``None``: it is in force."""

    def start(self) -> SchedulerConfig:
        """Return the initial configuration. Raises :class:`WindlassError`."""
        self._text = read_text(self._path)
        parsed = parse(self._text, self._path)
        self._log_notes(parsed)
        return parsed.config

    async def run(self, adopt: Adopt) -> None:
        """Check the file until cancelled.

        ``adopt`` is called with every new configuration that is valid.
        """
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self.check(adopt)

    def check(self, adopt: Adopt) -> None:
        """Read the file, and adopt it if it has changed."""
        try:
            text = read_text(self._path)
            if text == self._text and (self.fault is None or self.fault.code == CONFIG_ERROR):
                return
            self._text = text
            parsed = parse(text, self._path)
        except WindlassError as error:
            if self.fault is None or self.fault.message != error.message:
                remedy = error.remedies[0] if error.remedies else ""
                log.error(
                    "invalid configuration; the one before stays in force", why=error.message, remedy=remedy
                )
            self.fault = error
            self._good.set(0)
            return
        self.fault = None
        self._good.set(1)
        self._log_notes(parsed)
        log.info("configuration in force", file=self._path, actions=",".join(parsed.config.actions))
        adopt(parsed.config)

    def _log_notes(self, parsed: Parsed) -> None:
        for note in parsed.notes:
            log.warning("configuration", file=self._path, note=note)


class ConfigMapView(msgspec.Struct, frozen=True, gc=False):
    """Partial view of a ConfigMap."""

    namespace: str
    name: str
    uid: str
    data: Mapping[str, str]


class _MetaWire(msgspec.Struct, gc=False):
    name: str
    namespace: str = ""
    uid: str = ""


class _ConfigMapWire(msgspec.Struct, gc=False):
    metadata: _MetaWire
    data: dict[str, str] | None = None


_config_map_decoder = msgspec.json.Decoder(_ConfigMapWire)


def decode_config_map(raw: bytes | msgspec.Raw) -> ConfigMapView:
    """Decode a ConfigMap. Raises ``msgspec.DecodeError``."""
    wire = _config_map_decoder.decode(raw)
    return ConfigMapView(wire.metadata.namespace, wire.metadata.name, wire.metadata.uid, wire.data or {})


class ConfigMapSource:
    """Follows Volcano's ConfigMap.

    An invalid one is reported as an event on it, and changes nothing. Once it is
    deleted, the default policy is in force.
    """

    def __init__(self, informers: SharedInformers, recorder: EventRecorder, adopt: Adopt) -> None:
        self._recorder = recorder
        self._adopt = adopt
        self._text: str | None = None
        self.informer = informers.informer(
            resources.CONFIG_MAPS,
            namespace=CONFIG_MAP_NAMESPACE,
            fields=f"metadata.name={CONFIG_MAP_NAME}",
            decode=decode_config_map,
        )
        self.informer.add_handler(self._changed, lambda _, new: self._changed(new), self._gone)

    def _changed(self, view: ConfigMapView) -> None:
        ref = ObjectRef("v1", "ConfigMap", view.namespace, view.name, view.uid)
        place = f"ConfigMap {view.namespace}/{view.name}"
        try:
            text = scheduler_config.text_of(view.data)
            if text == self._text:
                return
            self._text = text
            parsed = parse(text, place)
        except ConfigError as error:
            self._reject(ref, config_error(place, error))
            return
        except WindlassError as error:
            self._reject(ref, error)
            return
        for note in parsed.notes:
            self._recorder.event(ref, "Warning", "ConfigurationNote", note)
        log.info("configuration in force", source=place, actions=",".join(parsed.config.actions))
        text = f"the scheduler decides by it from now on: {scheduler_config.described(parsed.config)}"
        self._recorder.event(ref, "Normal", "ConfigurationTakenOver", text)
        self._adopt(parsed.config)

    def _reject(self, ref: ObjectRef, error: WindlassError) -> None:
        log.error("invalid configuration; the one before stays in force", why=error.message)
        remedy = f"; {error.remedies[0]}" if error.remedies else ""
        self._recorder.event(ref, "Warning", "ConfigurationRefused", error.message + remedy)

    def _gone(self, _: ConfigMapView) -> None:
        self._text = None
        log.info("configuration deleted; the default policy is in force")
        self._adopt(SchedulerConfig())
