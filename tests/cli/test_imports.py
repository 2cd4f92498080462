"""What commands import before they know what they are asked: it costs every user at every start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

from windlass.cli.main import COMMANDS

_TABLES = ("ps", "queue", "gpu", "node", "show", "apply", "doctor", "explain", "status")
_ALL_DAY = ("ps", "node", "show", "explain", "describe", "logs", "run", "submit", "generate")
_PARTS = (
    "queues.tree_checks",
    "nodes.device_table",
    "nodes.dra_devices",
    "nodes.drain",
    "manifests.apply",
    "doctor.machine_checks",
    "doctor.cluster_checks",
)
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
    return tuple(f"commands.{COMMANDS[name][0].lower()}.{name}" for name in names)


@pytest.mark.parametrize(
    ("heavy", "modules"),
    [
        ("numpy asyncio windlass.engine.core", (*_commands(_TABLES), *_PARTS)),
        ("windlass.api.views windlass.spi.objects windlass.api.validation yaml ssl", _commands(_ALL_DAY)),
        ("windlass.api.validation importlib.abc", _commands(("queue", "status"))),
    ],
    ids=[
        "tables need neither numpy nor the engine",
        "what is asked all day needs no model of the cluster",
        "queues need no rules of other kinds, and no base classes of importers",
    ],
)
def test_what_is_heavy_is_not_imported(heavy: str, modules: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE, heavy, *modules], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


_ASK = """
import sys
from windlass.__main__ import main
heavy, *sys.argv[1:] = sys.argv[1:]
if code := main():
    sys.exit(code)
found = set(heavy.split()) & sys.modules.keys()
print(f"imported: {sorted(found)}", file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["sim policies", "sim formats", "sim policies -o json"])
def test_a_list_of_what_the_simulator_knows_starts_no_simulator(command: str) -> None:
    heavy = "numpy asyncio windlass.engine.engine windlass.model.cluster.snapshot windlass.plugins.registry"
    done = subprocess.run(
        [sys.executable, "-c", _ASK, heavy, *command.split()], capture_output=True, text=True, timeout=120
    )
    assert "windlass" in done.stdout or "philly" in done.stdout
    assert done.stderr == "imported: []\n"
