"""Runtime ``python``: a function for one row, or a class with ``process(rows)``."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from windlass.items.runtimes.base import (
    LeasedRow,
    RowOutcome,
    RuntimeContext,
    SetupError,
    WorkBatch,
    output_row,
)


class ItemTimeout(Exception):
    """An item that took longer than ``items.timeoutSeconds``."""


class PythonRuntime:
    """Calls ``module:function`` with each row, or ``module:Class().process`` with lists of rows.

    A class may have ``setup()`` and ``teardown()``. When ``process`` raises for several
    rows, each of them is processed alone, so that one bad row fails alone.
    """

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._timeout = context.batch.items.timeout_seconds
        self._instance: Any = None
        self._call: Callable[[Any], Any] = lambda row: row
        self._batched = False

    def setup(self) -> None:
        runtime = self._context.batch.runtime
        target = load(runtime.function, runtime.working_dir)
        if inspect.isclass(target):
            try:
                instance: Any = target(**runtime.parameters)
                self._instance = instance
                if hasattr(instance, "setup"):
                    instance.setup()
            except Exception as error:
                traceback.print_exc()
                raise SetupError(f"{runtime.function} cannot be set up: {_words(error)}") from None
            process: Any = getattr(instance, "process", None)
            if not callable(process):
                raise SetupError(f"the class {runtime.function} has no method process(rows)")
            self._call, self._batched = process, True
        elif callable(target):
            self._call = target
        else:
            raise SetupError(f"{runtime.function} is neither a function nor a class")

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        if not self._batched:
            for item in batch.left():
                yield self._one(item, self._call)
            return
        chunk = self._context.batch.runtime.chunk or max(1, len(batch.items))
        items: list[LeasedRow] = []
        for item in batch.left():
            items.append(item)
            if len(items) >= chunk:
                yield from self._many(items)
                items = []
        yield from self._many(items)

    def teardown(self) -> None:
        if self._instance is not None and hasattr(self._instance, "teardown"):
            self._instance.teardown()

    def _one(self, item: LeasedRow, call: Callable[[Any], Any]) -> RowOutcome:
        started = self._context.monotonic()
        try:
            with self._limit(1):
                value = output_row(item.row, call(_input(item)))
        except Exception as error:
            took = self._context.monotonic() - started
            return _failed(item.number, error, took, self._timeout)
        return RowOutcome(item.number, value, self._context.monotonic() - started)

    def _many(self, items: list[LeasedRow]) -> Iterator[RowOutcome]:
        if not items:
            return
        started = self._context.monotonic()
        try:
            with self._limit(len(items)):
                values = list(self._call([_input(item) for item in items]))
            if len(values) != len(items):
                raise ValueError(f"process returned {len(values)} outputs for {len(items)} rows")
        except Exception as error:
            if len(items) == 1:
                took = self._context.monotonic() - started
                yield _failed(items[0].number, error, took, self._timeout)
                return
            for item in items:
                yield from self._many([item])
            return
        each = (self._context.monotonic() - started) / len(items)
        for item, value in zip(items, values, strict=True):
            if isinstance(value, Exception):
                yield _failed(item.number, value, each, self._timeout)
            else:
                yield RowOutcome(item.number, output_row(item.row, value), each)

    @contextmanager
    def _limit(self, items: int) -> Iterator[None]:
        if not self._timeout:
            yield
            return

        def late(signum: int, frame: object) -> None:
            raise ItemTimeout

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, self._timeout * items)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def load(reference: str, folder: str = "") -> Any:
    """Import ``module:function``. Raises :class:`SetupError`."""
    for place in (os.getcwd(), folder):
        if place and place not in sys.path:
            sys.path.insert(0, place)
    module, _, name = reference.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except Exception as error:
        traceback.print_exc()
        raise SetupError(f"{reference} cannot be imported: {_words(error)}") from None
    return value


def _input(item: LeasedRow) -> dict[str, Any]:
    return {**item.row, "prompt": item.prompt} if item.prompt else item.row


def _failed(number: int, error: Exception, seconds: float, timeout: float) -> RowOutcome:
    if isinstance(error, ItemTimeout):
        message = f"the item took longer than items.timeoutSeconds ({timeout:g} s)"
        return RowOutcome(number, None, seconds, "program", "Timeout", message)
    return RowOutcome(number, None, seconds, "program", type(error).__name__, _words(error))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
