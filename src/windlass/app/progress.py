"""Progress of the supervisor: JSON lines for the starting process, or text for a user."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Any, Protocol

from windlass.api.errors import WindlassError
from windlass.kits.state import StateFolder

WARNING = "Warning: "
"""Prefix of a phase that ``windlass up --detach`` shows as well."""


def tell(error: WindlassError, *, as_json: bool = False) -> None:
    """Print an error to standard error, in the common form of all commands."""
    if as_json:
        print(json.dumps(error.as_dict()), file=sys.stderr)
        return
    print(f"error[{error.code}]: {error.message}", file=sys.stderr)
    if error.evidence:
        print(f"why: {error.evidence}", file=sys.stderr)
    for remedy in error.remedies:
        print(f"try: {remedy}", file=sys.stderr)


class ProgressReporter(Protocol):
    """Progress of the start. ``ready`` or ``error`` is called at most once."""

    def phase(self, text: str) -> None: ...

    def ready(self, record: dict[str, Any]) -> None: ...

    def error(self, error: WindlassError) -> None: ...

    def close(self) -> None: ...


class PipeReporter:
    """Writer of ``{"phase": …}``, ``{"ready": …}`` or ``{"error": …}``.

    A closed reader is not an error.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def _write(self, record: dict[str, Any]) -> None:
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, json.dumps(record).encode() + b"\n")
        except BrokenPipeError:
            self.close()

    def phase(self, text: str) -> None:
        self._write({"phase": text})

    def ready(self, record: dict[str, Any]) -> None:
        self._write({"ready": record})
        self.close()

    def error(self, error: WindlassError) -> None:
        self._write({"error": error.as_dict()})
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class TextReporter:
    """Writer of text for ``windlass up`` in the foreground."""

    def phase(self, text: str) -> None:
        print(text, flush=True)

    def ready(self, record: dict[str, Any]) -> None:
        already = bool(record.get("already"))
        state = f"already running (pid {record['pid']})" if already else "ready"
        print(f"windlass {record['version']} is {state} on {record['url']} (node {record['node']})")
        print(f"kubeconfig: {record['kubeconfig']}")
        if already:
            state = os.path.dirname(record["kubeconfig"])
            flags = "" if state == str(StateFolder.locate().path) else f"--state {shlex.quote(state)} "
            print(f"windlass {flags}down stops it with everything that it runs.", flush=True)
            return
        print("Ctrl-C stops it with everything that it runs.", flush=True)

    def error(self, error: WindlassError) -> None:
        tell(error)

    def close(self) -> None:
        sys.stdout.flush()
