"""What is advised where no node has cards of the kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GPU, Cluster
from device_fuzz import gpu, part

from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device, Needs, Node

H100, T4 = "NVIDIA-H100-80GB-HBM3", "Tesla-T4"


def cluster() -> Cluster:
    sliced = Device(0, GPU, H100, 81_559, mode=DeviceMode.EITHER, compute=(9, 0))
    plain = Device(0, GPU, T4, 15_360, compute=(7, 5))
    nodes = [
        Node(name, {"cpu": 64_000, "pods": 110, GPU: 1000}, devices=(card,))
        for name, card in (("big", sliced), ("small", plain))
    ]
    return Cluster().queues("default").nodes(*nodes)


@pytest.mark.parametrize(
    ("wants", "told"),
    [
        (
            part("cpu=1", gpu(milli=1000, models=("H1000",))),
            (
                "Name a model that nodes have: NVIDIA-H100-80GB-HBM3, Tesla-T4.",
                "Add a node with a whole H1000 GPU.",
            ),
        ),
        (
            part("cpu=1", gpu(profile="1g.5gb")),
            (
                "Ask for a slice that their GPUs have: "
                "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb.",
                "Add a node with a 1g.5gb slice of a GPU.",
            ),
        ),
        (
            part("cpu=1", gpu(profile="1g.10gb", models=("T4",))),
            (
                "No GPU of these nodes is sliced: request a share of one, or a whole one.",
                "Add a node with a 1g.10gb slice of a T4 GPU.",
            ),
        ),
        (
            part("cpu=1", gpu(milli=1000, min_compute=(10, 0))),
            (
                "Ask for compute capability 9.0 at most.",
                "Add a node with a whole GPU of compute capability 10.0 or more.",
            ),
        ),
        (
            part("cpu=1", gpu(memory_mib=90_000)),
            (
                "Ask for at most 81559 MiB of a GPU's memory.",
                "Add a node with a GPU with 90000 MiB of its memory.",
            ),
        ),
    ],
    ids=["model", "profile", "not sliced", "compute", "memory"],
)
def test_what_cards_there_are_is_told(wants: Needs, told: tuple[str, ...]) -> None:
    c = cluster()
    c.gang("g", 1, wants)
    c.cycle()
    said = c.explain("g")
    assert said.code == "ExceedsEveryNode"
    assert said.remedies == told


def test_too_few_cards_of_the_kind_are_not_answered_with_the_kind() -> None:
    c = cluster()
    c.gang("g", 1, part("cpu=1", replace(gpu(milli=1000, models=("H100",)), count=2)))
    c.cycle()
    assert c.explain("g").remedies == ("Add a node with 2 times a whole H100 GPU.",)
