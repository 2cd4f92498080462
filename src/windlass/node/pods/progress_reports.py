"""Variables and files by which the program of a job reports its progress (Kubeflow's KEP-2779).

Each container of a job's pod gets the address of the job's status endpoint, the
certificate of the server and a token that is bound to the pod. Kubeflow's proposal and
its release have different names for the variables, so both are set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import BATCH_JOBS, SERVICE_ACCOUNTS, VOLCANO_JOBS, by_kind
from windlass.api.service_network import API_NAMESPACE, API_PORT, API_SERVICE
from windlass.client.client import Client
from windlass.client.transport import Request
from windlass.kits.files import write_atomic
from windlass.node.paths import NodePaths

AUDIENCE = "trainer.kubeflow.org"
TOKEN_SECONDS = 365 * 24 * 3600
"""Lifetime of a token in seconds. It ends with its pod in any case."""
_PREFIXES = ("KUBEFLOW_TRAINER_STATUS", "KUBEFLOW_TRAINER_SERVER")
_DIRECTORY = "progress"
_KINDS = frozenset({BATCH_JOBS, VOLCANO_JOBS, *FIELDS})

log = logging.getLogger("windlass.node")


def status_path(pod: Mapping[str, Any]) -> str:
    """Return the path of the status endpoint of a pod's job; empty if no job controls the pod."""
    metadata = pod["metadata"]
    named = (metadata.get("annotations") or {}).get(names.PROGRESS_PATH)
    if named:
        return named
    for owner in metadata.get("ownerReferences") or ():
        kind = by_kind(owner.get("apiVersion") or "", owner.get("kind") or "")
        if owner.get("controller") and kind in _KINDS:
            return kind.path(metadata.get("namespace"), owner["name"], "status")
    return ""


async def progress_environment(
    pod: Mapping[str, Any], client: Client, paths: NodePaths, *, by_name: bool
) -> dict[str, str]:
    """Return the variables for the containers of a pod, and write the files that they name.

    ``by_name``: the pod can resolve the server's name, or else it shares the machine's
    network. Raises ``Unreachable``.
    """
    path = status_path(pod)
    if not path:
        return {}
    directory = paths.pod(pod["metadata"]["uid"]) / _DIRECTORY
    token_file, certificate = directory / "token", directory / "ca.crt"
    address = f"https://{API_SERVICE}.{API_NAMESPACE}.svc:{API_PORT}" if by_name else _machine_address(paths)
    try:
        if not token_file.exists():
            token = await pod_token(pod, client, [AUDIENCE])
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(certificate, paths.server_certificate.read_text(), 0o644)
            write_atomic(token_file, token, 0o644)
    except (StatusError, OSError) as error:
        log.warning("pod %s cannot report progress: %s", pod["metadata"]["name"], error)
        return {}
    values = {"URL": f"{address}{path}", "CA_CERT": str(certificate), "TOKEN": str(token_file)}
    return {f"{prefix}_{name}": value for prefix in _PREFIXES for name, value in values.items()}


async def pod_token(pod: Mapping[str, Any], client: Client, audiences: list[str]) -> str:
    """Return a token that is bound to the pod. ``audiences``: empty means the API server.

    Raises ``Unreachable`` and :class:`StatusError`.
    """
    metadata = pod["metadata"]
    account = pod["spec"].get("serviceAccountName") or "default"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    spec = {"audiences": audiences, "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    try:
        answer = await _request(client, metadata["namespace"], account, body)
    except StatusError as error:
        if error.code != 404:
            raise
        # Accounts that do not exist are accepted on one machine: they give no rights here.
        answer = await _request(client, metadata["namespace"], "default", body)
    return answer["status"]["token"]


async def _request(client: Client, namespace: str, account: str, body: Mapping[str, Any]) -> Any:
    path = SERVICE_ACCOUNTS.path(namespace, account, "token")
    headers = {"content-type": "application/json"}
    return msgspec.json.decode(
        await client.call(Request("POST", path, "", headers, msgspec.json.encode(body)))
    )


def _machine_address(paths: NodePaths) -> str:
    """Return the address of the server on the machine itself."""
    for line in paths.server_kubeconfig.read_text().splitlines():
        key, _, value = line.strip().removeprefix("- ").partition(":")
        if key == "server":
            return value.strip().strip("\"'")
    raise OSError(f"{paths.server_kubeconfig} names no server")
