"""Modules that the supervisor imports for the processes that begin as its copies."""

from __future__ import annotations

import json
import subprocess
import sys

_SHARED = """
import json, sys, threading
from windlass.app.__main__ import import_shared_modules
import_shared_modules()
import windlass.app.supervisor
print(json.dumps([threading.active_count(), sorted(sys.modules)]))
"""
_SERVER = "import json, sys; import windlass.server.main; print(json.dumps([0, sorted(sys.modules)]))"


def _run(code: str) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    threads, modules = json.loads(done.stdout)
    return threads, {name for name in modules if name.startswith("windlass.")}


def test_the_supervisor_can_be_copied_and_imports_little_that_the_server_does_not_need() -> None:
    threads, shared = _run(_SHARED)
    assert threads == 1
    assert not {name for name in shared if name.startswith(("windlass.engine", "windlass.controllers"))}
    surplus = {name for name in shared - _run(_SERVER)[1] if not name.startswith("windlass.app")}
    assert len(surplus) < 40, sorted(surplus)
