"""Meter of CPU and memory: rates between readings, and figures of cgroups."""

from __future__ import annotations

import json
import os
from pathlib import Path

from windlass.kits.clock import FakeClock
from windlass.node import usage
from windlass.node.runtime import attempt_files
from windlass.node.usage import ContainerPlace, UsageMeter, UsageReading


def running_container(directory: Path, cgroup: Path) -> ContainerPlace:
    """Record of a container: this process is its init."""
    directory.mkdir()
    attempt_files.write(str(directory), attempt_files.PROCESS, attempt_files.identity(os.getpid()))
    attempt_files.write(str(directory), attempt_files.SPEC, {"cgroup": str(cgroup)})
    return ContainerPlace("u", "main", 0, directory)


def write_cgroup(cgroup: Path, cpu_usec: int, memory: int, cached: int) -> None:
    cgroup.mkdir(exist_ok=True)
    (cgroup / "cpu.stat").write_text(f"usage_usec {cpu_usec}\nuser_usec 0\n")
    (cgroup / "memory.current").write_text(f"{memory}\n")
    (cgroup / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


async def test_cpu_is_a_rate_between_readings_and_memory_leaves_out_the_cache(tmp_path: Path) -> None:
    clock = FakeClock()
    write_cgroup(tmp_path / "c", 1_000_000, 300, 100)
    place = running_container(tmp_path / "a", tmp_path / "c")
    meter = UsageMeter(clock)
    meter._last = meter._read([place], clock.now())
    await clock.advance(2.0)
    write_cgroup(tmp_path / "c", 2_000_000, 500, 100)
    found = await meter.usage([place])
    assert found["pods"] == {"u": {"main": {"cpu": 500_000_000, "memory": 400}}}
    assert found["window"] == 2.0
    assert json.dumps(found)


def test_processes_count_where_there_is_no_cgroup(tmp_path: Path) -> None:
    place = running_container(tmp_path / "a", tmp_path / "missing")
    reading = usage.read_container(str(place.directory))
    assert reading is not None
    assert reading.cpu_ns > 0


def test_container_that_has_ended_has_no_figures(tmp_path: Path) -> None:
    directory = tmp_path / "a"
    directory.mkdir()
    assert usage.read_container(str(directory)) is None
    gone = {**attempt_files.identity(os.getpid()), "start_time": 1}
    attempt_files.write(str(directory), attempt_files.PROCESS, gone)
    assert usage.read_container(str(directory)) is None


def test_node_uses_memory_and_cpu() -> None:
    reading = usage.read_node()
    assert reading.memory_bytes > 0
    assert isinstance(reading, UsageReading)
