"""Images of drivers and device plugins of nodes, which single-node mode provides itself.

An agent of Windlass finds, shares and labels devices, and measures their use. A
DaemonSet that does the same on nodes with a kubelet has nothing to do there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_PROVIDED: Mapping[str, str] = {
    "nvidia/k8s-device-plugin": "the devices (nvidia.com/gpu)",
    "nvidia-gpu-device-plugin": "the devices (nvidia.com/gpu)",
    "volcanosh/volcano-vgpu-device-plugin": "the devices and their shares",
    "volcanosh/volcano-device-plugin": "the devices and their shares",
    "projecthami/hami": "the devices and their shares",
    "nvidia/gpu-feature-discovery": "the labels of GPUs",
    "nvidia/dcgm-exporter": "the metrics of GPUs",
    "nvidia/k8s-mig-manager": "MIG instances",
    "nvidia/driver": "the driver, which is the machine's own",
    "nvidia/k8s-driver-manager": "the driver, which is the machine's own",
    "nvidia/container-toolkit": "access to GPUs in containers",
    "nvidia/gpu-operator-validator": "the check of GPUs (windlass doctor)",
    "nfd/node-feature-discovery": "the labels of nodes",
}
"""End of an image's name without tag → part that single-node mode provides."""


def provided_part(spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first image of a pod spec that names such a part, and the part; else empty texts."""
    for image in _images(spec.get("containers") or ()):
        name = _without_tag(image)
        for known, part in _PROVIDED.items():
            if name == known or name.endswith(f"/{known}"):
                return image, part
    return "", ""


def _images(containers: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (str(container.get("image") or "") for container in containers)


def _without_tag(image: str) -> str:
    plain = image.partition("@")[0]
    head, slash, last = plain.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def provided_words(image: str, part: str) -> str:
    """Return the sentences about a DaemonSet that is not run on a node of Windlass."""
    return (
        f"Windlass provides {part} on its nodes itself: it starts no pod of image {image} there. "
        "The DaemonSet may stay as it is; windlass node ls shows the devices."
    )
