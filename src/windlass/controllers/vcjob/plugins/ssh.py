"""Plugin ``ssh``: one key pair for all pods of a job.

The Secret ``<job>-ssh`` holds ``id_rsa``, ``id_rsa.pub``, ``authorized_keys`` and a
``config`` that maps each pod name to its host name and port. It is mounted at
``/root/.ssh`` with mode 0600, or with mode 0644 at the path of ``--ssh-key-file-path``.
The Secret is created once and stays the same until the job ends, as in Volcano: pods
that are added later can be reached by their host names. In single-node mode ``ssh``
enters pods that serve no SSH through the node agent.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from windlass.api.annotations import REMOTE_SHELL
from windlass.controllers.vcjob.plugins.position import (
    PodPosition,
    Value,
    containers,
    host_name,
    parse_flags,
)
from windlass.controllers.vcjob.spec import JobSpec
from windlass.kits.ssh_keys import SshKeyPair

RECORD = "plugin-ssh"
"""Entry of ``status.controlledResources`` once the Secret exists."""
_CONFIG = "config"
_PRIVATE, _PUBLIC, _AUTHORIZED = "id_rsa", "id_rsa.pub", "authorized_keys"
_MOUNT_PATH = "/root/.ssh"
_SUB_PATH = ".ssh"
_OWNER_MODE, _OTHER_PATH_MODE = 0o600, 0o644
_PORT = 22
_DEFAULTS: dict[str, Value] = {
    "ssh-key-file-path": _MOUNT_PATH,
    "ssh-private-key": "",
    "ssh-public-key": "",
    "ssh-port": _PORT,
}


def secret_name(spec: JobSpec) -> str:
    return f"{spec.name}-ssh"


def needs_keys(spec: JobSpec) -> bool:
    """Return whether the job needs a generated key pair."""
    return "ssh" in spec.plugins and not parse_flags(spec.plugins["ssh"], _DEFAULTS)[0]["ssh-private-key"]


def problems(arguments: Sequence[str]) -> list[str]:
    flags, found = parse_flags(arguments, _DEFAULTS)
    if not found and _port(flags) != flags["ssh-port"]:
        found = [
            f"ssh-port {flags['ssh-port']} is not a port, {_PORT} is used: give a number from 1 to 65535"
        ]
    return found


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    flags, _ = parse_flags(arguments, _DEFAULTS)
    name, path = secret_name(position.spec), flags["ssh-key-file-path"]
    keys = (_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG)
    source = {
        "secretName": name,
        "items": [{"key": key, "path": f"{_SUB_PATH}/{key}"} for key in keys],
        "defaultMode": _OWNER_MODE if path == _MOUNT_PATH else _OTHER_PATH_MODE,
    }
    pod["metadata"]["annotations"].setdefault(REMOTE_SHELL, "exec")
    body = pod["spec"]
    body["volumes"] = [*(body.get("volumes") or ()), {"name": name, "secret": source}]
    for container in containers(pod, init=True):
        mount = {"name": name, "mountPath": path, "subPath": _SUB_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def objects(spec: JobSpec, arguments: Sequence[str], keys: SshKeyPair | None) -> list[dict[str, Any]]:
    """Return the Secret. Without ``keys`` and without a key in the arguments it has only ``config``."""
    flags, _ = parse_flags(arguments, _DEFAULTS)
    if flags["ssh-private-key"]:
        keys = SshKeyPair(str(flags["ssh-private-key"]), str(flags["ssh-public-key"]))
    files = {_CONFIG: config(spec, _port(flags))}
    if keys is not None:
        files |= {_PRIVATE: keys.private, _PUBLIC: keys.public, _AUTHORIZED: keys.public}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret_name(spec), "namespace": spec.namespace},
            "type": "Opaque",
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in files.items()},
        }
    ]


def config(spec: JobSpec, port: int) -> str:
    """Return the client configuration of OpenSSH: no check of host keys, one entry per pod."""
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in spec.tasks:
        count = min(task.replicas, 1) if task.pod_spec.get("hostname") else task.replicas
        for index in range(count):
            name = host_name(spec, task, index)
            host = task.pod_spec.get("hostname") or spec.pod_name(task.name, index)
            lines += [f"Host {host}", f"  HostName {name}", f"  Port {port}"]
    return "\n".join(lines) + "\n"


def _port(flags: dict[str, Value]) -> int:
    port = int(flags["ssh-port"])
    return port if 0 < port <= 65_535 else _PORT
