"""Exceptions of futures."""

from __future__ import annotations

from collections.abc import Sequence


class JobFailed(RuntimeError):
    """A job ended without a result of its function.

    ``name``: the job's. ``exit_status``: of the rank that failed first, ``None`` if no rank has one. ``output``: last
    lines of that rank.
    """

    def __init__(
        self, name: str, message: str, exit_status: int | None = None, output: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.name, self.message, self.exit_status, self.output = name, message, exit_status, tuple(output)

    def __str__(self) -> str:
        if not self.output:
            return self.message
        return self.message + "\nlast output:\n  " + "\n  ".join(self.output)

    def __reduce__(self) -> tuple[type[JobFailed], tuple[object, ...]]:
        return type(self), (self.name, self.message, self.exit_status, self.output)


class JobDeleted(JobFailed):
    """A job was deleted before it had ended."""


class ItemFailed(RuntimeError):
    """A call of ``map`` that failed for good, without an exception of the function at hand.

    ``id``: its row in ``windlass items dead``. ``reason``: such as ``Timeout`` or ``LeaseLost``.
    """

    def __init__(self, id: str, reason: str, message: str, attempts: int = 0) -> None:
        super().__init__(message)
        self.id, self.reason, self.message, self.attempts = id, reason, message, attempts

    def __reduce__(self) -> tuple[type[ItemFailed], tuple[object, ...]]:
        return type(self), (self.id, self.reason, self.message, self.attempts)


class RemoteTraceback(Exception):
    """Cause of an exception of the function: the traceback in the rank that raised it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'
