"""From a pod object to what the shim runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from windlass.api.annotations import UMASK
from windlass.api.devices.assignment_annotations import DeviceAssignment
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.node.devices.container_devices import VisibleDevice
from windlass.node.devices.mps import Daemon
from windlass.node.limits import Enforcement
from windlass.node.options import ImageEntry
from windlass.node.pods.environment import ContainerConfigError, PodFacts
from windlass.node.pods.files.volumes import PodVolume
from windlass.node.pods.launch_spec import PodSetting, launch_spec_of
from windlass.node.sandbox.pod_network import NO_ISOLATION, Capabilities

ALL = Capabilities(False, ("mnt", "net", "uts", "ipc"), True)
CARDS = [VisibleDevice(DeviceRecord(n, f"GPU-{n}"), DeviceAssignment(n), f"GPU-{n}") for n in range(4)]


def made(container: dict[str, Any], spec: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [container], **(spec or {})},
    }
    values: dict[str, Any] = {
        "facts": PodFacts(pod, "10.0.0.5", "h", {}),
        "lookup": lambda *_: None,
        "directory": Path("/state/pods/u"),
        "volumes": {"v": PodVolume("v", "/state/pods/u/volumes/v", "emptyDir")},
        "hostname": "p",
        "capabilities": ALL,
        "devices": {},
        "images": {},
        "own_environment": {"PATH": "/bin", "SECRET": "no"},
        **changes,
    }
    return launch_spec_of(container, 2, PodSetting(**values), Enforcement(affinity=(1,)), Path("/l")).record


def test_the_record_of_an_attempt() -> None:
    container = {
        "name": "c",
        "command": ["run", "$(HOSTNAME)"],
        "volumeMounts": [{"name": "v", "mountPath": "/data"}],
    }
    record = made(container, devices={"c": CARDS[2:]}, device_kinds=("nvidia.com/gpu",))
    assert record["argv"] == ["run", "p"]
    assert record["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-3"
    assert "SECRET" not in record["env"]
    daemon = made(
        container, devices={"c": CARDS}, device_kinds=("nvidia.com/gpu",), mps_daemon=Daemon("/run/mps")
    )
    assert daemon["env"]["CUDA_MPS_PIPE_DIRECTORY"].startswith("/nonexistent")
    own = {**container, "env": [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/mine"}]}
    kept = made(own, devices={"c": CARDS}, device_kinds=("nvidia.com/gpu",), mps_daemon=Daemon("/run/mps"))
    assert kept["env"]["CUDA_MPS_PIPE_DIRECTORY"] == "/mine"
    assert record["cwd"] == "/state/pods/u/work"
    assert record["affinity"] == [1]
    assert record["mounts"][0]["target"] == "/data"
    assert record["pid_namespace"] is True
    assert made(container, {"hostPID": True})["pid_namespace"] is False
    assert made(container, {"terminationGracePeriodSeconds": 7})["grace_seconds"] == 7


def test_without_namespaces_names_and_mount_paths_are_replaced_as_whole_words() -> None:
    container = {
        "name": "c",
        "command": ["cat", "/data/x", "/database", "--out=/data", "m-0:29500", "data:1"],
        "workingDir": "/data/sub",
        "env": [{"name": "DIR", "value": "/data"}, {"name": "PATH", "value": "/data/bin"}],
        "volumeMounts": [{"name": "v", "mountPath": "/data"}],
    }
    record = made(
        container,
        capabilities=NO_ISOLATION,
        names={"m-0": "127.0.0.9", "data": "127.0.0.8", "v": "127.0.0.8"},
    )
    here = "/state/pods/u/volumes/v"
    assert record["argv"] == [
        "cat",
        f"{here}/x",
        "/database",
        f"--out={here}",
        "127.0.0.9:29500",
        "127.0.0.8:1",
    ]
    assert record["cwd"] == f"{here}/sub"
    assert record["env"]["DIR"] == here
    assert record["mount_namespace"] is False


def test_images_give_environment_folder_and_command() -> None:
    images = {"lab/*": ImageEntry(path="/opt/lab", venv="/opt/venv", env={"A": "1"}, command=("serve",))}
    record = made({"name": "c", "image": "lab/x:1"}, images=images)
    assert record["argv"] == ["serve"]
    assert record["cwd"] == "/opt/lab"
    assert record["env"]["PATH"] == "/opt/venv/bin:/opt/lab/bin:/bin"
    assert record["env"]["VIRTUAL_ENV"] == "/opt/venv"
    assert made({"name": "c", "image": "other"}, images=images)["argv"][0] == "/bin/sh"  # a placeholder


@pytest.mark.parametrize(
    ("of_the_pod", "of_the_container", "stays"),
    [("Always", None, True), (None, None, True), ("Never", None, False), ("OnFailure", None, False),
     ("Never", "Always", True), ("Always", "Never", False)],
)  # fmt: skip
def test_a_placeholder_stays_where_its_end_would_bring_it_back(
    of_the_pod: str | None, of_the_container: str | None, stays: bool
) -> None:
    container = {"name": "c", "image": "x"} | (
        {"restartPolicy": of_the_container} if of_the_container else {}
    )
    record = made(container, {"restartPolicy": of_the_pod} if of_the_pod else {})
    assert ("sleep infinity" in record["argv"][2]) is stays
    assert ("ends with 0" in record["argv"][2]) is not stays


def record_with_umask(annotation: str | None) -> dict[str, Any]:
    annotations = {} if annotation is None else {UMASK: annotation}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {"containers": []},
    }
    return made({"name": "c", "command": ["true"]}, facts=PodFacts(pod, "10.0.0.5", "h", {}))


@pytest.mark.parametrize(("annotation", "umask"), [(None, 0o022), ("0077", 0o077), ("2", 0o002)])
def test_umask_is_that_of_the_annotation(annotation: str | None, umask: int) -> None:
    assert record_with_umask(annotation)["umask"] == umask


@pytest.mark.parametrize("annotation", ["u=rwx", "1777", "8", "-1"])
def test_umask_that_is_not_an_octal_number_is_an_error(annotation: str) -> None:
    with pytest.raises(ContainerConfigError, match=f'annotation {UMASK}: "{annotation}"'):
        record_with_umask(annotation)


def test_users(monkeypatch: pytest.MonkeyPatch) -> None:
    context = {
        "securityContext": {"runAsUser": 12345, "runAsGroup": 99, "fsGroup": 7, "supplementalGroups": [3]}
    }
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    record = made({"name": "c"}, context)
    assert (record["uid"], record["gid"], record["groups"]) == (12345, 99, [3, 7, 99])
    with pytest.raises(ContainerConfigError, match="runAsNonRoot"):
        made({"name": "c", "securityContext": {"runAsNonRoot": True}})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    record = made({"name": "c"}, context, capabilities=Capabilities(True, ALL.namespaces, True))
    assert record["own_ids"] == {"uid": 1000, "gid": 1000}  # its own ids again, in a nested namespace
    assert "uid" not in record
