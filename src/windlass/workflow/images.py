"""Commands of images that Argo's examples use without stating one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMMANDS: dict[str, tuple[str, ...]] = {
    "argoproj/argosay:v1": ("cowsay",),
    "argoproj/argosay:v2": ("/argosay",),
    "docker/whalesay:latest": ("cowsay",),
    "docker/whalesay": ("cowsay",),
}
"""Image → its entrypoint. A shell around a command has to know it; no registry is asked."""


def command_of(container: Mapping[str, Any]) -> list[str]:
    """Return the command of a container, or that of its image if the image is known."""
    return list(container.get("command") or COMMANDS.get(str(container.get("image")), ()))
