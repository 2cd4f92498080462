"""Checks that ``exec``, ``attach`` and ``portforward`` share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from windlass.api.annotations import MIRROR, SIMULATED
from windlass.api.errors import StatusError, bad_request, failure, not_found
from windlass.api.resources import NODES
from windlass.server.core import Call, ServerCore, decoded
from windlass.server.stream_source import StreamSource

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def stored_pod(core: ServerCore, call: Call) -> dict[str, Any]:
    """Return the pod of the request. Raises 404."""
    target = call.target
    entry = core.store.get(target.table, target.namespace, target.name)
    if entry is None:
        raise not_found(target.resource, target.name)
    return decoded(target.stored, entry)


def container_name(pod: Mapping[str, Any], wanted: str) -> str:
    """Return the container of the request. Raises 400."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    names = [c["name"] for c in spec.get("containers") or ()]
    first = [c["name"] for c in spec.get("initContainers") or ()]
    if wanted:
        extra = [c["name"] for c in spec.get("ephemeralContainers") or ()]
        if wanted not in (*names, *first, *extra):
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(names) == 1:
        return names[0]
    default = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER)
    if isinstance(default, str) and default in names:
        return default
    choices = f"choose one of: [{' '.join(names)}]"
    if first:
        choices += f" or one of the init containers: [{' '.join(first)}]"
    raise bad_request(f"a container name must be specified for pod {name}, {choices}")


def definition(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return the container of this name in the manifest."""
    spec = pod.get("spec") or {}
    every = (one for key in _CONTAINERS for one in spec.get(key) or ())
    return next((one for one in every if one["name"] == container), {})


def check_has_process(core: ServerCore, pod: Mapping[str, Any], consequence: str) -> None:
    """Raise 400 if the pod has no process of its own on this box.

    ``consequence``: end of the sentence, such as "it has no log".
    """
    name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise bad_request(f"pod {name} does not have a host assigned")
    entry = core.store.get(NODES.qualified, "", node)
    labels = decoded(NODES, entry)["metadata"].get("labels") or {} if entry is not None else {}
    if labels.get(SIMULATED) == "true":
        raise bad_request(
            f'pod "{name}" is on the simulated node "{node}": no process runs there, so {consequence}'
        )


def check_not_mirror(pod: Mapping[str, Any], consequence: str) -> None:
    """Raise 400 for the mirror pod of a process of the control plane."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        raise bad_request(
            f'pod "{pod["metadata"]["name"]}" mirrors a process of the control plane, which is not a '
            f"container: {consequence}"
        )


def check_running(pod: Mapping[str, Any], container: str) -> None:
    """Raise 400 with the container's state unless it is running."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    found = [entry for key in _STATUSES for entry in status.get(key) or () if entry.get("name") == container]
    state = (found[0].get("state") or {}) if found else {}
    if "running" in state:
        return
    which = f'container "{container}" in pod "{name}"'
    if ended := state.get("terminated"):
        raise bad_request(
            f"{which} is not running: it ended with exit code {ended.get('exitCode')} "
            f"({ended.get('reason') or 'no reason'})"
        )
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise bad_request(f"{which} is not running: it is waiting to start: {reason}")


def source_of(core: ServerCore) -> StreamSource:
    """Return the source of streams. Raises 503."""
    if core.streams is None:
        raise failure(
            503, "ServiceUnavailable", "no node agent serves streams to this server", {"retryAfterSeconds": 5}
        )
    return core.streams


def negotiated(call: Call, served: Sequence[str]) -> str:
    """Return the subprotocol of the connection. Raises 400 if client and server share none."""
    offered = call.request.subprotocols
    if offered is None:
        raise _no_upgrade(call)
    for protocol in offered:
        if protocol in served:
            return protocol
    raise bad_request(
        f"unable to upgrade: the client offers the protocols [{', '.join(offered)}], "
        f"this server has [{', '.join(served)}]"
    )


def _no_upgrade(call: Call) -> StatusError:
    """Return the refusal of a request that is not the upgrade to a WebSocket."""
    command = {"portforward": "port-forward"}.get(call.target.subresource, call.target.subresource)
    if "spdy" in call.request.headers.get("upgrade", "").lower():
        variable = (
            "KUBECTL_PORT_FORWARD_WEBSOCKETS"
            if command == "port-forward"
            else "KUBECTL_REMOTE_COMMAND_WEBSOCKETS"
        )
        return bad_request(
            f"kubectl {command} by SPDY is not served: this server speaks WebSocket. Use kubectl 1.31 or later "
            f"without {variable}=false"
        )
    return bad_request("Upgrade request required: send Upgrade: websocket")


async def run_all(*works: Awaitable[None]) -> None:
    """Run the directions of a connection; the end of one ends all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
