"""Kubeconfig of the administrator: address, certificate authority, token."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from windlass.kits.files import write_atomic
from windlass.kits.state import StateFolder
from windlass.server.auth.pki import read_token

NAME = "windlass"


def write(state: StateFolder, url: str) -> None:
    """Write ``state.kubeconfig`` (mode 0600) for the server at ``url``.

    A file with the same contents is not written. Raises ``OSError``.
    """
    authority = base64.b64encode(state.ca_cert.read_bytes()).decode()
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": NAME, "cluster": {"server": url, "certificate-authority-data": authority}},
        ],
        "users": [{"name": NAME, "user": {"token": read_token(state)}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }
    text = yaml.safe_dump(config, sort_keys=False)
    try:
        if state.kubeconfig.read_text() == text:
            return
    except FileNotFoundError:
        pass  # the first start
    write_atomic(state.kubeconfig, text, 0o600)
