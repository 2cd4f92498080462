"""A scenario for an ordinary user: a box with two gangs; what its pods said, as JSON. Run as a program."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from node_agent_server import NodeBox, expose, pod, serving

from windlass.node.runtime import attempt_files, syscalls

_PYTHON = "/usr/bin/python3"
_SERVE = (
    "import http.server; print('up', flush=True); "
    "http.server.ThreadingHTTPServer(('0.0.0.0', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
)
_ASK = (
    "import time, urllib.request\n"
    "for n in range(900):\n"
    "    try: print(urllib.request.urlopen('http://{name}:8000/', timeout=2).status); break\n"
    "    except OSError as error: time.sleep(0.05)\n"
)
_FAR = """
import socketserver, subprocess
class Run(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(subprocess.run(['sh', '-c', self.rfile.readline().decode()], capture_output=True).stdout)
socketserver.ThreadingTCPServer(('0.0.0.0', 2222), Run).serve_forever()
"""
_AGENT = """#!/usr/bin/python3
import socket, sys, time
for n in range(900):
    try: far = socket.create_connection((sys.argv[1], 2222)); break
    except OSError: time.sleep(0.05)
far.sendall(' '.join(sys.argv[2:]).encode() + b'\\n')
while part := far.recv(65536): sys.stdout.buffer.write(part)
"""
"""What a remote shell is to mpirun: here a socket on the other pod. The daemons' way back is mpirun's own."""
_MPIRUN = (
    "timeout 55 mpirun --mca plm_rsh_agent /tmp/mpi/agent --mca orte_keep_fqdn_hostnames 1 "
    "--host mpi-m.mpi:1,mpi-w.mpi:1 hostname"
)
_WHO = "import os, socket; print(os.getuid(), os.geteuid(), os.getgid(), socket.gethostname(), os.getpid())"


async def scenario(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = {}
    async with serving(folder) as box:
        assert box.agent is not None
        network = box.agent.network
        said["capabilities"] = [network.capabilities.user, *network.capabilities.namespaces]
        said["outbound"] = network.outbound.kind
        for gang in ("red", "blue"):
            await box.create(pod(f"{gang}-m", _PYTHON, "-c", _SERVE, subdomain=gang))
            await box.create(
                pod(f"{gang}-w", _PYTHON, "-c", _ASK.format(name=f"{gang}-m.{gang}"), subdomain=gang)
            )
        mounts = {
            "volumeMounts": [
                {"name": "v", "mountPath": "/etc/volcano"},
                {"name": "v", "mountPath": "/data/x"},
            ]
        }
        volumes = [{"name": "v", "emptyDir": {}}]
        files = "echo hi > /etc/volcano/f; cat /data/x/f; touch /data/x/g; stat -c %u /data/x/g"
        await box.create(pod("files", "sh", "-c", files, container=mounts, volumes=volumes))
        await box.create(pod("who", _PYTHON, "-c", _WHO))
        waited_for = ["red-w", "blue-w", "files", "who"]
        if shutil.which("mpirun"):
            await _mpi(box, folder)
            waited_for.append("mpi-m")
        for name in waited_for:
            await box.phase(name, "Succeeded", "Failed")
            said[name] = await box.log(name)
        said["reach"] = await _reach(box, "red-m")
        said["probed"] = await _probed(box)
        said["services"] = await _services(box)
        said["adopted"] = await _adopted(box)
        holder = attempt_files.read(str(box.state.node), "box.json")
    said["left"] = bool(holder and syscalls.start_time(holder["pid"]) is not None)
    return said


async def _mpi(box: NodeBox, folder: Path) -> None:
    """Two pods, and mpirun in the first, which starts a rank on each by their names."""
    agent = folder / "mpi" / "agent"
    agent.parent.mkdir()
    agent.write_text(_AGENT)
    agent.chmod(0o755)
    container = {"volumeMounts": [{"name": "v", "mountPath": "/tmp/mpi"}]}
    volumes = [{"name": "v", "hostPath": {"path": str(agent.parent)}}]
    more = {"container": container, "volumes": volumes, "subdomain": "mpi"}
    await box.create(pod("mpi-w", _PYTHON, "-c", _FAR, **more))
    await box.create(pod("mpi-m", "sh", "-c", _MPIRUN, **more))


async def _reach(box: NodeBox, name: str) -> str:
    """The agent's own way to a pod."""
    assert box.agent is not None
    address = (await box.get(name))["status"]["podIP"]
    with await box.agent.network.connect(address, 8000) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(12).decode()


async def _status(port: int) -> str:
    """Ask a node port. Return the HTTP status, or an empty text while it is not served."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return ""
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    words = (await reader.readline()).decode().split()
    writer.close()
    return words[1] if words else ""


async def _services(box: NodeBox) -> list[str]:
    """A pod at a cluster address, this program at another, and the pod at its node port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1")
    address = (await box.get("red-m"))["status"]["podIP"]
    node_ports = {}
    for name, target in (("in", (address, 8000)), ("out", server.sockets[0].getsockname())):
        service = await expose(box, name, target)
        node_ports[name] = service["spec"]["ports"][0]["nodePort"]
    said = []
    for name in node_ports:
        asked = _ASK.format(name=name).replace("8000", "80")
        await box.create(pod(f"client-{name}", _PYTHON, "-c", asked))
        await box.phase(f"client-{name}", "Succeeded", "Failed")
        said.append((await box.log(f"client-{name}")).strip())
        said.append(await box.until(lambda port=node_ports[name]: _status(port)))
    server.close()
    return said


async def _probed(box: NodeBox) -> bool:
    """A pod is ready by a command inside it, as the user himself, and by an answer to the agent."""
    probes = {
        "startupProbe": {
            "exec": {"command": ["sh", "-c", "test $(id -u) -ne 0 && test $(hostname) = probed"]}
        },
        "readinessProbe": {"httpGet": {"port": 8000}},
    }
    for probe in probes.values():
        probe |= {"periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 60}
    await box.create(pod("probed", _PYTHON, "-c", _SERVE, container=probes))

    async def ready() -> bool:
        status = (await box.get("probed")).get("status") or {}
        return any(one["ready"] for one in status.get("containerStatuses") or ())

    return await box.until(ready)


async def _adopted(box: NodeBox) -> bool:
    """Another agent takes the pods up, and a new pod finds an old one."""
    await box.kill_agent()
    await box.start_agent()
    await box.create(pod("late", _PYTHON, "-c", _ASK.format(name="red-m.red")))
    await box.phase("late", "Succeeded", "Failed")
    return (await box.log("late")).strip() == "200"


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scenario(Path(sys.argv[1])))))
