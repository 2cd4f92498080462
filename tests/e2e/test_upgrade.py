"""From one version of the kinds to the next and back on a real server, with the objects kept."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import Cluster, eventually
from installedkube import CRDS, windlass
from realkube import RealKube, serving

from windlass.cli.install.objects import definitions

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
NAME = "queues.scheduling.volcano.sh"
GROUP = "/apis/scheduling.volcano.sh"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    with serving(tmp_path_factory.mktemp("upgradekube"), controllers=False, audit=False) as made:
        yield made


@pytest.fixture
def api(kube: RealKube) -> Iterator[Cluster]:
    cluster = Cluster.of_real(kube)
    yield cluster
    cluster.close()


def queues(*versions: tuple[str, bool, bool], loose: bool = False) -> Json:
    """The definition of queues with these versions (name, served, stored); ``loose``: anything goes in the spec."""
    made = copy.deepcopy(next(one for one in definitions() if one["metadata"]["name"] == NAME))
    (template,) = made["spec"]["versions"]
    made["spec"]["versions"] = []
    for name, served, stored in versions:
        version = {**copy.deepcopy(template), "name": name, "served": served, "storage": stored}
        if loose:
            anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            version["schema"]["openAPIV3Schema"]["properties"]["spec"] = anything
        made["spec"]["versions"].append(version)
    return made


def apply(api: Cluster, definition: Json) -> None:
    present = api.get(f"{CRDS}/{NAME}")
    if present.status == 404:
        api.post(CRDS, definition).ok(201)
    else:
        definition["metadata"]["resourceVersion"] = present.ok()["metadata"]["resourceVersion"]
        api.put(f"{CRDS}/{NAME}", definition).ok()
    served = [version["name"] for version in definition["spec"]["versions"] if version["served"]]
    for version in served:
        eventually(lambda version=version: api.get(f"{GROUP}/{version}/queues").status == 200)


def stored(api: Cluster) -> list[str]:
    return api.get(f"{CRDS}/{NAME}").ok()["status"]["storedVersions"]


def found(kube: RealKube, *arguments: str) -> tuple[int, dict[str, list[Json]]]:
    """The exit status, and the findings by level."""
    done = windlass(kube, "upgrade", *arguments, "-o", "json")
    assert done.stdout, done.stderr
    levels: dict[str, list[Json]] = {"stop": [], "note": [], "ok": []}
    for finding in json.loads(done.stdout)["findings"]:
        levels[finding["level"]].append(finding)
    return done.returncode, levels


def test_up_and_back_with_the_objects_kept(kube: RealKube, api: Cluster) -> None:
    old, new = ("v1alpha9", True, True), ("v1beta1", True, True)
    apply(api, queues(old, loose=True))
    body = {"kind": "Queue", "metadata": {"name": "kept"}, "spec": {"weight": 3, "capability": {"cpu": "8"}}}
    api.post(f"{GROUP}/v1alpha9/queues", {**body, "apiVersion": "scheduling.volcano.sh/v1alpha9"}).ok(201)
    spoilt = {"metadata": {"name": "spoilt"}, "spec": {"weight": "much", "colour": "red"}}
    spoilt |= {"kind": "Queue", "apiVersion": "scheduling.volcano.sh/v1alpha9"}
    api.post(f"{GROUP}/v1alpha9/queues", spoilt).ok(201)

    both = (("v1alpha9", True, False), new)
    apply(api, queues(*both, loose=True))
    later = {**body, "apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "later"}}
    api.post(f"{GROUP}/v1beta1/queues", later).ok(201)
    assert stored(api) == ["v1alpha9", "v1beta1"]
    code, levels = found(kube, "--check")
    assert code == 5
    assert stored(api) == ["v1alpha9", "v1beta1"]  # looking changed nothing
    words = " ".join(finding["words"] for finding in levels["stop"])
    assert "objects are stored as v1alpha9" in words
    assert "v1alpha9 is served now" in words
    assert "spec.weight" in words
    assert "spoilt" in words
    assert any("spec.colour" in finding["words"] for finding in levels["note"])

    change = {"spec": {"weight": 1, "colour": None}}
    api.patch(f"{GROUP}/v1beta1/queues/spoilt", change).ok()
    apply(api, queues(("v1alpha9", False, False), new, loose=True))
    code, levels = found(kube, "--migrate-storage")
    assert stored(api) == ["v1beta1"]
    assert (code, levels["stop"]) == (0, []), levels["stop"]
    before = {name: api.get(f"{GROUP}/v1beta1/queues/{name}").ok() for name in ("kept", "later", "spoilt")}
    assert before["kept"]["spec"] == body["spec"]

    done = windlass(kube, "install")
    assert done.returncode == 0, done.stderr
    assert api.get(f"{CRDS}/{NAME}").ok()["spec"]["versions"][0]["name"] == "v1beta1"
    code, levels = found(kube)
    assert (code, levels["stop"]) == (0, []), levels["stop"]
    for name, was in before.items():
        now = api.get(f"{GROUP}/v1beta1/queues/{name}").ok()
        assert now["metadata"]["uid"] == was["metadata"]["uid"]
        assert now["spec"].items() >= was["spec"].items()
    api.patch(f"{GROUP}/v1beta1/queues/kept", {"spec": {"weight": 4}}).ok()

    apply(api, queues(*both, loose=True))  # roll back: what is served and stored is what was
    for version in ("v1alpha9", "v1beta1"):
        now = api.get(f"{GROUP}/{version}/queues/kept").ok()
        assert now["spec"]["weight"] == 4
        assert now["metadata"]["uid"] == before["kept"]["metadata"]["uid"]


def test_versions_and_configuration_are_looked_at(kube: RealKube, api: Cluster) -> None:
    deployment = "/apis/apps/v1/namespaces/windlass-system/deployments/windlass-scheduler"
    assert windlass(kube, "install").returncode == 0
    config = "/api/v1/namespaces/windlass-system/configmaps/windlass-scheduler"
    for version, said in (("0.3.0", "note"), ("0.0.1", "ok")):
        api.patch(deployment, {"metadata": {"labels": {"app.kubernetes.io/version": version}}}).ok()
        _, levels = found(kube)
        assert [one["words"] for one in levels[said] if one["subject"] == "Windlass"], levels
    api.patch(config, {"data": {"windlass.conf": 'actions: "allocate, fly"\n'}}).ok()
    code, levels = found(kube)
    assert code == 5
    assert [one["subject"] for one in levels["stop"]] == ["configuration"]
    done = windlass(kube, "upgrade")
    assert done.returncode == 5
    assert "1 obstacle to remove before this version is installed" in done.stdout
