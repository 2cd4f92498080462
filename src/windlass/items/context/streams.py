"""Names of the streams of rows: by a field or an expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.media.segments import MediaTimeError, times_of
from windlass.items.context.spec import DEFAULT_KEY, FIELD, ContextSpec
from windlass.items.expressions import ExpressionError, compile_expression

DEFAULT_STREAM = "default"
"""Stream of rows without a field ``stream``, if ``contextCache.key`` is not set."""


class StreamNames:
    """Reads the stream of a row. Raises :class:`ExpressionError` for a key that is not valid."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._evaluate = compile_expression(key)

    def of(self, row: Mapping[str, Any]) -> str:
        """Return the stream of a row. Raises :class:`MediaTimeError` if the row has none."""
        if self._key == DEFAULT_KEY and DEFAULT_KEY not in row:
            return DEFAULT_STREAM
        try:
            value = self._evaluate(row)
        except ExpressionError as error:
            raise MediaTimeError(f"spec.contextCache.key {self._key!r}: {error}") from None
        if value in (None, ""):
            raise MediaTimeError(f"spec.contextCache.key {self._key!r} is empty in this row")
        return str(value)


class SegmentCheck:
    """Check of the rows of a batch with contexts, at their admission."""

    def __init__(self, rule: ContextSpec) -> None:
        self._names = StreamNames(rule.key)

    def error(self, row: Mapping[str, Any]) -> str:
        """Return what is wrong with a row; empty if nothing is."""
        if FIELD in row:
            return f"the row has a field {FIELD!r}, which spec.contextCache sets: give it another name"
        try:
            times_of(row)
            self._names.of(row)
        except MediaTimeError as error:
            return str(error)
        return ""
