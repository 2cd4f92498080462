"""Namespaces of pods, through the agent: networks, names, files, the way out."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from node_agent_server import NODE, NodeBox, pod, serving
from realkube import free_ports

from windlass.api import annotations
from windlass.api.resources import EVENTS, PODS, SERVICES
from windlass.node.machine import own_address
from windlass.node.options import AgentOptions
from windlass.node.runtime import attempt_files, syscalls

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"


@pytest.fixture
async def isolated(box: NodeBox) -> NodeBox:
    """The box, where this machine gives pods networks and files of their own."""
    assert box.agent is not None
    missing = {"net", "mnt", "uts"} - set(box.agent.network.capabilities.namespaces)
    if missing:
        pytest.skip(f"this machine refuses namespaces: {box.agent.network.capabilities.refused}")
    return box


SERVE = (
    "import http.server, socket; s = http.server.ThreadingHTTPServer(('0.0.0.0', 8000), "
    "http.server.SimpleHTTPRequestHandler); print('up', flush=True); s.serve_forever()"
)


def get(url: str) -> str:
    code = (
        "import time, urllib.request\n"
        "for n in range(900):\n"
        "    try:\n"
        f"        print(urllib.request.urlopen('{url}', timeout=2).status); break\n"
        "    except OSError as error:\n"
        "        last = error; time.sleep(0.05)\n"
        "else:\n"
        "    raise SystemExit(f'no answer: {last}')\n"
    )
    return code


async def test_two_gangs_use_one_port_at_once_and_find_each_other_by_name(isolated: NodeBox) -> None:
    for gang in ("red", "blue"):
        service = {
            "metadata": {"name": gang, "namespace": "default"},
            "spec": {"clusterIP": "None", "selector": {"gang": gang}},
        }
        await isolated.client.create(SERVICES, service)
        labels = {"metadata": {"labels": {"gang": gang}}, "subdomain": gang}
        await isolated.create(pod(f"{gang}-m-0", PYTHON, "-c", SERVE, **labels))
        for number, name in enumerate(
            (f"{gang}-m-0", f"{gang}-m-0.{gang}", f"{gang}-m-0.{gang}.default.svc.cluster.local")
        ):
            await isolated.create(
                pod(f"{gang}-w-{number}", PYTHON, "-c", get(f"http://{name}:8000/"), **labels)
            )
    for gang in ("red", "blue"):
        for number in range(3):
            found = await isolated.phase(f"{gang}-w-{number}", "Succeeded", "Failed")
            assert found["status"]["phase"] == "Succeeded", await isolated.log(f"{gang}-w-{number}")
    assert (await isolated.get("red-m-0"))["status"]["podIP"] != (await isolated.get("blue-m-0"))["status"][
        "podIP"
    ]
    # Each master was asked by its own gang only.
    for gang in ("red", "blue"):
        own = {(await isolated.get(f"{gang}-w-{n}"))["status"]["podIP"] for n in range(3)}

        async def asked(gang: str = gang) -> set[str]:
            lines = (await isolated.log(f"{gang}-m-0")).splitlines()
            return {line.split()[0] for line in lines if "GET" in line}

        async def all_asked(own: set[str] = own) -> bool:
            return await asked() >= own

        await isolated.until(all_asked)
        assert await asked() == own


async def test_names_of_pods_that_come_later_appear_in_running_pods(isolated: NodeBox) -> None:
    script = "until grep -q late-one /etc/hosts; do sleep 0.05; done; getent hosts late-one"
    await isolated.create(pod("early", "sh", "-c", script))
    await isolated.phase("early", "Running")
    await isolated.create(pod("late-one", "sleep", "1000"))
    late = await isolated.phase("late-one", "Running")
    await isolated.phase("early", "Succeeded")
    assert (await isolated.log("early")).split() == [late["status"]["podIP"], "late-one"]


async def test_a_member_of_a_gang_that_is_not_bound_yet_resolves_already(isolated: NodeBox) -> None:
    group = {"annotations": {annotations.GROUP_NAME: "g"}}
    waiting = pod("g-1", "sleep", "1000", metadata=group, subdomain="g")
    del waiting["spec"]["nodeName"]
    await isolated.create(waiting)
    await isolated.create(pod("g-0", "getent", "hosts", "g-1.g", metadata=group, subdomain="g"))
    await isolated.phase("g-0", "Succeeded")
    address = (await isolated.log("g-0")).split()[0]
    await isolated.client.bind("default", "g-1", NODE, uid=(await isolated.get("g-1"))["metadata"]["uid"])
    assert (await isolated.phase("g-1", "Running"))["status"]["podIP"] == address


async def test_hostname_localhost_and_the_machine_stay_apart(isolated: NodeBox) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code = (
            "import socket\n"
            "print(socket.gethostname())\n"
            "own = socket.create_server(('localhost', 0)); socket.create_connection(own.getsockname()).close()\n"
            f"print(socket.socket().connect_ex(('127.0.0.1', {port})) != 0)\n"
            "print(socket.gethostbyname(socket.gethostname()))\n"
        )
        await isolated.create(pod("p", PYTHON, "-c", code, hostname="my-host"))
        found = await isolated.phase("p", "Succeeded", "Failed")
        assert await isolated.log("p") == f"my-host\nTrue\n{found['status']['podIP']}\n"
        assert socket.gethostname() != "my-host"
        host = pod(
            "h",
            PYTHON,
            "-c",
            f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))",
            hostNetwork=True,
        )
        await isolated.create(host)
        await isolated.phase("h", "Succeeded", "Failed")
        assert await isolated.log("h") == "0\n"


@pytest.mark.parametrize(("policy", "known"), [("ClusterFirstWithHostNet", True), ("ClusterFirst", False)])
async def test_on_the_machines_network_names_are_known_by_dns_policy(
    isolated: NodeBox, policy: str, known: bool
) -> None:
    await isolated.create(pod("peer", "sleep", "1000", subdomain="g", hostname="peer"))
    peer = await isolated.phase("peer", "Running")
    asks = "cat /etc/hosts; getent hosts peer.g || echo unknown"
    await isolated.create(pod("h", "sh", "-c", asks, hostNetwork=True, dnsPolicy=policy))
    await isolated.phase("h", "Succeeded", "Failed")
    told = await isolated.log("h")
    assert told.splitlines()[-1].split()[0] == (peer["status"]["podIP"] if known else "unknown")
    own = {line for line in Path("/etc/hosts").read_text().splitlines() if line.strip()}
    assert own <= set(told.splitlines()), "what the machine knows is known"


async def test_containers_of_a_pod_share_network_and_memory(isolated: NodeBox) -> None:
    spec = pod("two", PYTHON, "-c", SERVE)
    spec["spec"]["containers"] += [
        {"name": "ask", "image": "x", "command": [PYTHON, "-c", get("http://localhost:8000/")]},
        {"name": "shm", "image": "x", "command": ["sh", "-c", "echo x > /dev/shm/windlass-test; sleep 1000"]},
        {
            "name": "see",
            "image": "x",
            "command": ["sh", "-c", "until test -e /dev/shm/windlass-test; do sleep 0.05; done"],
        },
    ]
    await isolated.create(spec)

    async def both() -> bool:
        states = (await isolated.get("two")).get("status", {}).get("containerStatuses", [])
        ended = {s["name"]: s["state"].get("terminated", {}).get("exitCode") for s in states}
        return ended.get("ask") == 0 and ended.get("see") == 0

    await isolated.until(both)
    assert not Path("/dev/shm/windlass-test").exists()


async def test_processes_of_other_pods_are_not_seen(isolated: NodeBox) -> None:
    assert isolated.agent is not None
    if not isolated.agent.network.capabilities.pid:
        pytest.skip("this machine refuses pid namespaces")
    await isolated.create(pod("other", "sleep", "98765"))
    await isolated.phase("other", "Running")
    await isolated.create(pod("p", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
    await isolated.phase("p", "Succeeded")
    assert "98765" not in await isolated.log("p")


async def test_the_machine_reaches_its_pods(isolated: NodeBox) -> None:
    """The agent's reach for probes: by the uplink as root, through the box otherwise."""
    await isolated.create(pod("p", PYTHON, "-c", SERVE))
    found = await isolated.phase("p", "Running")
    assert isolated.agent is not None
    network = isolated.agent.network

    async def answers() -> bool:
        try:
            connection = await network.connect(found["status"]["podIP"], 8000)
        except OSError:
            return False
        with connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(12).startswith(b"HTTP/1.0 200")

    await isolated.until(answers)


