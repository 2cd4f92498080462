"""Connection of a process in a pod, with the token of its ServiceAccount.

The kubelet renews the token. Kubernetes passes the API server's address in
``KUBERNETES_SERVICE_HOST`` and ``_PORT``, and mounts the token, the certificate
authority and the namespace as files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.client import errors
from windlass.client.connection import Connection

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connection(environ: Mapping[str, str] | None = None, directory: Path = FOLDER) -> Connection | None:
    """Return the connection; ``None`` outside a pod, and in a pod without a mounted token.

    Raises :class:`WindlassError` if only some of the files exist.
    """
    env = os.environ if environ is None else environ
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    token = directory / "token"
    if not host or not port or not token.is_file():
        return None
    try:
        authority = (directory / "ca.crt").read_bytes()
        namespace = (directory / "namespace").read_text().strip()
    except OSError as error:
        raise WindlassError(
            errors.KUBECONFIG,
            f"the ServiceAccount's files are incomplete: {error.filename} cannot be read",
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
        source=str(directory),
    )
