"""``podSpecPatch`` of a workflow and of a template: a strategic merge into the spec of the pod."""

from __future__ import annotations

from typing import Any

import yaml

from windlass.api.wire import schema
from windlass.api.wire.patch_strategic import StrategicMergeError, merge_strategically
from windlass.workflow.language.errors import EvaluationError

Json = dict[str, Any]


def patched(body: Json, *patches: Any) -> Json:
    """Return the spec of a pod with patches in YAML or JSON. Raises :class:`EvaluationError`."""
    for text in patches:
        if not text:
            continue
        try:
            patch = yaml.safe_load(text) if isinstance(text, str) else text
        except yaml.YAMLError as problem:
            raise EvaluationError(f"podSpecPatch is not YAML: {problem}") from None
        if not isinstance(patch, dict):
            raise EvaluationError("podSpecPatch: an object with fields of a pod's spec is needed")
        try:
            body = merge_strategically(body, patch, schema.builtin(f"{schema.CORE}PodSpec"))
        except StrategicMergeError as problem:
            raise EvaluationError(f"podSpecPatch: {problem}") from None
    return body
