"""What commands import before they know what they are asked: it costs every user at every start."""

from __future__ import annotations

import subprocess
import sys

_COMMANDS = ("ps", "queue", "gpu", "node", "show", "apply", "doctor", "explain", "status")
_PARTS = ("queuegaps", "cardtable", "claimbooks", "draining", "applying", "checks", "clusterchecks")
_CODE = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
    heavy = {"numpy", "asyncio", "windlass.engine.core"} & sys.modules.keys()
    if heavy:
        sys.exit(f"{name} imports {heavy}")
"""


def test_small_tables_need_neither_numpy_nor_the_engine():
    modules = [f"windlass.cli.commands.{name}" for name in _COMMANDS]
    modules += [f"windlass.cli.{name}" for name in _PARTS]
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *modules], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
