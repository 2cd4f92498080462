"""Order in which a gang's pods start and are evicted under a configuration of Volcano's."""

from __future__ import annotations

from collections.abc import Sequence

from tier_configurations import config, evicted

from windlass.engine.deltas import GroupUpserted
from windlass.spi.objects import Dialect, Group, Needs, Task
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE


def enter(
    scene: Scene, name: str, pods: Sequence[tuple[str, float, str]], least: int, priority: int = 0
) -> None:
    """A gang of pods of one GPU: name, creation (Unix seconds), UID."""
    key = f"{NAMESPACE}/{name}"
    scene.engine.apply([GroupUpserted(Group(key, min_member=least, priority=priority, created=1.0, uid=key))])
    needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
    for pod, created, uid in pods:
        scene._enter(Task(f"{NAMESPACE}/{pod}", uid, key, needs, created=created))


def play(pods: Sequence[tuple[str, float, str]], gpus: int, wanted: int) -> tuple[list[str], list[str]]:
    """Return the pods that start on ``gpus`` GPUs, and those evicted for ``wanted`` of
    higher priority.

    Both are sorted by name.
    """
    scene = Scene(config=config("allocate preempt", "priority gang conformance | predicates"))
    scene.node("n0", gpu=gpus)
    enter(scene, "job", pods, 1)
    started = sorted(bind.task.rpartition("/")[2] for bind in scene.cycle().binds)
    enter(scene, "urgent", [(f"urgent-{n}", 9.0, f"u{n}") for n in range(wanted)], wanted, priority=10)
    return started, evicted(scene.cycle())


def test_the_first_numbers_start_and_the_last_go() -> None:
    pods = [(f"job-worker-{n}", 1.0, f"w{99 - n}") for n in range(14)]
    started, gone = play(pods, 11, 2)
    assert started == sorted(f"job-worker-{n}" for n in range(11))
    assert gone == ["job-worker-10", "job-worker-9"]


def test_numbers_count_before_tasks_and_before_age() -> None:
    pods = [("job-a-0", 5.0, "a"), ("job-a-1", 1.0, "b"), ("job-z-0", 9.0, "c"), ("job-z-1", 1.0, "d")]
    assert play(pods, 2, 1) == (["job-a-0", "job-z-0"], ["job-z-0"])


def test_without_numbers_the_oldest_start_and_the_youngest_go() -> None:
    pods = [("a", 3.0, "x"), ("b", 1.0, "z"), ("c", 2.0, "y"), ("d", 2.0, "x")]
    assert play(pods, 3, 2) == (["b", "c", "d"], ["c", "d"])
    assert play(pods, 2, 1) == (["b", "d"], ["d"])
