"""Where a scheduler's bind guard listens, and the configuration by which an API server asks it.

There is no Service that leads to it: the configuration that ``windlass install --bind-guard`` makes is created with
the process's own address instead, and nothing else changed.
"""

from __future__ import annotations

import base64
from typing import Any

from realkube import RealKube, free_ports

from windlass.cli.install import objects
from windlass.cli.install.bind_guard import GuardCredentials


class GuardPost:
    """One for each process. ``options``: what it is started with."""

    def __init__(self, kube: RealKube) -> None:
        pair = kube.authority.server("127.0.0.1")
        self._proof = GuardCredentials(
            kube.authority.pem.decode(), pair.cert.decode(), pair.key.decode(), "word"
        )
        (self._port,) = free_ports(1)
        folder = kube.folder / f"bind-guard-{self._port}"
        folder.mkdir()
        for name, text in self._proof.data.items():
            (folder / name).write_bytes(base64.b64decode(text))
        self.options = [f"--bind-guard=127.0.0.1:{self._port}", f"--bind-guard-secret={folder}"]

    def configuration(self, name: str = "") -> dict[str, Any]:
        """As it is installed, but for where it leads to. ``name``: another one than installed."""
        options = objects.InstallOptions(crds=False, proof=self._proof)
        (hooks,) = [o for o in objects.objects(options) if o["kind"] == objects.WEBHOOKS.kind]
        if name:
            hooks["metadata"]["name"] = name
        for hook in hooks["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"]["url"] = f"https://127.0.0.1:{self._port}{path}"
        return hooks
