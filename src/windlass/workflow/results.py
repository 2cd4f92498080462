"""Steps and tasks with a standard output that something refers to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_USE = re.compile(r"""(?:steps|tasks)(?:\.|\[\\?['"])([A-Za-z0-9_-]+)(?:\\?['"]\])?\.outputs\.result""")
_SUFFIX = re.compile(r"\((?:\d+|\d+:[^()]*)\)$")


def result_users(*specs: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of steps and tasks with a result that the specs refer to."""
    return frozenset(name for spec in specs for name in _USE.findall(json.dumps(spec)))


def task_of(display_name: str) -> str:
    """Return the step or task of a node: without the item of a loop and the number of an attempt."""
    while (shorter := _SUFFIX.sub("", display_name)) != display_name:
        display_name = shorter
    return display_name
