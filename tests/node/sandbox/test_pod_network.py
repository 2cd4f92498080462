"""Ranges, addresses, the way out: what needs no namespace."""

from __future__ import annotations

import ipaddress
import json
import signal
from pathlib import Path

import pytest
from node_agent_server import NODE, pod, serving

from windlass.api import annotations
from windlass.node.options import AgentOptions
from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import read_to_end, start_helper, wait_exit
from windlass.node.sandbox import pod_network, sandbox
from windlass.node.sandbox.egress import nat_commands
from windlass.node.sandbox.pod_network import (
    NO_ISOLATION,
    POD_POOLS,
    Capabilities,
    Network,
    NetworkError,
    busy_ranges,
    choose_range,
    find_capabilities,
)

ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0
eth0 0000A8C0 00000000 0001 0 0 0 0000FFFF 0 0 0
tun0 0000800A 00000000 0001 0 0 0 0000C0FF 0 0 0
"""


def test_ranges_in_use_are_read_from_the_route_table() -> None:
    assert [str(n) for n in busy_ranges(ROUTES)] == ["192.168.0.1/32", "192.168.0.0/16", "10.128.0.0/10"]
    names = "# nameserver 1.1.1.1\nnameserver 100.64.0.53\nnameserver fd00::1\n"
    assert [str(n) for n in busy_ranges("", names)] == ["100.64.0.53/32"]


def test_a_range_is_free_and_stays_the_same_for_the_same_state() -> None:
    busy = busy_ranges(ROUTES)
    chosen = choose_range("/home/u/state", busy)
    assert chosen == choose_range("/home/u/state", busy)
    assert not any(chosen.overlaps(other) for other in busy)
    assert chosen.prefixlen == 20
    assert chosen.subnet_of(POD_POOLS[0])


def test_a_range_that_holds_a_name_server_is_never_chosen() -> None:
    first = choose_range("seed", [])
    server = busy_ranges("", f"nameserver {first[53]}\n")
    second = choose_range("seed", server)
    assert second != first
    assert not second.overlaps(first)


def test_the_second_pool_follows_and_an_end_is_told() -> None:
    first, second = POD_POOLS
    assert choose_range("x", [first]).subnet_of(second)
    with pytest.raises(NetworkError, match="in use"):
        choose_range("x", [first, second])


async def test_addresses_are_given_once_and_come_round_last(tmp_path: Path) -> None:
    network = Network(tmp_path, NO_ISOLATION)
    await network.prepare()
    first, second = network.address("a"), network.address("b")
    assert first.startswith("127.")
    assert first != second
    assert network.address("a") == first
    network.release("a")
    assert network.address("c") not in (first, second)
    network.adopt("old", "127.9.9.9")
    assert network.address("old") == "127.9.9.9"


async def test_agents_that_share_a_loopback_range_begin_at_different_addresses(tmp_path: Path) -> None:
    given = set()
    for number in range(300):  # more than there are ranges
        network = Network(tmp_path / str(number), NO_ISOLATION)
        await network.prepare()
        given |= {network.address(uid) for uid in ("a", "b")}
    assert len(given) == 600


async def test_a_second_process_for_a_sandbox_leaves_the_first_one_alone(tmp_path: Path) -> None:
    """An agent that has given up its fork server starts the process again, which the server may have done."""
    spec = {
        "directory": str(tmp_path),
        "box": None,
        "namespaces": [],
        "hostname": "p",
        "veth": None,
        "tmpfs": [],
    }
    records, started = [], []
    for _ in range(2):
        pid, reader = start_helper("windlass.node.sandbox.sandbox", json.dumps(spec))
        started.append(attempt_files.identity(pid))
        assert await read_to_end(reader) == b"s"
        records.append(attempt_files.read(str(tmp_path), sandbox.RECORD))
    first, second = started
    await wait_exit(second["pid"], second["start_time"])
    assert records[0] == records[1]
    assert attempt_files.signal(records[0], signal.SIGKILL)
    await wait_exit(first["pid"], first["start_time"])


async def test_all_addresses_in_use_is_told(tmp_path: Path) -> None:
    network = Network(tmp_path, Capabilities(False, (), False), wanted_range="")
    network._range = ipaddress.IPv4Network("10.0.0.0/27")
    given = {network.address(f"p{number}") for number in range(15)}
    assert len(given) == 15
    with pytest.raises(NetworkError, match="are in use"):
        network.address("one more")


def test_nat_rules_name_the_range_and_spare_the_box() -> None:
    pods = ipaddress.IPv4Network("10.200.0.0/16")
    nft = nat_commands("/usr/sbin/nft", pods, "wl1")
    assert nft[-1][1] == 'add rule ip windlass_wl1 out ip saddr 10.200.0.0/16 oifname != "wl1" masquerade'
    check, add, *forward = nat_commands("/usr/sbin/iptables", pods, "wl1")
    assert check[1:6] == ["-w", "5", "-t", "nat", "-C"]
    assert add[1:] == ["-w", "5", "-t", "nat", "-A", *check[6:]]
    assert [argv[argv.index("FORWARD") + 1] for argv in forward] == ["-i", "-o"]


async def test_a_gang_that_outnumbers_the_addresses_does_not_end_the_agent(tmp_path: Path) -> None:
    marks = {"metadata": {"annotations": {annotations.GROUP_NAME: "g"}}}
    async with serving(tmp_path, AgentOptions(node_name=NODE, gpus="none", isolation="none")) as box:
        assert box.agent is not None
        box.agent.network._range = ipaddress.IPv4Network("127.77.0.0/27")
        for number in range(20):
            waiting = pod(f"elsewhere-{number}", "true", **marks)
            del waiting["spec"]["nodeName"]
            await box.create(waiting)
        await box.create(pod("here", "true", **marks))
        await box.phase("here", "Succeeded")


@pytest.mark.parametrize("deaths", [0, 2, 3])
async def test_who_tries_namespaces_may_die_twice(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory is short, or files are replaced: all pods of the agent depend on what it says."""
    start, modules = pod_network.start_helper, ["no_such_module"] * deaths
    monkeypatch.setattr(
        pod_network,
        "start_helper",
        lambda module, argument: start(modules.pop() if modules else module, argument),
    )
    found = await find_capabilities()
    told = "the process that tries namespaces ended without a result"
    assert (found == Capabilities(False, (), False, {"all": told})) == (deaths == 3)
