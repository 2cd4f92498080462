"""Structured logs: one line per record on standard error, ``key=value`` or JSON.

``log = logs.get("scheduler")``; ``log.info("bound", pod="ns/a", node="n1")``. The text
is a constant phrase, and variable parts are fields, so that lines can be searched and
counted.
"""

from __future__ import annotations

import logging
import sys
from typing import IO, Any

import msgspec

from windlass.kits.timestamps import rfc3339_micro

ROOT = "windlass"
LEVELS = ("debug", "info", "warning", "error")
_NEEDS_QUOTES = frozenset(' "=\\')


class Logger:
    """Named logger. Its keyword arguments are fields."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, message: str, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def exception(self, message: str, error: BaseException, **fields: Any) -> None:
        """An error with its traceback."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error(message, extra={"fields": fields}, exc_info=error)

    def _log(self, level: int, message: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"fields": fields})


def get(component: str) -> Logger:
    """The logger of a component: ``scheduler``, ``controllers``, ``node`` …"""
    return Logger(logging.getLogger(f"{ROOT}.{component}"))


def configure(*, style: str = "text", level: str = "info", stream: IO[str] | None = None) -> None:
    """Configure logging of the process. ``style``: text or json.

    Each entry point calls it once; another call replaces the settings. Raises
    ``ValueError`` on another style or level.
    """
    if style not in ("text", "json"):
        raise ValueError(f"log format {style!r} is neither text nor json")
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    root = logging.getLogger(ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False


def in_json() -> bool:
    """Return whether log lines are JSON."""
    return any(isinstance(handler.formatter, _Json) for handler in logging.getLogger(ROOT).handlers)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts = [
            rfc3339_micro(record.created),
            record.levelname.lower(),
            record.name.removeprefix(f"{ROOT}."),
            _quoted(record.getMessage()),
        ]
        parts += [f"{key}={_quoted(str(value))}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": rfc3339_micro(record.created),
            "level": record.levelname.lower(),
            "component": record.name.removeprefix(f"{ROOT}."),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


def _quoted(text: str) -> str:
    if text and text.isprintable() and not _NEEDS_QUOTES.intersection(text):
        return text
    return msgspec.json.encode(text).decode()
