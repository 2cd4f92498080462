"""Y23: flags of the kubelet as options of the node agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.node import kubelet_flags
from windlass.node.devices.discovery import Inventory
from windlass.node.kubelet_flags import KubeletFlags, parse, words_of
from windlass.node.machine import Machine, resources
from windlass.node.options import GIB, AgentOptions

LINES = """\
# the lines of a kubelet's defaults file
|
  --pod-max-pids=1000000 # many processes
  --max-pods=500
  --cpu-manager-policy=static
  --topology-manager-policy=best-effort # NUMA
  --kube-reserved=cpu=4,memory=8Gi
  --system-reserved=cpu=2,memory=4Gi
"""
BIG = Machine("big", "10.0.0.1", tuple(range(16)), 32 * GIB, 10**12, "amd64", "", "", "", "")


def test_y23_node_shows_what_the_flags_leave() -> None:
    flags, warnings = parse(words_of(LINES))
    assert flags == KubeletFlags(
        max_pods=500,
        pod_max_pids=1_000_000,
        static_cpus=True,
        topology_manager_policy="best-effort",
        reserved={"cpu": 6000, "memory": 12 * GIB},
    )
    assert [text for text in warnings if "best-effort only prefers one NUMA node" in text]
    capacity, allocatable = resources(
        BIG, Inventory(), max_pods=500, reserve=-1, reserved=flags.reserved_on(BIG.memory_bytes)
    )
    assert (capacity["cpu"], capacity["memory"]) == ("16", f"{32 * 2**20}Ki")
    assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == (
        "10",
        f"{20 * 2**20}Ki",
        "500",
    )


def test_memory_keeps_the_default_reserve_if_only_cpu_is_reserved() -> None:
    flags, _ = parse(["--kube-reserved=cpu=500m"])
    _, allocatable = resources(
        BIG, Inventory(), max_pods=1, reserve=GIB, reserved=flags.reserved_on(32 * GIB)
    )
    assert (allocatable["cpu"], allocatable["memory"]) == ("15500m", f"{31 * 2**20}Ki")


def test_forms_of_a_file() -> None:
    text = 'KUBELET_EXTRA_ARGS="--max-pods=5 --v=2"\n--pod-max-pids 7 \\\n# --max-pods=9\n--max-pods=6'
    flags, warnings = parse(words_of(text))
    assert (flags.max_pods, flags.pod_max_pids) == (6, 7)
    assert warnings == ["--v has no effect on this agent, which runs pods as processes"]


def test_threshold_of_memory_is_reserved_and_other_signals_are_reported() -> None:
    flags, warnings = parse(["--eviction-hard=memory.available<10%,nodefs.available<5%"])
    assert flags.reserved_on(20 * GIB) == {"memory": 2 * GIB}
    assert any("nodefs.available has no effect" in text for text in warnings)
    flags, _ = parse(["--eviction-hard=memory.available<1Gi", "--kube-reserved=memory=1Gi"])
    assert flags.reserved_on(20 * GIB) == {"memory": 2 * GIB}


@pytest.mark.parametrize(
    ("word", "why", "remedy"),
    [
        ("--max-pod=3", "the kubelet has no such flag", "--max-pods=VALUE"),
        ("--max-pods", "it has no value", "--max-pods=VALUE"),
        ("--max-pods=many", "whole number of at least 1", "--max-pods=500"),
        ("--cpu-manager-policy=on", "known values: none, static", "--cpu-manager-policy=none"),
        (
            "--cpu-manager-policy=static",
            "needs reserved CPUs",
            "--cpu-manager-policy=static --system-reserved=cpu=1",
        ),
        ("--kube-reserved=cpus=1", "'cpus=1' is not RESOURCE=AMOUNT", "--kube-reserved=cpu=1,memory=1Gi"),
        ("--system-reserved=memory=8GB", "is not a quantity", "--system-reserved=memory=1"),
        ("--reserved-cpus=a", "a list of CPUs", "--reserved-cpus=0-1"),
        ("--eviction-hard=memory", "is not SIGNAL<AMOUNT", "--eviction-hard=memory.available<500Mi"),
    ],
)
def test_invalid_flags_are_refused_with_a_remedy(word: str, why: str, remedy: str) -> None:
    with pytest.raises(WindlassError) as caught:
        parse([word])
    assert why in (caught.value.evidence or "")
    assert remedy in caught.value.remedies
    if "=VALUE" not in remedy:
        parse(remedy.split())  # the remedy is accepted


def test_words_that_are_no_flags_are_refused() -> None:
    with pytest.raises(WindlassError, match="line 2"):
        words_of("--max-pods=3\nmax-pods=5\n")


def test_machine_must_have_what_is_reserved() -> None:
    flags, _ = parse(words_of(LINES))
    kubelet_flags.check_machine(flags, range(16), 32 * GIB)
    with pytest.raises(WindlassError, match="reserve cpu 6, and nothing is left"):
        kubelet_flags.check_machine(flags, range(6), 32 * GIB)
    with pytest.raises(WindlassError, match="reserve memory 12Gi"):
        kubelet_flags.check_machine(flags, range(16), 12 * GIB)
    with pytest.raises(WindlassError, match="reserved-cpus: 9"):
        kubelet_flags.check_machine(parse(["--reserved-cpus=0,9"])[0], range(4), GIB)


def test_restarted_agent_has_the_flags_of_its_start(tmp_path: Path) -> None:
    words = ["--max-pods=7", "--reserved-cpus=0-1", "--eviction-hard=memory.available<1Gi"]
    kubelet_flags.store(tmp_path, words)
    options = kubelet_flags.applied(AgentOptions(), tmp_path)
    assert (options.max_pods, options.reserved_cpus) == (7, (0, 1))
    assert options.reserved == {"cpu": 2000, "memory": GIB}
    kubelet_flags.store(tmp_path, [])
    assert kubelet_flags.applied(AgentOptions(), tmp_path) == AgentOptions()
