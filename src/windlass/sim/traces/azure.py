"""Azure's inference requests of 2023 (Patel et al., ISCA 2024): ``TIMESTAMP,ContextTokens,GeneratedTokens``.

The trace has tokens, no run times; what a request takes is reckoned here as ``ContextTokens`` at
:data:`PROMPT_TOKENS` a second and ``GeneratedTokens`` at :data:`ANSWER_TOKENS` a second: assumptions of this
reader, which every result with this trace shares.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.rows import rows
from windlass.sim.traces.times import moment

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
PROMPT_TOKENS = 5000.0
ANSWER_TOKENS = 30.0


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The requests, each a job of one GPU, from the first on. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    found = [(row, moment(row, "TIMESTAMP")) for row in rows(lines, file, COLUMNS)]
    first = min((begun for _, begun in found), default=0.0)
    return [
        TraceJob(
            id=str(number),
            submit_seconds=begun - first,
            duration_seconds=row.number("ContextTokens") / PROMPT_TOKENS
            + row.number("GeneratedTokens") / ANSWER_TOKENS,
            gpus=1,
        )
        for number, (row, begun) in enumerate(found)
    ]
