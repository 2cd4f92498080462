"""Operators of the job kinds that a cluster serves, for ``windlass status``."""

from __future__ import annotations

from typing import Any

from windlass.api.resources import DEPLOYMENTS
from windlass.cli import errors
from windlass.cli.invocation import Invocation

WINDLASS = "Windlass"


def gather_job_kinds(invocation: Invocation) -> list[dict[str, Any]]:
    """Return the families of job kinds that are served, each with its operator.

    The operator is ``Windlass`` or a Deployment (``namespace/name``), by the same rule as in the controllers with
    their default settings.
    """
    from windlass.controllers.job_kinds.families import FAMILIES
    from windlass.controllers.job_kinds.operators import operator_of, owner_of

    client = invocation.client
    served = [
        family
        for family in FAMILIES
        if all(errors.if_served(lambda kind=kind: client.list(kind, limit=1), None) for kind in family.kinds)
    ]
    if not served:
        return []
    deployments = errors.if_served(lambda: client.list(DEPLOYMENTS).items, [])
    operators = [found for found in map(operator_of, deployments) if found is not None]
    return [{"family": family.name, "operator": owner_of(family, operators) or WINDLASS} for family in served]
