"""Volcano's ``extender``, as far as it is about nodes: a server outside may refuse nodes and score them. What
else it is asked: :mod:`windlass.plugins.volcano.extender_votes`.

The policy itself reaches nobody: it asks a judge (:mod:`windlass.spi.extender`) that the scheduler
provides, once for each kind of pod and each node. A node on which there is no answer yet is closed until
there is one. Without a judge, as in a dry run, it says nothing; nor does it on pods that ask for nothing that it
manages.
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
    """Points are taken as they come, from 0 to 100; others count as the nearest of these."""

    name = "extender"
    footprint = Footprint.STATIC
    dialects = VOLCANO

    def __init__(self, endpoints: ExtenderEndpoints, *, closes: bool = True) -> None:
        """``closes``: whether it is a filter, too."""
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
        said = self._verdicts(needs, nodes) if self._closes else None
        if said is None:
            return None
        names = nodes.names()
        return np.array([not said.get(name, _WAITS).rejection for name in names], dtype=np.bool_).reshape(
            nodes.size
        )

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        said = self._verdicts(needs, nodes) if self._closes else None
        if said is None:
            return []
        words = [said.get(name, _WAITS).rejection for name in nodes.names()]
        return [
            NodeBlocker(Reason.REFUSED_BY_EXTENDER, np.array([word == why for word in words]), detail=why)
            for why in sorted({word for word in words if word})
        ]

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return (
            self._extender is not None
            and bool(self.endpoints.prioritize)
            and self.endpoints.applies_to(needs)
        )

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        said = self._verdicts(needs.node_part(), nodes) or {}
        points = [said[name].points if name in said else 0.0 for name in nodes.names()]
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
    """Volcano's arguments: ``extender.urlPrefix``, ``extender.httpTimeout`` (1s), ``extender.ignorable`` (false),
    ``extender.managedResources`` (a list; a text is read as one with commas), ``extender.predicateVerb``,
    ``extender.prioritizeVerb``, and ``extender.<call>Verb`` of every :class:`ExtenderCall`."""

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
    """The part that is about nodes. Without an address or either of its verbs: nothing."""
    endpoints = endpoints_of(arguments)
    return (
        [Extender(endpoints, closes=closes)]
        if endpoints.url and (endpoints.predicate or endpoints.prioritize)
        else []
    )
