"""What a test left behind: threads, child processes, file descriptors."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class Snapshot:
    """The threads, children and descriptors of this process at one moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    descriptors: frozenset[tuple[int, str]]

    @staticmethod
    def take() -> Snapshot:
        return Snapshot(
            frozenset(threading.enumerate()), frozenset(_children()), frozenset(_descriptors().items())
        )

    def leaked(self, patience_seconds: float = 30.0) -> list[str]:
        """What is there now and was not then; waits a moment for what is about to end."""
        deadline = time.monotonic() + patience_seconds
        while True:
            gc.collect()
            now = Snapshot.take()
            left = [f"thread {thread.name}" for thread in now.threads - self.threads]
            left += [f"process {pid}" for pid in now.children - self.children]
            left += [
                f"descriptor {number} → {target}" for number, target in now.descriptors - self.descriptors
            ]
            if not left or time.monotonic() > deadline:
                return sorted(left)
            time.sleep(0.02)
