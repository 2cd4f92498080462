"""The scheduler's configuration file: read at the start, looked at again while the scheduler runs.

A file that is wrong at the start is an error. Later it is only told: the configuration in force stays.
The file is compared by its text, every few seconds: a mounted ConfigMap changes by renamed folders, which
no single file shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.kits.clock import Clock
from windlass.model import scheduler_config
from windlass.model.scheduler_config import ConfigError, Parsed
from windlass.observe import logs
from windlass.plugins import registry
from windlass.spi.configuration import SchedulerConfig

CONFIG_ERROR = "WL-CONFIG-465"
LOOK_SECONDS = 2.0
log = logs.get("scheduler")


def config_error(path: str, error: ConfigError) -> WindlassError:
    """The error as commands tell it: file, line, field, remedy."""
    where = f"{path}:{error.line}" if error.line else path
    what = f"{error.field}: {error.message}" if error.field else error.message
    return WindlassError(CONFIG_ERROR, f"{where}: {what}", remedies=(error.remedy,) if error.remedy else ())


def read_text(path: str) -> str:
    """Raises :class:`WindlassError` if the file cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WindlassError(
            "WL-USE-400", f"{path} does not exist", evidence=f"looked in {Path.cwd()}"
        ) from None
    except UnicodeDecodeError as error:
        raise WindlassError(CONFIG_ERROR, f"{path} is not text in UTF-8", evidence=str(error)) from error
    except OSError as error:
        raise WindlassError("WL-USE-400", f"{path} cannot be read", evidence=error.strerror or "") from error


def parse(text: str, path: str) -> Parsed:
    """The configuration in ``text``, tried as far as its names go. Raises :class:`WindlassError`."""
    try:
        parsed = scheduler_config.parse(text)
        registry.build(parsed.config, lambda _text: None)
    except ConfigError as error:
        raise config_error(path, error) from error
    except ValueError as error:
        raise config_error(path, ConfigError(str(error))) from error
    return parsed


class ConfigFile:
    """Follows a file. ``adopt`` is called with every new configuration, never with a wrong one."""

    def __init__(self, path: str, adopt: Callable[[SchedulerConfig], None], clock: Clock) -> None:
        self._path = path
        self._adopt = adopt
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

    async def run(self) -> None:
        """Look at the file until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Take in the file if it has changed."""
        try:
            text = read_text(self._path)
            if text == self._text:
                return
            self._text = text
            parsed = parse(text, self._path)
        except WindlassError as error:
            if self.fault is None or self.fault.message != error.message:
                log.error("configuration refused; the one before stays in force", why=error.message)
            self.fault = error
            return
        self.fault = None
        self._tell(parsed)
        log.info("configuration taken over", file=self._path, actions=",".join(parsed.config.actions))
        self._adopt(parsed.config)

    def _tell(self, parsed: Parsed) -> None:
        for note in parsed.notes:
            log.warning("configuration", file=self._path, note=note)
