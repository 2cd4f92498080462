"""The connection of a process that runs in a pod: its ServiceAccount's token, which the kubelet renews.

Kubernetes tells a container of the API server by ``KUBERNETES_SERVICE_HOST`` and ``_PORT`` and mounts the
token, the certificate authority and the namespace as files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.client import errors
from windlass.client.connection import Connection

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connection(environ: Mapping[str, str] | None = None, folder: Path = FOLDER) -> Connection | None:
    """``None`` outside a pod, and in one without a mounted token. Raises :class:`WindlassError` on half of it."""
    env = os.environ if environ is None else environ
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    token = folder / "token"
    if not host or not port or not token.is_file():
        return None
    try:
        authority = (folder / "ca.crt").read_bytes()
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise WindlassError(
            errors.KUBECONFIG,
            f"the ServiceAccount's files are not whole: {error.filename} cannot be read",
            evidence=str(error.strerror),
            remedies=("mount the ServiceAccount's token with automountServiceAccountToken: true",),
        ) from error
    name = f"[{host}]" if ":" in host else host
    return Connection(
        server=f"https://{name}:{port}",
        ca_data=authority,
        token_file=str(token),
        namespace=namespace or "default",
        context="in-cluster",
        source=str(folder),
    )
