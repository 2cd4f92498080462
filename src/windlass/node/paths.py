"""Layout of the agent's directory. No other module knows it.

``pods/<uid>/`` (record, sandbox, volumes, attempts) ·
``logs/<namespace>_<pod>_<uid>/<container>/<n>.log`` · ``claims/`` (persistent volume claims) · ``models/`` (models) ·
``devices.json`` · ``cards.json`` · ``mig.json`` · ``health.json`` · ``network.json`` · ``box.json``
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.kits.state import StateFolder


class NodePaths:
    """Paths below the agent's directory (``StateFolder.node``). It accesses no file."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def server_certificate(self) -> Path:
        """Return the certificate of the server's authority."""
        return StateFolder(self.root.parent).ca_cert

    @property
    def server_kubeconfig(self) -> Path:
        """Return the kubeconfig, which names the server's address."""
        return StateFolder(self.root.parent).kubeconfig

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def claims(self) -> Path:
        return self.root / "claims"

    @property
    def models(self) -> Path:
        """Return the folder of models (:mod:`windlass.modelcache.folder`)."""
        return self.root / "models"

    @property
    def device_allocations(self) -> Path:
        return self.root / "devices.json"

    @property
    def mig_instances(self) -> Path:
        return self.root / "mig.json"

    @property
    def device_indices(self) -> Path:
        return self.root / "cards.json"

    @property
    def faults(self) -> Path:
        return self.root / "health.json"

    def pod(self, uid: str) -> Path:
        return self.pods / uid

    def attempts(self, uid: str, container: str) -> Path:
        return self.pod(uid) / "containers" / container

    def attempt(self, uid: str, container: str, number: int) -> Path:
        return self.attempts(uid, container) / str(number)

    def pod_logs(self, metadata: Mapping[str, Any]) -> Path:
        return self.logs / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"

    def container_logs(self, metadata: Mapping[str, Any], container: str) -> Path:
        return self.pod_logs(metadata) / container


def attempt_numbers(directory: Path) -> list[int]:
    """Return the numbers of the attempts in a directory of attempts, ascending."""
    try:
        return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())
    except FileNotFoundError:
        return []


def remove_filled(directory: Path) -> None:
    """Remove a directory with its content, if it has any. An empty one is not worth the work."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        if next(entries, None) is not None:
            shutil.rmtree(directory, ignore_errors=True)
