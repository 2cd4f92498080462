"""MPS control daemons of nodes, for users."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.annotations import MPS_DAEMON


def records_of(nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the daemons that nodes report: node, whether it runs, directories, problem."""
    found = []
    for node in nodes:
        text = (node["metadata"].get("annotations") or {}).get(MPS_DAEMON, "")
        try:
            record = json.loads(text) if text else None
        except ValueError:
            continue  # written by another program
        if isinstance(record, dict):
            found.append({"node": node["metadata"]["name"], **record})
    return found


def text_of(record: Mapping[str, Any]) -> str:
    """Return one line: whether the daemon runs, its directories, and what runs it."""
    if not record.get("running"):
        return f"MPS daemon on {record['node']}: not running: {record.get('problem')}"
    by = "managed by Windlass" if record.get("managed") else "started by the administrator"
    log = f", log directory {record['logDirectory']}" if record.get("logDirectory") else ""
    return f"MPS daemon on {record['node']}: running, {by}, pipe directory {record['pipeDirectory']}{log}"
