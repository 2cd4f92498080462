"""What the chart allows its two processes, and what an audit log says that they asked for.

A *right* is (part, API group, resource with subresource, verb), the part being ``scheduler`` or ``controllers``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

PARTS = ("scheduler", "controllers")
AGENTS = {f"windlass-{part}": part for part in PARTS}
OWN = "windlass-system"
OWN_BY_DEFAULT = "kube-system"
"""Where the processes keep leases and the like when nobody says otherwise, as in tests without the chart."""

Right = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """One kind of request. ``namespace`` and ``name`` are empty where the request has none."""

    part: str
    group: str
    resource: str
    verb: str
    namespace: str
    name: str
    code: int

    @property
    def right(self) -> Right:
        return (self.part, self.group, self.resource, self.verb)


@dataclass(frozen=True, slots=True)
class Granted:
    """One rule taken apart. ``namespace`` empty: everywhere; ``names`` empty: all."""

    right: Right
    namespace: str
    names: frozenset[str]

    def covers(self, asked: Asked) -> bool:
        home = OWN if asked.namespace == OWN_BY_DEFAULT else asked.namespace
        if asked.right != self.right or self.namespace not in ("", home):
            return False
        return not self.names or asked.name in self.names


def granted(*more: str) -> list[Granted]:
    """Everything that the chart's default values allow. ``more``: files of what is installed besides."""
    folder = files("windlass.cli") / "data"
    texts = [(folder / name).read_text() for name in ("install.yaml", *more)]
    found: list[Granted] = []
    for obj in (obj for text in texts for obj in yaml.safe_load_all(text)):
        name = obj["metadata"]["name"].removeprefix("windlass-")
        if obj["kind"] not in ("ClusterRole", "Role") or name not in PARTS:
            continue
        space = obj["metadata"].get("namespace", "")
        for rule in obj["rules"]:
            names = frozenset(rule.get("resourceNames", ()))
            found += [
                Granted((name, group, resource, verb), space, names)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
    return found


def asked(log: Path, agents: Mapping[str, str] = AGENTS) -> Iterator[Asked]:
    """The requests of the two processes, each kind once; they are told by their account or their agent. ``agents``:
    agent → part."""
    seen = set()
    with open(log) as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the last line of a server that was killed
            one = _asked(entry, agents)
            if one is not None and one not in seen:
                seen.add(one)
                yield one


def _asked(entry: Mapping[str, Any], agents: Mapping[str, str]) -> Asked | None:
    target = entry.get("objectRef") or {}
    account = f"system:serviceaccount:{OWN}:"
    who = entry.get("user", {}).get("username", "")  # nobody, where the token was none
    agent = who.removeprefix(account) if who.startswith(account) else entry.get("userAgent", "")
    if agent not in agents or "resource" not in target:
        return None
    parts = [target["resource"], *([target["subresource"]] if target.get("subresource") else ())]
    return Asked(
        agents[agent],
        target.get("apiGroup", ""),
        "/".join(parts),
        entry["verb"],
        target.get("namespace", ""),
        target.get("name", "") if entry["verb"] != "create" else "",
        (entry.get("responseStatus") or {}).get("code", 0),
    )


def denied(requests: list[Asked], *more: str) -> list[Asked]:
    """The requests that no rule covers. ``more``: as in :func:`granted`."""
    rules = granted(*more)
    return [one for one in requests if not any(rule.covers(one) for rule in rules)]
