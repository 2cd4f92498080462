"""Queues with their numbers, and the settings that ``queue create`` and ``queue set`` take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.api import quantities
from windlass.api.errors import WindlassError
from windlass.api.resources import QUEUES
from windlass.cli import amounts, jobs
from windlass.cli.invocation import Invocation
from windlass.cli.words import natural


@dataclass(slots=True)
class Share:
    """One queue. Amounts in engine units; ``waiting`` is what its waiting jobs ask for."""

    obj: dict[str, Any]
    amounts: dict[str, amounts.Vector] = field(default_factory=dict)
    running: int = 0
    pending: int = 0

    @property
    def spec(self) -> dict[str, Any]:
        return self.obj.get("spec") or {}

    @property
    def name(self) -> str:
        return self.obj["metadata"]["name"]

    @property
    def parent(self) -> str:
        return self.spec.get("parent") or ("" if self.name == "root" else "root")

    @property
    def state(self) -> str:
        return (self.obj.get("status") or {}).get("state") or "Open"

    @property
    def weight(self) -> int:
        return int(self.spec.get("weight") or 1)

    @property
    def priority(self) -> int:
        return int(self.spec.get("priority") or 0)

    def gpus(self, which: str) -> str:
        vector = self.amounts.get(which) or {}
        named = any(quantities.is_device(name) for name in vector)
        if which in ("capability", "guarantee", "deserved") and not named:
            return "-"
        return f"{amounts.devices(vector) / 1000:g}"

    def text(self, which: str) -> str:
        vector = self.amounts.get(which) or {}
        return ",".join(f"{k}={quantities.from_units(k, v)}" for k, v in sorted(vector.items())) or "-"

    def as_record(self) -> dict[str, Any]:
        quantity = {
            which: {name: quantities.from_units(name, units) for name, units in vector.items()}
            for which, vector in self.amounts.items()
        }
        return {
            "name": self.name,
            "parent": self.parent or None,
            "state": self.state,
            "weight": self.weight,
            "priority": self.priority,
            "reclaimable": self.spec.get("reclaimable", True),
            **quantity,
            "running": self.running,
            "pending": self.pending,
        }


def gather(invocation: Invocation) -> list[Share]:
    """Every queue with what it holds and what waits in it; parents include their children."""
    shares = {}
    for queue in invocation.client.list(QUEUES).items:
        spec = queue.get("spec") or {}
        share = Share(queue)
        share.amounts = {
            "guarantee": amounts.vector((spec.get("guarantee") or {}).get("resource")),
            "deserved": amounts.vector(spec.get("deserved")),
            "capability": amounts.vector(spec.get("capability")),
            "allocated": {},
            "requested": {},
            "waiting": {},
        }
        shares[share.name] = share
    for job in jobs.fetch(invocation, None):
        if not job.finished:
            _count(shares, job)
    return list(shares.values())


def _count(shares: dict[str, Share], job: jobs.Job) -> None:
    held = amounts.total(
        amounts.pod_request(pod.get("spec") or {}) for pod in job.pods if amounts.holds_resources(pod)
    )
    asked = job.request
    left = {name: units - held.get(name, 0) for name, units in asked.items() if units > held.get(name, 0)}
    name, seen = job.queue, set()
    while name in shares and name not in seen:
        seen.add(name)
        share = shares[name]
        share.running += 1 if held or not job.waiting else 0
        share.pending += 1 if job.waiting else 0
        for which, vector in (("allocated", held), ("requested", asked), ("waiting", left)):
            share.amounts[which] = quantities.add(share.amounts[which], vector)
        name = share.parent


def depths(shares: Sequence[Share]) -> list[tuple[Share, int]]:
    """Parents before their children, with the depth of each."""
    children: dict[str, list[Share]] = {}
    known = {share.name for share in shares}
    for share in shares:
        parent = share.parent if share.parent in known and share.parent != share.name else ""
        children.setdefault(parent, []).append(share)
    ordered: list[tuple[Share, int]] = []

    def walk(parent: str, depth: int) -> None:
        for share in sorted(children.get(parent, ()), key=lambda one: natural(one.name)):
            ordered.append((share, depth))
            walk(share.name, depth + 1)

    walk("", 0)
    placed = {share.name for share, _ in ordered}
    return ordered + [(share, 0) for share in shares if share.name not in placed]


_PLAIN = {"weight": int, "priority": int, "parent": str, "reclaimable": bool, "type": str}
_AMOUNTS = {"capability": ("capability",), "deserved": ("deserved",), "guarantee": ("guarantee", "resource")}


def parse_settings(settings: Sequence[str]) -> tuple[dict[str, Any], str]:
    """``weight=2 capability.nvidia.com/gpu=8 state=Closed`` as a spec and a state.

    A value left empty is ``None``: to be removed. Raises :class:`WindlassError`.
    """
    spec: dict[str, Any] = {}
    state = ""
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise _bad(text, "it is not KEY=VALUE")
        head, _, resource = key.partition(".")
        if key == "state":
            state = {"open": "Open", "closed": "Closed", "close": "Closed"}.get(value.lower(), "")
            if not state:
                raise _bad(text, "a queue is Open or Closed")
        elif key in _PLAIN:
            spec[key] = _plain(text, key, value)
        elif head in _AMOUNTS and resource:
            place = spec
            for step in _AMOUNTS[head]:
                place = place.setdefault(step, {})
            place[resource] = _amount(text, resource, value)
        else:
            raise _bad(text, "that is no setting of a queue")
    return spec, state


def _plain(text: str, key: str, value: str) -> Any:
    if value == "":
        return None
    kind = _PLAIN[key]
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise _bad(text, "it is true or false")
        return value.lower() == "true"
    if kind is int:
        if not value.lstrip("-").isdigit():
            raise _bad(text, "it takes a whole number")
        return int(value)
    return value


def _amount(text: str, resource: str, value: str) -> str | None:
    if value == "":
        return None
    try:
        quantities.to_units(resource, value)
    except quantities.QuantityError as error:
        raise _bad(text, str(error)) from error
    return value


def _bad(text: str, why: str) -> WindlassError:
    known = [*_PLAIN, "state", *(f"{name}.RESOURCE" for name in _AMOUNTS)]
    return WindlassError(
        "WL-USE-400",
        f'the setting "{text}" is not understood: {why}',
        evidence="settings: " + ", ".join(known),
        remedies=("windlass queue set NAME weight=2 capability.nvidia.com/gpu=8",),
    )