async def test_the_network_outlives_the_agent_and_new_pods_join_it(isolated: NodeBox) -> None:
    await isolated.create(pod("old", PYTHON, "-c", SERVE))
    await isolated.phase("old", "Running")
    await isolated.kill_agent()
    await isolated.start_agent()
    await isolated.create(pod("new", PYTHON, "-c", get("http://old:8000/")))
    found = await isolated.phase("new", "Succeeded", "Failed")
    assert found["status"]["phase"] == "Succeeded"


async def test_the_way_out_leads_to_the_machine_itself(isolated: NodeBox) -> None:
    assert isolated.agent is not None
    outbound = isolated.agent.network.outbound
    if outbound.kind == "none":
        pytest.skip(f"no outbound traffic here: {outbound.note}")
    address = own_address()
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(('{address}', {port}), 5); print('out')"
        await isolated.create(pod("p", PYTHON, "-c", code))
        await isolated.phase("p", "Succeeded", "Failed")
        assert await isolated.log("p") == "out\n"


async def test_a_holder_that_was_killed_costs_running_pods_nothing(isolated: NodeBox) -> None:
    await isolated.create(pod("a", PYTHON, "-c", SERVE))
    await isolated.phase("a", "Running")
    holder = attempt_files.read(str(isolated.state.node), "box.json")
    assert holder is not None
    os.kill(holder["pid"], 9)
    await isolated.until(lambda: syscalls.start_time(holder["pid"]) is None)
    await isolated.create(pod("b", PYTHON, "-c", get("http://a:8000/")))
    found = await isolated.phase("b", "Succeeded", "Failed")
    assert found["status"]["phase"] == "Succeeded", await isolated.log("b")
    assert (await isolated.get("a"))["status"]["phase"] == "Running"


