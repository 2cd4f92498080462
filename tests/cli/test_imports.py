"""What commands import before they know what they are asked: it costs every user at every start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

_TABLES = ("ps", "queue", "gpu", "node", "show", "apply", "doctor", "explain", "status")
_ALL_DAY = ("ps", "node", "show", "explain", "describe", "logs", "run")
_PARTS = ("queuegaps", "cardtable", "claimbooks", "draining", "applying", "checks", "clusterchecks")
_CODE = """
import sys
from importlib import import_module
heavy, *names = sys.argv[1:]
for name in names:
    import_module(f"windlass.cli.{name}")
    found = set(heavy.split()) & sys.modules.keys()
    if found:
        sys.exit(f"{name} imports {found}")
"""


def _commands(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"commands.{name}" for name in names)


@pytest.mark.parametrize(
    ("heavy", "modules"),
    [
        ("numpy asyncio windlass.engine.core", (*_commands(_TABLES), *_PARTS)),
        ("windlass.api.views windlass.spi.objects yaml ssl", _commands(_ALL_DAY)),
    ],
    ids=["tables need neither numpy nor the engine", "what is asked all day needs no model of the cluster"],
)
def test_what_is_heavy_is_not_imported(heavy: str, modules: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE, heavy, *modules], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
