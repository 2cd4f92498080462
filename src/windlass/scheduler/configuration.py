"""The scheduler's configuration file: read at the start, looked at again while the scheduler runs.

A file that is wrong at the start is an error. Later it is only told: the configuration in force stays.
The file is compared by its text, every few seconds: a mounted ConfigMap changes by renamed folders, which
no single file shows.
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
LOOK_SECONDS = 2.0
Adopt = Callable[[SchedulerConfig], None]
log = logs.get("scheduler")


def config_error(path: str, error: ConfigError) -> WindlassError:
    """The error as commands tell it: file, line, field, remedy."""
    where = f"{path}:{error.line}" if error.line else path
    what = f"{error.field}: {error.message}" if error.field else error.message
    return WindlassError(CONFIG_ERROR, f"{where}: {what}", remedies=(error.remedy,) if error.remedy else ())


def read_text(path: str) -> str:
    """Raises :class:`WindlassError` if the file cannot be read."""
    return text_files.read_text(path, _CODES)


def parse(text: str, path: str) -> Parsed:
    """The configuration in ``text``, tried as far as its names go. Raises :class:`WindlassError`."""
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
    """Follows a file."""

    def __init__(self, path: str, clock: Clock, registry: CollectorRegistry | None = None) -> None:
        family = MetricFactory(registry or CollectorRegistry(), "configuration")
        self._good = family.gauge(
            "last_reload_successful", "1 while the scheduler configuration is in force, 0: it is wrong"
        )
        self._good.set(1)
        self._path = path
        self._clock = clock
        self._text = ""
        self.fault: WindlassError | None = None
        """What is wrong with the file as it is now; ``None`` if it is in force."""

    def start(self) -> SchedulerConfig:
        """The configuration to begin with. Raises :class:`WindlassError`."""
        self._text = read_text(self._path)
        parsed = parse(self._text, self._path)
        self._tell(parsed)
        return parsed.config

    async def run(self, adopt: Adopt) -> None:
        """Look at the file until cancelled. ``adopt`` is called with every new configuration, never with a
        wrong one."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self.look(adopt)

    def look(self, adopt: Adopt) -> None:
        """Take in the file if it has changed."""
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
                    "configuration refused; the one before stays in force", why=error.message, remedy=remedy
                )
            self.fault = error
            self._good.set(0)
            return
        self.fault = None
        self._good.set(1)
        self._tell(parsed)
        log.info("configuration taken over", file=self._path, actions=",".join(parsed.config.actions))
        adopt(parsed.config)

    def _tell(self, parsed: Parsed) -> None:
        for note in parsed.notes:
            log.warning("configuration", file=self._path, note=note)


class ConfigMapView(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap as far as a configuration may stand in it."""

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
    """Raises ``msgspec.DecodeError`` on what is no ConfigMap."""
    wire = _config_map_decoder.decode(raw)
    return ConfigMapView(wire.metadata.namespace, wire.metadata.name, wire.metadata.uid, wire.data or {})


class ConfigMapSource:
    """Follows Volcano's ConfigMap. A wrong one is told as an event on it, and changes nothing; when it is
    deleted, the default policy takes over."""

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
            self._refuse(ref, config_error(place, error))
            return
        except WindlassError as error:
            self._refuse(ref, error)
            return
        for note in parsed.notes:
            self._recorder.event(ref, "Warning", "ConfigurationNote", note)
        log.info("configuration taken over", source=place, actions=",".join(parsed.config.actions))
        told = f"the scheduler decides by it from now on: {scheduler_config.described(parsed.config)}"
        self._recorder.event(ref, "Normal", "ConfigurationTakenOver", told)
        self._adopt(parsed.config)

    def _refuse(self, ref: ObjectRef, error: WindlassError) -> None:
        log.error("configuration refused; the one before stays in force", why=error.message)
        remedy = f"; {error.remedies[0]}" if error.remedies else ""
        self._recorder.event(ref, "Warning", "ConfigurationRefused", error.message + remedy)

    def _gone(self, _: ConfigMapView) -> None:
        self._text = None
        log.info("configuration gone; the default policy takes over")
        self._adopt(SchedulerConfig())
