"""``guarantee``: what is reserved for a queue and not used by it stays free for it.

What is free on the nodes after a step must cover what queues are guaranteed and do not hold yet. A queue
that is below its own guarantee draws on its own reservation. This is stricter than Volcano's
``realCapability``, which bounds each queue by itself: two queues within theirs may together use up what
is guaranteed to a third.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, Rejection, StepView, unfilled_guarantee
from windlass.spi.quantities import from_units


class Guarantees:
    """For the queues of one API: Volcano's guarantees hold against KAI's queues too."""

    def __init__(self, dialect: Dialect = Dialect.VOLCANO) -> None:
        self.dialect = dialect
        self.name = f"guarantees-{dialect.value}"

    def may_reject(self, path: Sequence[QueueView]) -> bool:
        return bool(path[0].guarantees) and path[0].spec.dialect is self.dialect

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        guarantees = path[0].guarantees
        if not guarantees or path[0].spec.dialect is not self.dialect:
            return None
        tops = path[-1].siblings
        for resource, units in step.request.items():
            if units <= 0 or not guarantees.get(resource, 0):
                continue
            kept = sum(unfilled_guarantee(top, resource, path, units) for top in tops)
            left = _free(step, nodes, resource) - kept
            if kept and units > left:
                others = sum(unfilled_guarantee(top, resource, path, units, idle=True) for top in tops)
                whole = int(nodes.allocatable(resource).sum())
                detail = f"other queues are guaranteed {from_units(resource, kept)} that they do not hold yet"
                if others > whole:
                    detail += f", and all nodes have {from_units(resource, whole)}"
                amounts = (units, max(left, 0))
                return _refusal(path, resource, amounts, detail, never=units > whole - others)
        return None


def _free(step: StepView, nodes: NodeView, resource: str) -> int:
    free = nodes.future_available(resource) if step.future else nodes.available(resource)
    return int(free[nodes.ready() & (free > 0)].sum())


def _refusal(
    path: Sequence[QueueView], resource: str, amounts: tuple[int, int], detail: str, *, never: bool
) -> Rejection:
    """``amounts``: what is asked for, and what is left. ``never``: that would be more than is left if nothing ran at
    all. That is no ``permanent`` refusal, since more nodes would help as well."""
    units, left = amounts
    return Rejection(
        code=Reason.EXCEEDS_QUEUE_LIMIT if never else Reason.WAITING_FOR_QUOTA,
        queue=path[-1].name,
        resource=resource,
        needed=units,
        available=left,
        detail=detail,
        remedies=(
            "Lower what other queues are guaranteed "
            f"(windlass queue ls, windlass queue set NAME guarantee.{resource}=AMOUNT).",
            *(("Add nodes.",) if never else (f"Wait until work that holds {resource} ends.",)),
        ),
        elsewhere=True,
    )
