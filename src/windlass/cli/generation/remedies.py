"""Commands of ``windlass generate`` with the user's own file and options, as remedies."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.cli.generation.manifest import GenerationRequest

_FLAGS = {
    "prompt": "--prompt",
    "group_by": "--group-by",
    "id_field": "--id",
    "output": "--output",
    "model": "--model",
    "url": "--url",
    "function": "--function",
    "runtime": "--runtime",
    "workers": "--workers",
    "autoscaler": "--autoscaler",
    "gpus": "--gpus",
    "shards": "--shards",
    "retries": "--retries",
    "max_failed": "--max-failed",
    "min_quality": "--min-quality",
    "scorer": "--scorer",
    "queue": "--queue",
    "priority": "--priority",
}


def again(request: GenerationRequest, *more: str, **changes: Any) -> str:
    """Return the command of a request with other options, an empty one left out.

    ``more``: further words, before those of a program.
    """
    wanted = replace(request, **changes)
    words = ["windlass", "generate", wanted.file]
    for field, flag in _FLAGS.items():
        value = getattr(wanted, field)
        if value not in ("", None) and (field != "gpus" or value):
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    words += more
    if wanted.command:
        words += ["--", *wanted.command]
    return shlex.join(words)
