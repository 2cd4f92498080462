"""Checks of the template kinds that are translated to containers: containerSet, http, function, data, plugin."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.workflow.images import command_of
from windlass.workflow.language import expressions
from windlass.workflow.language.errors import EvaluationError

Json = Mapping[str, Any]
Found = tuple[str, Any, str]
FUNCTION_FIELDS = ("entryPoint", "path", "image", "command", "env", "resources", "volumeMounts", "workingDir")
"""Fields of ``function``. The last five are those of its container."""


def kind_problems(template: Json) -> Iterator[Found]:
    """Yield what is wrong with a template of these kinds: field, value, message."""
    for kind, check in (
        ("containerSet", _container_set),
        ("http", _http),
        ("function", _function),
        ("data", _data),
        ("plugin", _plugin),
    ):
        if kind not in template:
            continue
        if not isinstance(template[kind], Mapping):
            yield f".{kind}", template[kind], "an object is needed"
            return
        for field, value, text in check(template, template[kind]):
            yield f".{kind}{field}", value, text


def _container_set(template: Json, found: Json) -> Iterator[Found]:
    containers = found.get("containers") or []
    if not containers:
        yield ".containers", containers, "at least one container is needed"
        return
    names = [one.get("name") for one in containers]
    if len(set(names)) < len(names) or None in names:
        yield ".containers", names, "each container needs a name of its own"
        return
    awaited = {other for one in containers for other in one.get("dependencies") or ()}
    for at, one in enumerate(containers):
        path = f".containers[{at}]"
        for other in one.get("dependencies") or ():
            if other not in names:
                yield (
                    f"{path}.dependencies",
                    other,
                    f"the set has no container {other!r}: it has {', '.join(names)}",
                )
        ordered = (
            one.get("dependencies")
            or one["name"] in awaited
            or found.get("retryStrategy")
            or _has_outputs(template)
        )
        if ordered and not command_of(one):
            text = "a container with an order, retries or outputs needs a command: that of the image is not known"
            yield f"{path}.command", None, text
    order = {one["name"]: list(one.get("dependencies") or ()) for one in containers}
    while ready := [name for name, before in order.items() if not set(before) & set(order)]:
        for name in ready:
            del order[name]
    if order:
        yield ".containers", sorted(order), "these containers wait for one another: remove a dependency"
    if _has_outputs(template) and "main" not in names:
        yield ".containers", names, "outputs are those of the container main: name one so"


def _has_outputs(template: Json) -> bool:
    outputs = template.get("outputs") or {}
    return bool(outputs.get("parameters") or outputs.get("artifacts"))


def _http(_: Json, found: Json) -> Iterator[Found]:
    if not found.get("url"):
        yield ".url", found.get("url"), "the address of the request is needed"
    expression = found.get("successCondition")
    if expression and "{{" not in str(expression):
        try:
            expressions.parse(str(expression))
        except EvaluationError as problem:
            yield ".successCondition", expression, str(problem)
    encoded = (found.get("bodyFrom") or {}).get("bytes")
    if encoded and "{{" not in str(encoded):
        try:
            base64.b64decode(str(encoded), validate=True)
        except binascii.Error:
            yield ".bodyFrom.bytes", encoded, "the bytes are needed in base64"


def _data(_: Json, found: Json) -> Iterator[Found]:
    source = ((found.get("source") or {}).get("artifactPaths") or {}).get("s3") or {}
    for field in ("endpoint", "bucket", "key"):
        if not source.get(field):
            yield (
                f".source.artifactPaths.s3.{field}",
                None,
                "keys of a bucket of S3 can be listed: this field is needed",
            )
    for at, step in enumerate(found.get("transformation") or ()):
        expression = step.get("expression")
        path = f".transformation[{at}].expression"
        if not expression:
            yield path, None, "an expression over data is needed, such as filter(data, {# endsWith '.csv'})"
        elif "{{" not in expression:
            try:
                expressions.parse(expression)
            except EvaluationError as problem:
                yield path, expression, str(problem)


def _plugin(_: Json, found: Json) -> Iterator[Found]:
    if len(found) != 1:
        yield (
            "",
            sorted(found),
            "the name of one plugin is needed, with its arguments, such as plugin: {hello: {}}",
        )


def _function(_: Json, found: Json) -> Iterator[Found]:
    entry = str(found.get("entryPoint") or "")
    if not all(entry.partition(":")):
        yield ".entryPoint", entry, "MODULE:FUNCTION is needed, such as captions:split"
    for field in sorted(set(found) - set(FUNCTION_FIELDS)):
        yield f".{field}", found[field], f"the fields are {', '.join(FUNCTION_FIELDS)}"
