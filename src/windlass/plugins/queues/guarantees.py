"""``guarantee``: capacity reserved for a queue stays free until the queue uses it.

After a placement the free capacity of the nodes must cover all guarantees that queues
do not hold yet. A queue below its own guarantee uses its own reserved capacity. This is
stricter than Volcano's ``realCapability``, which bounds each queue separately: two
queues within their bounds may together use up the guarantee of a third.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, Rejection, StepView, unfilled_guarantee
from windlass.spi.quantities import from_units


class Guarantees:
    """Admission by guarantees, for the queues of one API.

    Volcano's guarantees hold against KAI's queues, too.
    """

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
            reserved = sum(unfilled_guarantee(top, resource, path, units) for top in tops)
            left = _free(step, nodes, resource) - reserved
            if reserved and units > left:
                others = sum(unfilled_guarantee(top, resource, path, units, idle=True) for top in tops)
                capacity = int(nodes.allocatable(resource).sum())
                detail = (
                    f"other queues are guaranteed {from_units(resource, reserved)} that they do not hold yet"
                )
                if others > capacity:
                    detail += f", and all nodes have {from_units(resource, capacity)}"
                amounts = (units, max(left, 0))
                return _rejection(path, resource, amounts, detail, never=units > capacity - others)
        return None


def _free(step: StepView, nodes: NodeView, resource: str) -> int:
    free = nodes.future_available(resource) if step.future else nodes.available(resource)
    return int(free[nodes.ready() & (free > 0)].sum())


def _rejection(
    path: Sequence[QueueView], resource: str, amounts: tuple[int, int], detail: str, *, never: bool
) -> Rejection:
    """Return the rejection of a request that would use capacity guaranteed to other queues.

    :param amounts: requested and available units
    :param never: True if the request exceeds the available capacity even if nothing
        ran. The rejection is still not ``permanent``, since more nodes would help.
    """
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
