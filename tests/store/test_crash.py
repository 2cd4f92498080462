"""Killed in the middle of commits: whatever was acknowledged is there, and no version is used twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windlass.kits.clock import SystemClock
from windlass.store.store import Store

CHILD = Path(__file__).resolve().parents[1] / "support" / "server" / "store_crash_child.py"
ROUNDS = int(os.environ.get("WINDLASS_CRASH_ROUNDS", "4"))
SEED = int(os.environ.get("WINDLASS_CRASH_SEED", "1"))


def run_and_kill(path: Path, number: int, seconds: float) -> list[str]:
    """The complete lines that the child told before it was killed, ``seconds`` after its first commit."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), str(path), str(number)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        try:
            lines = [child.stdout.readline().decode() for _ in ("opened", "committed")]
            time.sleep(seconds)
        finally:
            child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().decode()
    whole, _, _torn = rest.rpartition("\n")
    return [*map(str.strip, lines), *whole.splitlines()]


@pytest.mark.timeout(120)
async def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    rng = random.Random(SEED)
    acknowledged: dict[str, int] = {}
    highest = 0
    for number in range(ROUNDS):
        opened, *lines = run_and_kill(path, number, rng.uniform(0.1, 0.6))
        assert int(opened.split()[1]) >= highest, f"seed {SEED}, round {number}"
        for line in lines:
            name, version = line.split()
            assert int(version) > highest or name.startswith(f"r{number}-"), "a version was used twice"
            acknowledged[name] = int(version)
        highest = max(acknowledged.values())
        store = Store.open(path, clock=SystemClock())
        for name, version in acknowledged.items():
            entry = store.get("pods", "d", name)
            assert entry is not None, f"seed {SEED}, round {number}: {name} is lost"
            assert entry.rv >= version
        versions = [entry.rv for entry in store.select("pods")]
        assert len(set(versions)) == len(versions)
        assert store.rv > highest
        highest = store.rv
        if number % 2:
            await store.close()
        else:
            store._writer.stop()
            store._database.abandon()
