"""Kubeconfig of the administrator: address, certificate authority, token."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import yaml

from windlass.kits.files import write_atomic
from windlass.kits.state import StateFolder
from windlass.server.auth.pki import read_token

NAME = "windlass"


def write(state: StateFolder, url: str) -> None:
    """Write ``state.kubeconfig`` (mode 0600) for the server at ``url``.

    A file with the same contents is not written. What its user added is kept: other clusters,
    users and contexts, the current one among them, and the namespace of the server's context
    (``kubectl config set-context --current --namespace=NAME``). Raises ``OSError``.
    """
    try:
        before = state.kubeconfig.read_text()
    except FileNotFoundError:
        before = ""  # the first start
    authority = base64.b64encode(state.ca_cert.read_bytes()).decode()
    own: dict[str, dict[str, Any]] = {
        "clusters": {"cluster": {"server": url, "certificate-authority-data": authority}},
        "users": {"user": {"token": read_token(state)}},
        "contexts": {"context": {"cluster": NAME, "user": NAME, "namespace": "default"}},
    }
    if before == _text(_document({}, own)):
        return  # the usual case, which needs no parser
    present = _parsed(before)
    own["contexts"]["context"]["namespace"] = _namespace(present)
    document = _document(present, own)
    if document != present:
        write_atomic(state.kubeconfig, _text(document), 0o600)


def _document(present: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the kubeconfig: the entries of the server, and those of ``present`` with other names."""
    others = {section: _others(present, section) for section in own}
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    document |= {section: [{"name": NAME, **entry}, *others[section]] for section, entry in own.items()}
    current = present.get("current-context")
    known = any(one["name"] == current for one in others["contexts"])
    document["current-context"] = current if known else NAME
    return {**document, **{name: value for name, value in present.items() if name not in document}}


def _others(present: Mapping[str, Any], section: str) -> list[Any]:
    found = present.get(section)
    listed = found if isinstance(found, list) else []
    return [one for one in listed if isinstance(one, dict) and one.get("name") not in (None, NAME)]


def _text(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False)


def _parsed(text: str) -> dict[str, Any]:
    """Return the document of a kubeconfig; empty if it cannot be read."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def _namespace(present: Mapping[str, Any]) -> str:
    """Return the namespace of the server's context; ``default`` without one."""
    try:
        context = next(one["context"] for one in present.get("contexts") or [] if one["name"] == NAME)
    except (KeyError, TypeError, StopIteration):
        return "default"
    found = context.get("namespace") if isinstance(context, dict) else None
    return found if isinstance(found, str) and found else "default"
