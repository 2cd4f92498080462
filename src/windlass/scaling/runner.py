"""Process that runs a user's recommender: ``python -m windlass.scaling.runner``.

Reads a JSON object a line on standard input and answers each with one on standard output.
The first names the class (``reference`` or ``source`` with ``name``, and ``class``). Each
further one has ``metrics`` and ``replicas``. What the class prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any, TextIO

from windlass.scaling.plugin import Plugin, PluginError, load_plugin, load_source
from windlass.scaling.recommendation import Replicas

NICENESS = 5


def main() -> int:
    """Answer requests until standard input ends."""
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    plugin: Plugin | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if plugin is None:
            try:
                plugin = loaded(request)
            except PluginError as error:
                _answer(answers, {"error": str(error)})
                return 1
            _answer(answers, {"name": plugin.name})
            continue
        found = plugin.recommend(request["metrics"], Replicas(**request["replicas"]))
        _answer(answers, asdict(found))
    return 0


def loaded(request: dict[str, Any]) -> Plugin:
    """Load the class that a request names. Raises :class:`PluginError`."""
    wanted = str(request.get("class") or "")
    if request.get("source"):
        return load_source(request["source"], str(request.get("name") or "plug-in"), wanted)
    reference = str(request.get("reference") or "")
    return load_plugin(f"{reference}:{wanted}" if wanted and ":" not in reference else reference)


def _answer(stream: TextIO, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
