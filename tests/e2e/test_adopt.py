"""A cluster that another gang scheduler serves is taken over queue by queue, and given back, while its pods run on.

With Volcano's own scheduler and KAI's programs where they are built (``tools/kubernetes/build.sh --peers``), else with
a stand-in that passes over the same PodGroups.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from clusters import Cluster, eventually
from installedkube import windlass
from realkube import serving
from takeover_cluster import Scene
from takeover_peers import KaiScene, VolcanoScene

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
SCHEDULER = "/apis/apps/v1/namespaces/windlass-system/deployments/windlass-scheduler"


@pytest.fixture(scope="module", params=[VolcanoScene, KaiScene], ids=["volcano", "kai"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with serving(tmp_path_factory.mktemp("adoptkube"), crds=True) as kube:
        api = Cluster.of_real(kube)
        made: Scene = request.param(kube, api)
        try:
            made.world()
            made.start_other()
            yield made
        finally:
            made.stop_windlass()
            made.stop_other()
            made.close()
            api.close()


def test_queue_by_queue_and_back(scene: Scene) -> None:
    for name, queue in (("r1", "research"), ("p1", "prod")):
        scene.gang(name, queue, 2)
    before = {name: scene.run(name) for name in ("r1", "p1")}

    report = scene.say("install", "--adopt", scene.kind, "--dry-run")
    assert (
        f"{scene.kind}-s" in report
    )  # volcano-system/volcano-scheduler, kai-scheduler/kai-scheduler-default
    assert "allocate" in report
    assert not scene.handed("r1")

    image = "registry.example/windlass:1"  # said once, and kept by every step after
    scene.say("install", "--adopt", scene.kind, "--image", image)  # beside: nobody's queue changes hands
    scene.start_windlass()
    for word in ("install", "uninstall"):  # both would decide everything, or nobody what was handed over
        alone = windlass(scene.kube, word)
        assert (alone.returncode, "WL-ADOPT-409" in alone.stderr) == (5, True)
    handed = scene.say("install", "--adopt", scene.kind, "-q", "research")
    assert (
        "queue research: 1 gang handed over to Windlass; 0 pending pods, 2 running pods untouched" in handed
    )
    assert scene.handed("r1")
    assert not scene.handed("p1")
    shown = windlass(scene.kube, "queue", "tree")
    assert shown.returncode == 0
    assert "adopted.windlass.dev" not in shown.stdout + shown.stderr  # the mark is between the schedulers

    for name, queue in (("r2", "research"), ("p2", "prod")):
        scene.gang(name, queue, 2)
        scene.run(name)
        eventually(partial(scene.shown_running, name))
    wanted = {"r2-0": {"windlass"}, "r2-1": {"windlass"}, "p2-0": {"other"}, "p2-1": {"other"}}

    def told() -> bool:
        found = {pod: by for pod, by in scene.binders().items() if pod.startswith(("r2", "p2"))}
        assert found == wanted
        return True

    eventually(told)
    used = [pod["spec"]["nodeName"] for name in ("r1", "p1", "r2", "p2") for pod in scene.bound(name)]
    assert sorted(used) == ["gpu-1"] * 4 + ["gpu-2"] * 4  # each counted what the other had placed

    scene.gang("r3", "research", 2)  # no room: Windlass says why
    eventually(lambda: "windlass.dev/explanation" in scene.told("r3"))
    rehearsed = scene.say("uninstall", "--adopted", "-q", "research", "--dry-run")
    assert rehearsed == f"queue research would be given back to {scene.title}\n"
    assert scene.handed("r3")
    back = scene.say("uninstall", "--adopted", "-q", "research")
    assert f"queue research: 3 gangs given back to {scene.title}" in back
    assert not scene.handed("r3")
    scene.end("p2")
    scene.run("r3")
    eventually(lambda: scene.binders()["r3-0"] == {"other"})
    assert {name: scene.lasting(name) for name in before} == before


@pytest.mark.parametrize(
    "scene", [KaiScene], ids=["kai"], indirect=True
)  # nobody else reserves cards by pods
def test_gangs_that_share_cards_stay_with_kai(scene: Scene) -> None:
    scene.gang("s1", "research", 1, **{"gpu-fraction": "0.5"})
    handed = scene.say("install", "--adopt", "kai", "-q", "research")
    assert "3 gangs handed over to Windlass, 1 stay with KAI" in handed
    assert not scene.handed("s1")
    scene.gang("s2", "research", 1, **{"gpu-memory": "1000"})  # one that comes later

    def told() -> bool:
        found = scene.api.get(f"/api/v1/namespaces/{scene.space}/events").ok()["items"]
        return {e["involvedObject"]["name"] for e in found if e["reason"] == "NotAdopted"} >= {"s1", "s2"}

    eventually(told)
    assert not scene.handed("s2")
    marked = [word for name in ("default", "prod") for word in ("-q", name)]
    refused = windlass(scene.kube, "install", "--adopt", "kai", "--finish", *marked)
    assert refused.returncode == 5
    assert "2 gangs that stay with KAI" in refused.stderr
    for name in ("s1", "s2"):
        scene.end(name)
        scene.api.delete(f"{scene.groups}/{name}").ok()
    assert not {"s1-0", "s2-0"} & scene.binders().keys()
    scene.say("uninstall", "--adopted", "-q", "org")  # all below it
    assert not scene.handed("r1")


def test_all_queues_and_the_end_of_the_other_and_back_again(scene: Scene) -> None:
    for name in ("p2", "r2", "r3"):
        scene.end(name)
    before = {name: scene.lasting(name) for name in ("r1", "p1")}
    refused = windlass(scene.kube, "install", "--adopt", scene.kind, "--finish")
    assert refused.returncode == 5
    assert "WL-ADOPT-409" in refused.stderr
    assert "default, prod, research" in refused.stderr

    marked = [word for name in ("default", "prod", "research") for word in ("-q", name)]
    ended = scene.meanwhile("install", "--adopt", scene.kind, "--finish", *marked)
    eventually(lambda: scene.instances() == 0)
    scene.stop_other()
    assert f"{scene.title} schedules nothing any more" in ended()
    (container,) = scene.api.get(SCHEDULER).ok()["spec"]["template"]["spec"]["containers"]
    assert not [word for word in container["args"] if word.startswith("--beside")]
    assert container["image"] == "registry.example/windlass:1"
    again = scene.say("install")  # what is served now is served on
    assert {line.rpartition(" ")[2] for line in again.splitlines()} == {"unchanged"}, again
    scene.start_windlass()  # the Deployments have changed
    eventually(lambda: not scene.handed("r1"))
    scene.gang("r4", "research", 2)
    scene.run("r4")
    eventually(lambda: scene.binders()["r4-0"] == {"windlass"})

    returned = scene.meanwhile("uninstall", "--adopted")

    def beside() -> bool:
        (container,) = scene.api.get(SCHEDULER).ok()["spec"]["template"]["spec"]["containers"]
        return f"--beside={scene.kind}" in container["args"]

    eventually(beside)
    scene.start_windlass()
    eventually(lambda: scene.instances() == 1)
    scene.start_other()
    assert f"queue research: 4 gangs given back to {scene.title}" in returned()
    assert scene.api.get(SCHEDULER).status == 404
    scene.stop_windlass()
    scene.gang("p3", "prod", 2)
    scene.run("p3")
    eventually(lambda: scene.binders()["p3-0"] == {"other"})
    assert {name: scene.lasting(name) for name in before} == before
