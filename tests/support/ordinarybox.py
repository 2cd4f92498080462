"""A scenario for an ordinary user: a box with two gangs; what its pods said, as JSON. Run as a program."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from nodebox import NodeBox, pod, serving

from windlass.node import linux, records

_PYTHON = "/usr/bin/python3"
_SERVE = (
    "import http.server; print('up', flush=True); "
    "http.server.ThreadingHTTPServer(('0.0.0.0', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
)
_ASK = (
    "import time, urllib.request\n"
    "for n in range(100):\n"
    "    try: print(urllib.request.urlopen('http://{name}:8000/', timeout=2).status); break\n"
    "    except OSError as error: time.sleep(0.05)\n"
)
_WHO = "import os, socket; print(os.getuid(), os.geteuid(), os.getgid(), socket.gethostname(), os.getpid())"


async def scenario(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = {}
    async with serving(folder) as box:
        assert box.agent is not None
        assert box.agent.host is not None
        host = box.agent.host
        said["capabilities"] = [host.capabilities.user, *host.capabilities.namespaces]
        said["outbound"] = host.network.outbound.kind
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
        for name in ("red-w", "blue-w", "files", "who"):
            await box.phase(name, "Succeeded", "Failed")
            said[name] = await box.log(name)
        said["reach"] = await _reach(box, "red-m")
        said["adopted"] = await _adopted(box)
        holder = records.read(str(box.state.node), "box.json")
    said["left"] = bool(holder and linux.start_time(holder["pid"]) is not None)
    return said


async def _reach(box: NodeBox, name: str) -> str:
    """The agent's own way to a pod."""
    assert box.agent is not None
    assert box.agent.host is not None
    address = (await box.get(name))["status"]["podIP"]
    with await box.agent.host.network.connect(address, 8000) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(12).decode()


async def _adopted(box: NodeBox) -> bool:
    """Another agent takes the pods up, and a new pod finds an old one."""
    await box.kill_agent()
    await box.start_agent()
    await box.create(pod("late", _PYTHON, "-c", _ASK.format(name="red-m.red")))
    await box.phase("late", "Succeeded", "Failed")
    return (await box.log("late")).strip() == "200"


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scenario(Path(sys.argv[1])))))
