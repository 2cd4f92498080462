"""Changes that a JobFlow makes to a JobTemplate.

Fields of ``patch.jobSpec`` replace those of the template, with four exceptions. Tasks
merge by name, plugins by name, volumes by mount path, and pod templates by the merge
keys of Kubernetes (containers by name, variables by name and so on). A task of the
patch without a name means the only task of the template.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.api.wire import schema
from windlass.api.wire.patch_strategic import merge_strategically

Json = dict[str, Any]


def patched_spec(spec: Mapping[str, Any], patch: Mapping[str, Any] | None) -> Json:
    """Return the spec of a Job. Raises ``ValueError`` if the patch does not fit the template."""
    result = copy.deepcopy(dict(spec))
    for field, value in copy.deepcopy(dict(patch or {})).items():
        if field == "tasks":
            result["tasks"] = _tasks(result.get("tasks") or [], value or [])
        elif field == "plugins":
            result["plugins"] = {**(result.get("plugins") or {}), **(value or {})}
        elif field == "volumes":
            volumes = {entry.get("mountPath"): entry for entry in result.get("volumes") or ()}
            volumes.update({entry.get("mountPath"): entry for entry in value or ()})
            result["volumes"] = list(volumes.values())
        else:
            result[field] = value
    return result


def _tasks(tasks: list[Json], patches: list[Json]) -> list[Json]:
    by_name = {task.get("name") or f"default{at}": task for at, task in enumerate(tasks)}
    for patch in patches:
        name = patch.get("name") or ""
        if not name:
            if len(by_name) != 1:
                raise ValueError(
                    f"a task of the patch has no name, and the template has {len(by_name)} tasks "
                    f"({', '.join(by_name)}): name the task"
                )
            name = next(iter(by_name))
        task = by_name.get(name)
        by_name[name] = _task(task, patch) if task is not None else patch
    return list(by_name.values())


def _task(task: Json, patch: Json) -> Json:
    merged = {**task, **patch}
    template = patch.get("template")
    if template and task.get("template"):
        struct = schema.builtin(f"{schema.CORE}PodTemplateSpec")
        merged["template"] = merge_strategically(task["template"], template, struct)
    return merged
