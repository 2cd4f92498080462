"""Whether ranks can lie near one another as is asked (``--near LABEL``), before a job is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.cli.jobs.job_builder import JobRequest


def check_near(request: JobRequest) -> None:
    """Raises :class:`WindlassError` on what is no label's name."""
    if not request.near:
        return
    from windlass.api.validation.names import qualified_name

    if problems := qualified_name(request.near):
        raise WindlassError(
            "WL-USE-400",
            f"--near {request.near!r} is no label of nodes: {problems[0]}",
            remedies=("--near topology.kubernetes.io/zone",),
        )


def check_domains(request: JobRequest, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Whether any node says in which domain of that label it lies. Raises :class:`WindlassError`."""
    known = {name for node in nodes for name in node["metadata"].get("labels") or {}}
    if not request.near or request.near in known:
        return
    ends: dict[str, str] = {}
    for name in sorted(known):
        ends.setdefault(name.rpartition("/")[2], name)
    close = [*nearest(request.near, known), *(ends[end] for end in nearest(request.near, ends))]
    raise WindlassError(
        "WL-JOB-413",
        f"no node carries the label {request.near}, by which all ranks are to lie near one another",
        evidence="the job was not submitted",
        remedies=(
            *(f"--near {name}" for name in dict.fromkeys(close)),
            f"kubectl label node NODE {request.near}=VALUE",
        ),
    )
