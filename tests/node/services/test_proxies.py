"""Proxies of Services where pods share the machine's network, and over restarts of the agent."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from node_agent_server import NODE, expose, pod, serving

from windlass.api.resources import SERVICES
from windlass.node.options import AgentOptions
from windlass.node.runtime import attempt_files

_ECHO = """
import os, socket, sys
kind = sys.argv[1]
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
listener.bind((sys.argv[2], int(sys.argv[3])))
if kind == "udp":
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
        for kind, port in (("tcp", 7411), ("udp", 7412)):
            await box.create(pod(f"echo-{kind}", sys.executable, "-c", _ECHO, kind, address, str(port)))
        tcp = await expose(box, "tcp", (address, 7411), port=7000)
        udp = await expose(box, "udp", (address, 7412), "UDP")
        node_port = tcp["spec"]["ports"][0]["nodePort"]
        large = b"x" * 3_000_000
        await box.until(lambda: _ask("127.0.0.1", node_port, large) == b"3000000")
        cluster = box.agent.proxies.addresses.address(tcp["spec"]["clusterIP"])
        assert cluster.startswith("127.")
        assert _ask(cluster, 7000, b"abc") == b"3"
        await box.until(lambda: _ask_udp(udp["spec"]["ports"][0]["nodePort"]) == b"hello!")

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
        await box.until(lambda: _ask("127.0.0.1", node_port, b"abcde") == b"5")
        await box.client.delete(SERVICES, "tcp", "default")
        await box.until(lambda: _ask("127.0.0.1", node_port, b"") == b"")
        last = attempt_files.read(directory, "machine.proxy.json")
    assert last is not None
    assert last["pid"] != before["pid"]
    assert not attempt_files.is_running(last)
