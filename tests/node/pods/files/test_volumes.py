"""Volumes: what lies where, and what is mounted."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from windlass.node.options import ImageEntry
from windlass.node.pods.environment import ContainerConfigError, PodFacts
from windlass.node.pods.files.volumes import (
    PodVolume,
    VolumeRoots,
    container_mounts,
    layout,
    materialise,
    references,
)
from windlass.node.runtime.mounts import Mount


def facts(*volumes: dict[str, Any]) -> PodFacts:
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}
    return PodFacts({"metadata": metadata, "spec": {"volumes": list(volumes)}}, "10.0.0.1", "h", {})


def made(
    tmp_path: Path, *volumes: dict[str, Any], objects: dict[tuple[str, str], Any] | None = None
) -> list[PodVolume]:
    places = VolumeRoots(tmp_path / "pod", tmp_path / "claims")
    found = layout(facts(*volumes), lambda kind, name: (objects or {}).get((kind, name)), places)
    materialise(found)
    return found


OBJECTS = {
    ("ConfigMap", "cm"): {
        "kind": "ConfigMap",
        "data": {"a.txt": "A", "b.txt": "B"},
        "binaryData": {"c": "AAE="},
    },
    ("Secret", "s"): {"kind": "Secret", "data": {"key": base64.b64encode(b"K").decode()}},
}


def test_config_map_and_secret_files_with_items_and_modes(tmp_path: Path) -> None:
    whole, picked, secret = made(
        tmp_path,
        {"name": "whole", "configMap": {"name": "cm"}},
        {
            "name": "picked",
            "configMap": {"name": "cm", "items": [{"key": "a.txt", "path": "deep/a", "mode": 0o600}]},
        },
        {"name": "sec", "secret": {"secretName": "s", "defaultMode": 0o400}},
        objects=OBJECTS,
    )
    assert {p.name: p.read_bytes() for p in Path(whole.source).iterdir()} == {
        "a.txt": b"A",
        "b.txt": b"B",
        "c": b"\x00\x01",
    }
    deep = Path(picked.source) / "deep/a"
    assert deep.read_text() == "A"
    assert stat.S_IMODE(deep.stat().st_mode) == 0o600
    assert stat.S_IMODE((Path(secret.source) / "key").stat().st_mode) == 0o400
    assert whole.read_only
    assert secret.read_only


def test_downward_and_projected(tmp_path: Path) -> None:
    down, projected = made(
        tmp_path,
        {
            "name": "d",
            "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        },
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"configMap": {"name": "cm", "items": [{"key": "b.txt", "path": "b"}]}},
                    {"secret": {"name": "s"}},
                    {"secret": {"name": "none", "optional": True}},
                    {"serviceAccountToken": {"path": "token"}},
                ]
            },
        },
        objects=OBJECTS,
    )
    assert (Path(down.source) / "l").read_text() == 'a="b"'
    assert sorted(os.listdir(projected.source)) == ["b", "key"]  # no credentials of the control plane


def test_claims_are_directories_that_outlive_the_pod(tmp_path: Path) -> None:
    for source, expected in (
        ({"hostPath": {"path": f"{tmp_path}/pv"}}, tmp_path / "pv"),
        ({"local": {"path": f"{tmp_path}/local"}}, tmp_path / "local"),
        ({"nfs": {"server": "s", "path": "/x"}}, tmp_path / "claims/ns_data"),
    ):
        objects = {("PersistentVolumeClaim", "data"): {"volume": {"spec": source}}}
        volume = {"name": "c", "persistentVolumeClaim": {"claimName": "data"}}
        (claim,) = made(tmp_path, volume, objects=objects)
        assert claim.source == str(expected)
        assert os.path.isdir(claim.source)


def test_claims_without_volume_are_not_mounted(tmp_path: Path) -> None:
    for objects, message in (
        ({}, 'persistentvolumeclaim "data" not found'),
        (
            {("PersistentVolumeClaim", "data"): {"volume": None}},
            "error processing PVC ns/data: PVC is not bound",
        ),
    ):
        with pytest.raises(ContainerConfigError, match=r"PVC|not found") as caught:
            made(
                tmp_path,
                {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                objects=objects,
            )
        assert caught.value.message == message


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"name": "v", "configMap": {"name": "no"}}, 'configmap "no" not found'),
        ({"name": "v", "secret": {"secretName": "no"}}, 'secret "no" not found'),
        ({"name": "v", "persistentVolumeClaim": {"claimName": "x/../../up"}}, "not the name of a claim"),
        (
            {"name": "v", "configMap": {"name": "cm", "items": [{"key": "zz", "path": "x"}]}},
            "non-existent config key: zz",
        ),
        (
            {"name": "v", "configMap": {"name": "cm", "items": [{"key": "a.txt", "path": "../x"}]}},
            'must not contain "..',
        ),
        ({"name": "v", "nfs": {"server": "x", "path": "/"}}, "nfs is not supported on this machine"),
        ({"name": "v", "hostPath": {"path": "/no/such", "type": "Directory"}}, "mkdir -p /no/such"),
        ({"name": "v", "hostPath": {"path": "/etc/passwd", "type": "Directory"}}, "not a directory"),
        ({"name": "v", "hostPath": {"path": "/etc", "type": "Socket"}}, "not a socket"),
    ],
)
def test_what_cannot_be_had_is_told_as_a_failed_mount(
    tmp_path: Path, volume: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContainerConfigError, match=message) as caught:
        made(tmp_path, volume, objects=OBJECTS)
    assert caught.value.reason == "FailedMount"


def test_host_paths_are_made_when_their_type_says_so(tmp_path: Path) -> None:
    folder, file = tmp_path / "new/dir", tmp_path / "new-file"
    made(
        tmp_path,
        {"name": "d", "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"}},
        {"name": "f", "hostPath": {"path": str(file), "type": "FileOrCreate"}},
    )
    assert folder.is_dir()
    assert file.is_file()


def test_mounts_with_sub_paths_and_read_only(tmp_path: Path) -> None:
    source = tmp_path / "vol"
    source.mkdir()
    volumes = {
        "v": PodVolume("v", str(source), "emptyDir"),
        "ro": PodVolume("ro", "/etc", "configMap", read_only=True),
    }
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/data/", "readOnly": True},
            {"name": "v", "mountPath": "/sub", "subPath": "a/b"},
            {"name": "v", "mountPath": "/exp", "subPathExpr": "$(POD)-x"},
            {"name": "ro", "mountPath": "/cfg"},
        ]
    }
    found = container_mounts(container, volumes, {"POD": "p1"})
    assert found.mounts == [
        Mount(str(source), "/data", True),
        Mount(str(source / "a/b"), "/sub"),
        Mount(str(source / "p1-x"), "/exp"),
        Mount("/etc", "/cfg", True),
    ]
    assert (source / "a/b").is_dir()


def test_a_sub_path_cannot_leave_its_volume(tmp_path: Path) -> None:
    source = tmp_path / "vol"
    source.mkdir()
    (source / "link").symlink_to("/etc")
    volumes = {"v": PodVolume("v", str(source), "emptyDir")}
    for below in ("../x", "/etc", "link"):
        with pytest.raises(ContainerConfigError, match="subPath"):
            container_mounts(
                {"volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": below}]}, volumes, {}
            )


def test_references_of_volumes() -> None:
    spec = {
        "volumes": [
            {"name": "a", "configMap": {"name": "cm", "optional": True}},
            {"name": "b", "projected": {"sources": [{"secret": {"name": "s"}}]}},
        ]
    }
    assert [(r.kind, r.name, r.optional) for r in references(spec)] == [
        ("ConfigMap", "cm", True),
        ("Secret", "s", False),
    ]


def test_image_volume_is_the_path_of_the_image_map(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    images = {"models/tiny:*": ImageEntry(path=str(tmp_path / "weights")), "other": ImageEntry(venv="/v")}
    places = VolumeRoots(tmp_path / "pod", tmp_path / "claims", images)

    def of(image: str) -> PodVolume:
        volume = {"name": "m", "image": {"reference": image}}
        return layout(facts(volume), lambda *_: None, places)[0]

    found = of("models/tiny:1")
    materialise([found])
    assert (found.source, found.read_only) == (str(tmp_path / "weights"), True)
    for image in ("models/big:1", "other"):
        with pytest.raises(ContainerConfigError, match=f'no path for image "{image}"'):
            of(image)
