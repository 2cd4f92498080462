"""An attempt of a container in a folder of its own, with real shims."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import start_helper


class Attempt:
    """One attempt in a folder, with a shim or two."""

    def __init__(self, folder: Path, *argv: str, **more: Any) -> None:
        self.folder = folder
        (folder / "root").mkdir(parents=True)
        self.record = {
            "attempt": 0,
            "argv": list(argv),
            "env": {"PATH": os.environ["PATH"]},
            "cwd": "/",
            "log": str(folder / "0.log"),
            "log_max_bytes": 10**7,
            "log_files": 3,
            "grace_seconds": 30,
            "mounts": [],
            "staging": str(folder / "root"),
            **more,
        }
        (folder / attempt_files.SPEC).write_text(json.dumps(self.record))
        self.shims: list[int] = []

    def start(self) -> str:
        """The shim's word: ``s``, ``f``, or nothing when the attempt was claimed."""
        pid, reader = start_helper("windlass.node.runtime.shim", str(self.folder))
        self.shims.append(pid)
        with os.fdopen(reader, "rb") as stream:
            return stream.read().decode()

    def wait(self, seconds: float = 60.0) -> dict[str, Any]:
        self.until(lambda: (self.folder / attempt_files.EXIT).exists(), seconds)
        return attempt_files.read(str(self.folder), attempt_files.EXIT) or {}

    def until(self, condition: Any, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.01)

    def text(self) -> str:
        path = self.folder / "0.log"
        stored = path.read_text() if path.exists() else ""
        lines = stored.rpartition("\n")[0].splitlines()  # the last one may still be written
        return "".join(
            line.split(" ", 3)[3] + ("\n" if line.split(" ", 3)[2] == "F" else "") for line in lines
        )

    @property
    def claim(self) -> dict[str, Any]:
        return attempt_files.read(str(self.folder), attempt_files.CLAIM) or {}

    def close(self) -> None:
        init = attempt_files.read(str(self.folder), attempt_files.PROCESS)
        for pid in self.shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if init and attempt_files.is_running(init):
            with contextlib.suppress(ProcessLookupError):
                os.kill(init["pid"], signal.SIGKILL)
