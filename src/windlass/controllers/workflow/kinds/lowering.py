"""Translation of templates of further kinds to containers and scripts."""

from __future__ import annotations

from typing import Any

from windlass.controllers.workflow.kinds.artifacts import data_script
from windlass.controllers.workflow.kinds.function import function_script
from windlass.controllers.workflow.kinds.http import http_script
from windlass.workflow.checks.artifacts import artifact_problems
from windlass.workflow.checks.kinds import kind_problems
from windlass.workflow.language.errors import EvaluationError

Json = dict[str, Any]


def lowered(template: Json) -> Json:
    """Return a template with a container or a script in the place of its kind.

    Raises :class:`EvaluationError`.
    """
    for field, _, text in (*kind_problems(template), *artifact_problems(template)):
        raise EvaluationError(f"{field[1:]}: {text}")
    if "http" in template:
        return http_script(template)
    if "function" in template:
        return function_script(template)
    return data_script(template) if "data" in template else template
