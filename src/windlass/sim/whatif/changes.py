"""Changes of a cluster for a what-if: each turns one state into another.

A change that names a missing object is rejected with the existing ones (:class:`ChangeError`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from windlass.api.quantities import QuantityError
from windlass.model.groups.podgroups import job_title, shown_key
from windlass.model.queues.engine_queue import shown
from windlass.sim import cluster
from windlass.sim.whatif.play_forward import ForwardState, displaced
from windlass.spi.objects import Dialect, Node, Queue
from windlass.spi.quantities import is_device, to_units

LIMITS = ("capability", "deserved", "guarantee")
GPU_WORD = "gpu"
"""Stands for the devices that nodes have."""
_PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_HOST = "kubernetes.io/hostname"


class ChangeError(ValueError):
    """A change that names what the state does not have. ``kind``: of what (``nodes``, ``queues``, ``jobs``,
    ``resources``); ``known``: what there is instead."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f'there is no "{name}" among the {kind}')
        self.kind = kind
        self.name = name
        self.known = sorted(known)


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """``said``: for people. ``make`` changes the state that it is given; it may raise :class:`ChangeError`."""

    said: str
    make: Callable[[ForwardState], None]


def drain(node: str) -> ClusterChange:
    """The node goes; what it runs waits for other places."""

    def make(state: ForwardState) -> None:
        if node not in state.nodes:
            raise ChangeError("nodes", node, state.nodes)
        displaced(state, node)

    return ClusterChange(f"without node {node}", make)


def add(text: str) -> ClusterChange:
    """Nodes as in ``4xH100:8``: like those that are there with as many devices of that model; else without labels, and
    without limit in CPU and memory. Raises ``ValueError``."""
    shapes = cluster.parse(text)

    def make(state: ForwardState) -> None:
        for shape in shapes:
            like = _like(state, shape)
            for _ in range(shape.count):
                name = _free_name(state)
                labels = {**like.labels, _HOST: name} if like.labels else {}
                node = replace(like, name=name, labels=labels, taints=(), unschedulable=False, ready=True)
                state.nodes[name] = node

    return ClusterChange(f"with {text} more", make)


def unlike(state: ForwardState, text: str) -> list[str]:
    """Return the shapes of added nodes that the cluster does not have yet."""
    plain = [s for s in cluster.parse(text) if _matching(state, s) is None]
    return [f"{s.count}x{s.model + ':' if s.model else ''}{s.gpus}" for s in plain]


def set_quota(text: str) -> ClusterChange:
    """``QUEUE.RESOURCE=AMOUNT``, or ``QUEUE.capability.RESOURCE=AMOUNT`` (deserved, guarantee): the most that a queue
    may hold, of KAI's queues what it deserves, unless the limit is named. ``gpu`` stands for the devices that nodes
    have. Raises ``ValueError``."""
    left, equals, amount = text.rpartition("=")
    if not equals or "." not in left or not amount:
        raise ValueError(f"{text!r} is not QUEUE.RESOURCE=AMOUNT, such as research.gpu=64")

    def make(state: ForwardState) -> None:
        queue, rest = _queue(state, left)
        field, _, named = rest.partition(".")
        if field not in LIMITS or not named:
            field, named = ("deserved" if queue.dialect is Dialect.KAI else "capability"), rest
        resource = _resource(state, named)
        units = to_units(resource, amount)
        if units < 0:
            raise QuantityError(f"{amount!r} is less than nothing: a limit is 0 or more")
        limits = {**getattr(queue, field), resource: units}
        unlimited = tuple([r for r in queue.unlimited if r != resource or field != "deserved"])
        changed: dict[str, Any] = {field: limits}
        state.queues[queue.name] = replace(queue, unlimited=unlimited, **changed)

    return ClusterChange(f"with {text}", make)


def remove_job(name: str) -> ClusterChange:
    """``NAMESPACE/NAME`` goes, with all of its pods; ``NAME`` is enough where only one namespace has it."""

    def make(state: ForwardState) -> None:
        jobs = {key: job_title(key) for key in state.groups.keys() & state.alive()}
        keys = [
            key
            for key, title in jobs.items()
            if any(name in (said, said.partition("/")[2]) for said in (title, shown_key(key)))
        ]
        if len({jobs[key] for key in keys}) != 1:
            raise ChangeError("jobs", name, [jobs[key] for key in keys or jobs])
        for key in keys:
            del state.groups[key]
            for task in [task.key for task in state.tasks.values() if task.group == key]:
                del state.tasks[task]

    return ClusterChange(f"without job {name}", make)


def _matching(state: ForwardState, shape: cluster.NodeShape) -> Node | None:
    asked = _words(shape.model)
    for node in state.nodes.values():
        if _cards(node) == shape.gpus and (not asked or any(asked in model for model in _models(node))):
            return node
    return None


def _like(state: ForwardState, shape: cluster.NodeShape) -> Node:
    return _matching(state, shape) or cluster.make_nodes([replace(shape, count=1)])[0]


def _cards(node: Node) -> int:
    return sum(units for name, units in node.allocatable.items() if is_device(name)) // 1000


def _models(node: Node) -> set[str]:
    """Every model of its devices, as words."""
    products = [node.labels.get(label, "") for label in _PRODUCTS]
    return {_words(model) for model in (*[device.model for device in node.devices], *products)}


def _words(model: str) -> str:
    """``-nvidia-h100-80gb-hbm3-``: one has some words of another in a row if its text is in the other's."""
    text = re.sub(r"[-_\s]+", "-", model.casefold()).strip("-")
    return f"-{text}-" if text else ""


def _free_name(state: ForwardState) -> str:
    number = 0
    while f"added-{number}" in state.nodes:
        number += 1
    return f"added-{number}"


def _queue(state: ForwardState, text: str) -> tuple[Queue, str]:
    """The queue with the longest name that the text begins with, and what follows its dot."""
    for name in sorted(state.queues, key=len, reverse=True):
        for spelled in dict.fromkeys((name, shown(name, True), shown(name, False))):
            if text.startswith(spelled + "."):
                return state.queues[name], text[len(spelled) + 1 :]
    raise ChangeError("queues", text.partition(".")[0], state.queues)


def _resource(state: ForwardState, name: str) -> str:
    known = {resource for node in state.nodes.values() for resource in node.allocatable}
    if name == GPU_WORD and name not in known:
        cards = sorted(resource for resource in known if is_device(resource) and resource.endswith("/gpu"))
        name = cards[0] if cards else cluster.GPU
    if name not in known:
        raise ChangeError("resources", name, known | {GPU_WORD})
    return name
