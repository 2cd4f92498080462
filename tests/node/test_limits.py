"""Limits of containers: discovery, files and description. The cgroup tree is a plain folder here."""

from __future__ import annotations

from pathlib import Path

from windlass.node.limits import (
    CgroupLimiter,
    ContainerLimits,
    Enforcement,
    WatchLimiter,
    cgroup_mount,
    cpu_weight,
    find_limiter,
    limits_of,
)

LIMITED = ContainerLimits(cpu_milli=1500, cpu_request_milli=500, memory_bytes=2**30)


def tree(root: Path, controllers: str = "cpu memory pids", subtree: str = "cpu memory") -> Path:
    own = root / "user.slice/app"
    own.mkdir(parents=True)
    for folder in (root, root / "user.slice", own):
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text(subtree)
        (folder / "cgroup.procs").write_text("")
    return own


def mountinfo(root: Path) -> str:
    return f"31 23 0:28 / {root} rw,relatime - cgroup2 cgroup2 rw\n"


def test_limits_of_a_container() -> None:
    container = {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "0.5"}}}
    assert limits_of(container) == LIMITED
    assert limits_of({}) == ContainerLimits()


def test_affinity_takes_the_least_loaded_cores_and_gives_them_back() -> None:
    limiter = WatchLimiter([0, 1, 2, 3], "no")
    assert limiter.apply("p1", "c", LIMITED) == Enforcement(affinity=(0, 1), memory_watch_bytes=2**30)
    assert limiter.apply("p2", "c", ContainerLimits(cpu_milli=1000)).affinity == (2,)
    assert limiter.apply("p3", "c", ContainerLimits(cpu_milli=100)).affinity == (3,)
    limiter.release("p1")
    assert limiter.apply("p4", "c", LIMITED).affinity == (0, 1)
    assert limiter.apply("p5", "c", ContainerLimits(cpu_milli=4000)).affinity == ()  # the whole machine
    assert limiter.apply("p6", "c", ContainerLimits()) == Enforcement()
    assert "less than one core is not enforced" in limiter.description


def test_a_container_that_is_started_again_counts_once() -> None:
    limiter = WatchLimiter([0, 1, 2, 3], "no")
    for _ in range(3):
        assert limiter.apply("crashing", "c", LIMITED).affinity == (0, 1)
    assert limiter.apply("crashing", "other", ContainerLimits(cpu_milli=1000)).affinity == (2,)
    limiter.adopt("crashing", "c", (2, 3))
    assert limiter.apply("p", "c", LIMITED).affinity == (0, 1)
    limiter.release("crashing")
    assert limiter.apply("q", "c", LIMITED).affinity == (2, 3)


def test_a_delegated_folder_is_found_and_filled(tmp_path: Path) -> None:
    own = tree(tmp_path)
    limiter = find_limiter(
        Path("/state"), [0], own_cgroup="0::/user.slice/app\n", mountinfo=mountinfo(tmp_path)
    )
    assert isinstance(limiter, CgroupLimiter)
    plan = limiter.apply("uid", "main", LIMITED)
    folder = Path(plan.cgroup)
    assert folder.is_relative_to(own)
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "memory.max").read_text() == str(2**30)
    assert (folder / "cpu.weight").read_text() == "20"
    assert not plan.memory_watch_bytes
    unlimited = Path(limiter.apply("uid", "free", ContainerLimits()).cgroup)
    assert (unlimited / "cpu.max").read_text() == "max 100000"
    assert (unlimited / "memory.max").read_text() == "max"


def test_without_the_controllers_nothing_is_claimed(tmp_path: Path) -> None:
    tree(tmp_path, controllers="pids", subtree="")
    limiter = find_limiter(Path("/s"), [0], own_cgroup="0::/user.slice/app\n", mountinfo=mountinfo(tmp_path))
    assert isinstance(limiter, WatchLimiter)
    assert "delegated" in limiter.description


def test_without_cgroup_v2_nothing_is_claimed() -> None:
    assert cgroup_mount("1 2 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n") is None
    assert isinstance(find_limiter(Path("/s"), [0], own_cgroup="", mountinfo=""), WatchLimiter)


def test_weights_are_the_kubelets() -> None:
    assert cpu_weight(0) == 1
    assert cpu_weight(1000) == 39
    assert cpu_weight(10**9) == 10000
