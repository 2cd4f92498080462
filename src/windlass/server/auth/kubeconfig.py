"""Kubeconfig of the administrator: address, certificate authority, token."""

from __future__ import annotations

import base64
import re
from typing import Any

import yaml

from windlass.kits.files import write_atomic
from windlass.kits.state import StateFolder
from windlass.server.auth.pki import read_token

NAME = "windlass"


def write(state: StateFolder, url: str) -> None:
    """Write ``state.kubeconfig`` (mode 0600) for the server at ``url``.

    A file with the same contents is not written. The namespace that the context has is kept
    (``kubectl config set-context --current --namespace=NAME``). Raises ``OSError``.
    """
    try:
        before = state.kubeconfig.read_text()
    except FileNotFoundError:
        before = ""  # the first start
    authority = base64.b64encode(state.ca_cert.read_bytes()).decode()
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": NAME, "cluster": {"server": url, "certificate-authority-data": authority}},
        ],
        "users": [{"name": NAME, "user": {"token": read_token(state)}}],
        "contexts": [
            {"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": _namespace(before)}}
        ],
        "current-context": NAME,
    }
    text = yaml.safe_dump(config, sort_keys=False)
    if text != before:
        write_atomic(state.kubeconfig, text, 0o600)


def _namespace(text: str) -> str:
    """Return the namespace of the context in a kubeconfig; ``default`` without one."""
    if set(re.findall(r"namespace: *(\S+)", text)) <= {"default"}:
        return "default"
    try:
        contexts = (yaml.safe_load(text) or {}).get("contexts") or []
        context = next(one["context"] for one in contexts if one["name"] == NAME)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, StopIteration):
        return "default"
    found = context.get("namespace") if isinstance(context, dict) else None
    return found if isinstance(found, str) and found else "default"
