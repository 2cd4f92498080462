import pytest
from low_priority_gate import LowPriorityGate

from windlass.testing import Scene, check

LABEL = "aigc.kurator.dev/priority"


def site(nodes, free):
    """A site of one-GPU nodes, of which ``free`` have their GPU free."""
    scene = Scene(LowPriorityGate())
    for n in range(nodes):
        scene.node(f"n{n}", gpu=1)
    if nodes > free:
        scene.gang("busy", pods=nodes - free, gpu=1)
        scene.cycle()
    return scene


@pytest.mark.parametrize(
    ("priority", "free", "passes"),
    [
        (None, 0, True),
        ("high", 0, True),
        ("low", 0, False),
        ("low", 2, False),
        ("low", 3, True),
        ("medium", 0, True),
        ("urgent", 0, True),
        ("Low", 0, True),
    ],
)
def test_a_site_of_five_nodes(priority, free, passes):
    scene = site(5, free)
    scene.gang("job", gpu=1, labels={} if priority is None else {LABEL: priority})
    scene.cycle()
    assert ("insufficient resources for low-priority" not in scene.message("job")) is passes
    assert bool(scene.where("job")) is (passes and free > 0)


def test_the_limit_in_force_is_told():
    scene = site(5, 2)
    scene.gang("job", gpu=1, labels={LABEL: "low"})
    scene.cycle()
    assert "It needs 3 nodes with free GPUs, and there are 2" in scene.message("job")


def test_it_goes_on_when_nodes_become_free():
    scene = site(5, 2)
    scene.gang("job", gpu=1, labels={LABEL: "low"})
    scene.cycle()
    scene.finish("busy")
    scene.cycle()
    assert scene.where("job")


def test_on_a_small_site_all_gpu_nodes_are_enough():
    scene = site(1, 1)
    scene.gang("job", gpu=1, labels={LABEL: "low"})
    scene.cycle()
    assert scene.where("job") == {"n0": 1}


def test_one_low_member_counts_for_the_whole_gang():
    scene = site(5, 2)
    scene.gang("job", pods=1, min_member=2, gpu=1, labels={LABEL: "high"})
    scene.gang("job", pods=2, min_member=2, gpu=1, labels={LABEL: "low"})
    scene.cycle()
    assert scene.where("job") == {}


def test_it_keeps_the_promises_of_the_extension_surface():
    check(LowPriorityGate())
