"""Volcano's ``extender`` for nodes: an external server filters and scores nodes.

Other calls are in :mod:`windlass.plugins.volcano.extender_votes`.

The policy itself makes no connection. It asks a client (:mod:`windlass.spi.extender`)
that the scheduler provides, once for each class of pods and each node. A node without a
response is excluded until there is one. Without a client, as in a dry run, the policy
has no effect, nor for pods that request no resource that the extender manages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import Arguments, boolean, duration
from windlass.plugins.dialects import VOLCANO
from windlass.spi.extender import ExtenderCall, ExtenderEndpoints, NodeExtender, NodeVerdict
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, NodeBlocker

UNANSWERED = "it has not answered yet"


class Extender:
    """Filter and score by an extender. Points are clipped to 0…100."""

    name = "extender"
    footprint = Footprint.STATIC
    dialects = VOLCANO

    def __init__(self, endpoints: ExtenderEndpoints, *, closes: bool = True) -> None:
        """:param closes: filter nodes, too"""
        self.endpoints = endpoints
        self.weight = 1.0
        self._closes = closes and bool(endpoints.predicate)
        self._extender: NodeExtender | None = None

    def take_node_extender(self, extender: NodeExtender) -> None:
        self._extender = extender

    def changed(self, now: float) -> bool:
        return self._extender is not None and self._extender.has_news()

    def due(self, now: float) -> float | None:
        return None

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        verdicts = self._verdicts(needs, nodes) if self._closes else None
        if verdicts is None:
            return None
        names = nodes.names()
        return np.array([not verdicts.get(name, _WAITS).rejection for name in names], dtype=np.bool_).reshape(
            nodes.size
        )

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        verdicts = self._verdicts(needs, nodes) if self._closes else None
        if verdicts is None:
            return []
        rejections = [verdicts.get(name, _WAITS).rejection for name in nodes.names()]
        return [
            NodeBlocker(
                Reason.REFUSED_BY_EXTENDER,
                np.array([rejection == detail for rejection in rejections]),
                detail=detail,
            )
            for detail in sorted({rejection for rejection in rejections if rejection})
        ]

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return (
            self._extender is not None
            and bool(self.endpoints.prioritize)
            and self.endpoints.applies_to(needs)
        )

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        verdicts = self._verdicts(needs.node_part(), nodes) or {}
        points = [verdicts[name].points if name in verdicts else 0.0 for name in nodes.names()]
        return np.clip(np.array(points), 0.0, 100.0)

    def _verdicts(self, needs: Needs, nodes: NodeView) -> Mapping[str, NodeVerdict] | None:
        if (
            self._extender is None
            or needs.dialect is not Dialect.VOLCANO
            or not self.endpoints.applies_to(needs)
        ):
            return None
        return self._extender.verdicts(needs.node_part(), [name for name in nodes.names() if name])


_WAITS = NodeVerdict(UNANSWERED)


def endpoints_of(arguments: Arguments) -> ExtenderEndpoints:
    """Return the endpoints of Volcano's arguments.

    The arguments are ``extender.urlPrefix``, ``extender.httpTimeout`` (1s),
    ``extender.ignorable`` (false), ``extender.managedResources`` (a list, or a text
    with commas), ``extender.predicateVerb``, ``extender.prioritizeVerb``, and
    ``extender.<call>Verb`` of every :class:`ExtenderCall`.
    """

    def text(name: str) -> str:
        return str(arguments.get(f"extender.{name}") or "").strip()

    seconds = duration(text("httpTimeout"))
    verbs = {call: text(f"{call}Verb") for call in ExtenderCall}
    managed = arguments.get("extender.managedResources") or ()
    names = managed.split(",") if isinstance(managed, str) else managed
    return ExtenderEndpoints(
        text("urlPrefix").rstrip("/"),
        text("predicateVerb"),
        text("prioritizeVerb"),
        seconds if seconds else 1.0,
        boolean(arguments, "extender.ignorable", False),
        {call: verb for call, verb in verbs.items() if verb},
        frozenset(name for name in (str(name).strip() for name in names) if name),
    )


def build(arguments: Arguments, *, closes: bool = True) -> list[Extender]:
    """Return the filter and score of nodes; an empty list without an address or either
    of its verbs."""
    endpoints = endpoints_of(arguments)
    return (
        [Extender(endpoints, closes=closes)]
        if endpoints.url and (endpoints.predicate or endpoints.prioritize)
        else []
    )
