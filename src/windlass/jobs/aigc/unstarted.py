"""Driver that its node does not start, for example because a folder cannot be created."""

from __future__ import annotations

import posixpath
import re

from windlass.jobs.members import RolePod

_FIELD = re.compile(r"\(the folder of (spec\.\w+\.path)\)$")
_VOLUMES = {'"windlass-outputs"': "spec.outputs.path", '"windlass-input"': "spec.input.path"}
"""Volume of the driver as messages of nodes name it → field with its folder."""


def unstarted_text(driver: RolePod, outputs: str) -> str:
    """Return why a driver does not start, with the field that helps. ``outputs``: path of the outputs."""
    text = f"{driver.name} does not start on node {driver.node}"
    if not driver.unprepared:
        return f"{text}: kubectl describe pod {driver.name} tells why"
    field = next((field for volume, field in _VOLUMES.items() if volume in driver.unprepared), "")
    folder = posixpath.dirname(outputs.rstrip("/"))
    if not field and len(folder) > 1 and folder in driver.unprepared:
        field = _VOLUMES['"windlass-outputs"']
    return f"{text}: {driver.unprepared}" + (f" (the folder of {field})" if field else "")


def field_to_correct(message: str) -> str:
    """Return the field that a message about a driver names; empty if it names none."""
    found = _FIELD.search(message)
    return found[1] if found else ""
