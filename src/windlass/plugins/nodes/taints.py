"""Taints and tolerations: hard taints filter nodes, PreferNoSchedule lowers the score."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs, Taint, Toleration
from windlass.spi.plugins import Footprint, NodeBlocker, Trend

HARD = ("NoSchedule", "NoExecute")
SOFT = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint, by Kubernetes' rule.

    An empty effect matches every effect, and an empty key with Exists matches every
    key.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("", "Equal"):
        return bool(toleration.key) and toleration.value == taint.value
    return False


class TaintToleration:
    """Filter of hard taints, and score of 100 · (1 - share of untolerated soft taints)."""

    name = "taints"
    footprint = Footprint.STATIC

    def __init__(self, weight: float = 3.0, dialects: Collection[Dialect] = tuple(Dialect)) -> None:
        self.weight = weight
        self.dialects = dialects

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        verdicts = [not _refused(needs, taints, HARD) for taints in nodes.taint_sets()]
        return None if all(verdicts) else np.array(verdicts, dtype=np.bool_)[nodes.taints()]

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        sets = nodes.taint_sets()
        codes = nodes.taints()
        offending: dict[Taint, set[int]] = {}
        for code in sorted(set(codes.tolist())):  # np.unique would import numpy.ma, 50 ms in the first cycle
            for taint in _refused(needs, sets[code], HARD):
                offending.setdefault(taint, set()).add(code)
        return [
            NodeBlocker(
                Reason.TAINT_NOT_TOLERATED,
                np.isin(codes, list(holders)),
                detail=f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}",
            )
            for taint, holders in sorted(offending.items(), key=lambda item: str(item[0]))
        ]

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        sets = nodes.taint_sets()
        if not any(taint.effect == SOFT for taints in sets for taint in taints):
            return None
        scores = []
        for taints in sets:
            soft = sum(taint.effect == SOFT for taint in taints)
            scores.append(100.0 - 100.0 * len(_refused(needs, taints, (SOFT,))) / max(soft, 1))
        return np.array(scores)[nodes.taints()]


def _refused(needs: Needs, taints: Sequence[Taint], effects: Sequence[str]) -> list[Taint]:
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(t, taint) for t in needs.tolerations)
    ]
