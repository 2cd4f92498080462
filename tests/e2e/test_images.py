"""``windlass up --images FILE``: what stands for an image on this box."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from single_node import WINDLASS, Box

MAP = "lab/tool:*:\n  path: tool\n  env: {GREETING: hello}\n  command: greet\n"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: greeter}
spec:
  restartPolicy: Never
  containers: [{name: main, image: "lab/tool:7"}]
"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    tool = tmp_path / "tool" / "bin" / "greet"
    tool.parent.mkdir(parents=True)
    tool.write_text('#!/bin/sh\necho "$GREETING from $(pwd)"\n')
    tool.chmod(0o755)
    path = tmp_path / "images.yaml"
    path.write_text(MAP)
    return path


@pytest.mark.timeout(400)
def test_an_image_stands_for_a_folder_of_this_machine(images: Path):
    with Box("--gpus", "none", "--images", str(images)) as box:
        box.windlass("apply", "-f", "-", stdin=POD)
        box.wait_for("the pod's end", lambda: box.get("pod/greeter")["status"].get("phase") == "Succeeded")
        assert box.windlass("logs", "pod/greeter").stdout.strip() == f"hello from {images.parent / 'tool'}"
        reasons = {event["reason"] for event in box.items("events")}
        assert not reasons & {"ImageIgnored", "Placeholder"}
        assert "images with an environment: lab/tool:*" in box.windlass("doctor", check=False).stdout
        images.write_text(MAP.replace("hello", "goodbye"))
        again = box.windlass("up", "--detach", "--images", str(images), check=False)
        assert "WL-UP-409" in again.stderr
        assert "another image map" in again.stderr


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_a_wrong_map_is_told_before_anything_starts(images: Path, detach: tuple[str, ...]):
    images.write_text(MAP.replace("tool\n", "nowhere\n"))
    box = Box()
    try:
        done = box.run(
            [WINDLASS, "up", *detach, "--images", os.path.relpath(images, box.folder)], check=False
        )
        assert done.returncode != 0
        assert "WL-IMAGES-400" in done.stderr
        assert f"lab/tool:*: path: there is no directory {images.parent / 'nowhere'}" in done.stderr
        assert box.left() == {}
    finally:
        box.close()