async def test_nothing_is_left_of_the_network_at_the_end(tmp_path: Path) -> None:
    def links() -> set[str]:
        return {name for _, name in socket.if_nameindex()}

    async with serving(tmp_path) as box:
        await box.create(pod("p", "sleep", "1000"))
        await box.phase("p", "Running")
        assert box.agent is not None
        mine = box.agent.network.uplink  # other boxes of this machine have links of their own
        assert not mine or mine in links()
        await box.client.delete(PODS, "p", "default", grace_seconds=1)
        await box.gone("p")
        holder = attempt_files.read(str(box.state.node), "box.json")
    assert holder is None or syscalls.start_time(holder["pid"]) is None
    async with asyncio.timeout(60):
        while mine in links():
            await asyncio.sleep(0.05)  # the kernel takes namespaces apart in its own time


# -- without namespaces ----------------------------------------------------------------------------


async def test_without_namespaces_names_and_paths_are_replaced_and_it_is_said(tmp_path: Path) -> None:
    options = AgentOptions(node_name=NODE, gpus="none", isolation="none")
    async with serving(tmp_path, options) as box:
        port = free_ports(1)[0]
        # Not an HTTPServer: before it listens it asks the name server for the name of its address.
        serve = (
            "import http.server, socket, socketserver\n"
            f"address = socket.gethostbyname('m-0.m'), {port}\n"
            "server = socketserver.ThreadingTCPServer(address, http.server.SimpleHTTPRequestHandler)\n"
            "server.serve_forever()\n"
        )
        await box.create(pod("m-0", PYTHON, "-c", serve, subdomain="m"))
        master = await box.phase("m-0", "Running")
        assert master["status"]["podIP"].startswith("127.")
        container = {
            "env": [{"name": "MASTER_ADDR", "value": "m-0.m"}],
            "volumeMounts": [{"name": "v", "mountPath": "/data/x"}],
        }
        script = f'echo $MASTER_ADDR; echo hi > /data/x/f && cat /data/x/f; {PYTHON} -c "{get(f"http://m-0:{port}/")}"'
        volumes = [{"name": "v", "emptyDir": {}}]
        await box.create(pod("w-0", "sh", "-c", script, container=container, volumes=volumes, subdomain="m"))
        await box.phase("w-0", "Succeeded", "Failed")
        said = await box.log("w-0")
        assert said == f"{master['status']['podIP']}\nhi\n200\n", await box.log("m-0")
        assert box.agent is not None
        await box.agent.recorder.drain()
        reasons = {e["reason"] for e in (await box.client.list(EVENTS, "default")).items}
        assert {"SharedNetwork", "SharedFiles"} <= reasons
