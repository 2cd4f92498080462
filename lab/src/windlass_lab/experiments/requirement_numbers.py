"""Claims about schedulers by requirement number: the experiments that try them, or why none can.

Claims that say the same are tried by one experiment, and some claims by two.
"""

from __future__ import annotations

from collections.abc import Mapping

TRIED: Mapping[str, tuple[str, ...]] = {
    "N1": ("E1",),
    "N2": ("E14",),
    "N3": ("E15",),
    "N4": ("E15",),
    "N5": ("E15",),
    "N10": ("E1",),
    "N11": ("E3",),
    "N12": ("E10",),
    "N13": ("E9",),
    "N14": ("E2",),
    "N15": ("E1", "E6"),
    "N16": ("E3",),
    "N18": ("E5",),
    "N19": ("E16",),
    "N20": ("E6",),
    "N21": ("E17",),
}
UNTRIED: Mapping[str, str] = {
    "N6": "how exact subtitles get, and how much faster, with the 30 seconds before them: a property of the model",
    "N7": "which machines are advised (eight A100 or H100, 64 cores, 25 Gbps RDMA): advice, no figure of a scheduler",
    "N8": "latency of networks (CNI 100 µs, host network with RDMA 5 µs, SR-IOV 20 µs): hardware, in no trace",
    "N9": "versions of drivers, Kubernetes and operators: nothing to measure",
    "N17": "the setting of a walk-through (three clusters, a gang of nine): nothing to measure",
    "N22": "latency of packets (TCP 120 µs, RoCE 8 µs): hardware, in no trace",
}
"""Requirement number → the claim, and why no simulation can try it."""


def numbers_of(experiment: str) -> list[str]:
    """The claims that an experiment tries."""
    return [number for number, tried in TRIED.items() if experiment in tried]
