"""``windlass install --gpu-sharing``: cards of device plug-ins are held as it is installed, with exactly its rights.

Kubelet and device plugin follow their rules in a simulation (:mod:`device_plugin_kubelet`). Everything else is a
real cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import audited_rights
import pytest
from clusters import Cluster
from device_plugin_kubelet import LiveKubelet
from installedkube import InstalledProcess, windlass
from realkube import RealKube, serving
from scheduling_over_http import Scene, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import NODES, PODS
from windlass.cli.install.gpu_sharing import RESERVATION_NAMESPACE as HELD

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
CARDS = ["GPU-1", "GPU-0"]


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    with serving(tmp_path_factory.mktemp("sharingkube")) as made:
        yield made


class World(Scene):
    """One node with two cards and its kubelet; who shares them."""

    async def set_up(self) -> None:
        await self.make_queue()
        self.where = await self.node("n", 2)
        self.kubelet = LiveKubelet(self.connect("kubelet"), {self.where: CARDS})
        self.playing = asyncio.create_task(self.kubelet.run())

    async def end(self) -> None:
        self.playing.cancel()
        await asyncio.gather(self.playing, return_exceptions=True)
        await self.kubelet.close()
        await self.close()

    async def sharer(self, name: str) -> None:
        notes = {"scheduling.volcano.sh/queue-name": self.queue, "gpu-fraction": "0.5"}
        spec = {
            "schedulerName": "windlass",
            "restartPolicy": "Never",
            "nodeSelector": {"scene": self.namespace},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "train"}],
        }
        meta = {"name": name, "namespace": self.namespace, "annotations": notes}
        await self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def told(self) -> dict[str, str]:
        """Pods that run → their card, where the container is told of it."""
        found = {}
        for pod in (await self.client.list(PODS, self.namespace)).items:
            env = pod["spec"]["containers"][0].get("env") or [{}]
            if pod["status"].get("phase") == "Running" and env[0].get("name") == "NVIDIA_VISIBLE_DEVICES":
                notes = pod["metadata"]["annotations"]
                found[pod["metadata"]["name"]] = notes["windlass.dev/visible-devices"]
        return found

    async def held(self) -> int:
        return len((await self.client.list(PODS, HELD)).items)

    async def gone(self, name: str) -> None:
        await self.client.delete(PODS, name, self.namespace)


@pytest.fixture
def api(kube: RealKube) -> Iterator[Cluster]:
    cluster = Cluster.of_real(kube)
    yield cluster
    cluster.close()


async def ran(kube: RealKube, *arguments: str) -> tuple[str, str]:
    """Output and notes of a command that succeeds."""
    done = await asyncio.to_thread(windlass, kube, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


async def test_two_share_a_card_as_installed_and_it_is_let_go(kube: RealKube, api: Cluster) -> None:
    said, _ = await ran(kube, "install", "--gpu-sharing", "--dry-run")
    assert f"namespace/{HELD} created (dry run)" in said
    assert api.get(f"/api/v1/namespaces/{HELD}").status == 404
    await ran(kube, "install", "--gpu-sharing")
    again, notes = await ran(kube, "install")
    assert notes == "unchanged options: GPU sharing (--reset sets the defaults)\n"
    assert {line.rpartition(" ")[2] for line in again.splitlines()} == {"unchanged"}, again
    assert "runtime class nvidia does not exist" in (await found_by_doctor(kube))
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    api.post("/apis/node.k8s.io/v1/runtimeclasses", runtime).ok(201)

    parts = [InstalledProcess(kube, api, part) for part in ("controllers", "scheduler")]
    world = World(api, api.new_namespace("sharing"))
    try:
        await world.set_up()
        await scene(kube, world, parts)
    except (AssertionError, StatusError) as error:
        words = "\n".join(part.text()[-2000:] for part in parts)
        raise AssertionError(f"{error}\n{words}") from error
    finally:
        for part in parts:
            await asyncio.to_thread(part.stop)
        await world.end()
    requests = list(audited_rights.asked(kube.audit_log))
    assert [one for one in requests if one.code == 403] == []
    assert audited_rights.denied(requests, "install-gpu-sharing.yaml") == []
    more = {(one.right, one.namespace) for one in audited_rights.denied(requests)}
    assert more == {(("scheduler", "", "pods", "create"), HELD)}, "just the right that the flag adds"


async def scene(kube: RealKube, world: World, parts: list[InstalledProcess]) -> None:
    for name in ("a", "b"):
        await world.sharer(name)

    async def both() -> bool:
        found = await world.told()
        return set(found) == {"a", "b"} and set(found.values()) <= set(CARDS)

    await eventually(both, "two run on one card")
    assert len(set((await world.told()).values())) == await world.held() == 1
    assert not world.kubelet.refused
    assert "1 GPU reserved" in await found_by_doctor(kube)

    # It goes while a card is held: what protects the card stays.
    said, notes = await ran(kube, "install", "--no-gpu-sharing")
    assert f"1 GPU is still reserved in namespace {HELD}" in notes
    assert [line.split("/")[0] for line in said.splitlines() if line.endswith(" deleted")] == [
        "mutatingadmissionpolicybinding.admissionregistration.k8s.io",
        "mutatingadmissionpolicy.admissionregistration.k8s.io",
        "rolebinding.rbac.authorization.k8s.io",
        "role.rbac.authorization.k8s.io",
    ]
    (held,) = (await world.client.list(PODS, HELD)).items
    with pytest.raises(StatusError) as refused:
        await world.client.evict(HELD, held["metadata"]["name"])
    assert refused.value.code == 429, "what holds a card is not drained away"
    for name in ("a", "b"):
        await world.gone(name)

    async def free() -> bool:
        return not await world.held()

    await eventually(free, "the card is let go")
    for part in parts:  # no pods of theirs are there to end with their Deployments
        await asyncio.to_thread(part.stop)
    rehearsed, _ = await ran(kube, "uninstall", "--dry-run")
    assert f"namespace/{HELD} would be deleted" in rehearsed
    said, notes = await ran(kube, "uninstall")
    assert f"namespace/{HELD} deleted" in said
    assert not notes
    assert await world.client.get(NODES, world.where)


async def found_by_doctor(kube: RealKube) -> str:
    """Return the lines about shared GPUs."""
    done = await asyncio.to_thread(windlass, kube, "--context", "real", "doctor")
    return "\n".join(line for line in done.stdout.splitlines() if "shared GPUs" in line)
