"""Proxies of Services where pods share the machine's network, and over restarts of the agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from node_agent_server import NODE, expose, pod, serving
from realkube import free_ports

from windlass.api.resources import SERVICES
from windlass.node.options import AgentOptions
from windlass.node.runtime import attempt_files
from windlass.node.services import proxy

_ECHO = """
import os, socket, sys
kind = sys.argv[1]
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "datagrams" else socket.SOCK_STREAM)
listener.bind((sys.argv[2], int(sys.argv[3])))
if kind == "datagrams":
    while True:
        data, peer = listener.recvfrom(2048)
        listener.sendto(data + b"!", peer)
listener.listen()
while True:
    peer = listener.accept()[0]
    data = b""
    while block := peer.recv(65536):
        data += block
    peer.sendall(b"%d" % len(data))
    peer.close()
"""


def _ask(address: str, port: int, data: bytes) -> bytes:
    try:
        with socket.create_connection((address, port), 10) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while block := connection.recv(100):
                answer += block
            return answer
    except OSError:
        return b""


def _ask_udp(port: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(0.3)
        connection.connect(("127.0.0.1", port))
        try:
            connection.send(b"hello")
            return connection.recv(100)
        except OSError:
            return b""


async def test_connections_reach_pods_that_share_the_machines_network(tmp_path: Path) -> None:
    options = AgentOptions(node_name=NODE, gpus="none", isolation="none")
    async with serving(tmp_path, options) as box:
        assert box.agent is not None
        address = box.agent.network.address_at(9)
        tcp_port, udp_port = free_ports(2)
        # No word of the commands is the name of a Service: those are replaced by its address.
        for kind, port in (("streams", tcp_port), ("datagrams", udp_port)):
            await box.create(pod(f"echo-{kind}", sys.executable, "-c", _ECHO, kind, address, str(port)))
        tcp = await expose(box, "tcp", (address, tcp_port), port=7000)
        udp = await expose(box, "udp", (address, udp_port), "UDP")
        node_port = tcp["spec"]["ports"][0]["nodePort"]
        large = b"x" * 3_000_000

        async def answers(address: str, port: int, data: bytes, answer: bytes) -> None:
            async def said() -> bool:  # in a thread: this loop serves the box
                return await asyncio.to_thread(_ask, address, port, data) == answer

            await box.until(said)

        await answers("127.0.0.1", node_port, large, b"3000000")
        cluster = box.agent.proxies.addresses.address(tcp["spec"]["clusterIP"])
        assert cluster.startswith("127.")
        await answers(cluster, 7000, b"abc", b"3")

        async def echoed() -> bool:
            return await asyncio.to_thread(_ask_udp, udp["spec"]["ports"][0]["nodePort"]) == b"hello!"

        await box.until(echoed)

        await box.create(pod("client", "sh", "-c", "echo $TCP_SERVICE_HOST:$TCP_SERVICE_PORT http://tcp/"))
        await box.phase("client", "Succeeded")
        assert (await box.log("client")).split() == [f"{cluster}:7000", f"http://{cluster}/"]

        directory = str(box.state.node / "services")
        before = attempt_files.read(directory, "machine.proxy.json")
        assert before is not None
        await box.kill_agent()
        assert _ask("127.0.0.1", node_port, b"abcd") == b"4"  # it survives the agent
        await box.start_agent()
        os.kill(before["pid"], signal.SIGKILL)
        await answers("127.0.0.1", node_port, b"abcde", b"5")
        await box.client.delete(SERVICES, "tcp", "default")
        await answers("127.0.0.1", node_port, b"", b"")
        last = attempt_files.read(directory, "machine.proxy.json")
    assert last is not None
    assert last["pid"] != before["pid"]
    assert not attempt_files.is_running(last)


def test_a_port_that_was_in_use_is_served_once_it_is_free(tmp_path: Path) -> None:
    quick = (
        "import sys; from windlass.node.services import proxy; proxy._CHECK_SECONDS = 0.02; "
        "proxy.main(sys.argv[1])"
    )
    options = {
        "directory": str(tmp_path),
        "side": "machine",
        "holder": None,
        "range": "127.20.0.0/16",
        "reaches_pods": True,
        "reaches_others": True,
    }

    def failures() -> int | None:
        state = attempt_files.read(str(tmp_path), proxy.state_name("machine"))
        return None if state is None else len(state["failed"])

    def until_failures(count: int) -> None:
        deadline = time.monotonic() + 60
        while failures() != count:
            assert time.monotonic() < deadline, failures()
            time.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        entry = {"protocol": "TCP", "address": "127.0.0.1", "number": port, "affinity_seconds": 0}
        table = {"serial": 1, "listeners": [{**entry, "service": "default/web", "backends": []}]}
        attempt_files.write(str(tmp_path), proxy.table_name("machine"), table)
        process = subprocess.Popen(
            [sys.executable, "-c", quick, json.dumps(options)], stdout=subprocess.DEVNULL
        )
        try:
            until_failures(1)
            holder.close()
            until_failures(0)
        finally:
            process.kill()
            process.wait()
