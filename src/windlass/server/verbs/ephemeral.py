"""PUT and PATCH of ``pods/NAME/ephemeralcontainers``: further containers in a running pod."""

from __future__ import annotations

from windlass.api.errors import bad_request
from windlass.client.transport import Response
from windlass.server.core import Call, ServerCore
from windlass.server.verbs import pod_streams
from windlass.server.verbs.update import patch, update

_NO_PROCESS = "no container can be added to it"


async def update_containers(core: ServerCore, call: Call) -> Response:
    """Handle PUT. Raises StatusError."""
    _check(core, call)
    return await update(core, call)


async def patch_containers(core: ServerCore, call: Call) -> Response:
    """Handle PATCH. Raises StatusError."""
    _check(core, call)
    return await patch(core, call)


def _check(core: ServerCore, call: Call) -> None:
    pod = pod_streams.stored_pod(core, call)
    pod_streams.check_not_mirror(pod, _NO_PROCESS)
    if pod["spec"].get("nodeName"):
        pod_streams.check_has_process(core, pod, _NO_PROCESS)
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        name = pod["metadata"]["name"]
        raise bad_request(
            f'pod "{name}" has ended ({phase}): {_NO_PROCESS}. Run a copy of it: '
            f"kubectl debug {name} --copy-to {name}-debug -it -- sh"
        )
