"""CustomResourceDefinitions, and objects of the kinds that they declare.

A definition gets its status when it is written: its kinds are served from then on. Parts of a
definition that the embedded server does not enforce cause a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.errors import FieldError, failure, invalid
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from windlass.api.structural import checks, formats, names
from windlass.jobs.owners import paths, rules
from windlass.server.admission.plugin import Review
from windlass.server.custom_kinds import is_built_in
from windlass.server.presentation.tables_custom import parse_path

Json = Mapping[str, Any]


def prepare(review: Review) -> None:
    """Record the storage version of a definition. Refuse new objects of a kind that is being removed."""
    definition = review.resource.definition
    if definition is not None:
        if definition.deprecation:
            review.warn(definition.deprecation)
        if definition.terminating and review.creating:
            message = "create not allowed while custom resource definition is terminating"
            raise failure(405, "MethodNotAllowed", message, {})
        return
    if review.resource is not CUSTOM_RESOURCE_DEFINITIONS or not review.main:
        return
    problems = [
        FieldError.invalid(f"metadata.annotations[{name}]", annotations[name], why)
        for annotations in (review.object["metadata"].get("annotations") or {},)
        for name, why in rules.faults(annotations)
    ]
    if problems:
        raise invalid(CUSTOM_RESOURCE_DEFINITIONS, review.name, problems)
    status = review.object["status"] = {**(review.object.get("status") or {})}
    stored = list(status.get("storedVersions") or ())
    for version in (review.object.get("spec") or {}).get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version.get("name"))
    status["storedVersions"] = stored


def settle(review: Review) -> None:
    """Accept the names of a valid definition, and warn about what is not enforced."""
    if review.resource is not CUSTOM_RESOURCE_DEFINITIONS or not review.main:
        return
    crd = review.object
    group = crd["spec"]["group"]
    others = [
        other
        for other in review.objects.list(CUSTOM_RESOURCE_DEFINITIONS)
        if other["spec"]["group"] == group and other["metadata"]["name"] != review.name
    ]
    crd["status"] = names.settle(crd, others, review.clock.now())
    if review.creating or crd["spec"] != (review.old or {}).get("spec"):
        for text in _advice(crd):
            review.warn(text)


def _advice(crd: Json) -> Iterable[str]:
    spec = crd["spec"]
    kind, plural = spec["names"]["kind"], f"{spec['names']['plural']}.{spec['group']}"
    if is_built_in(spec["group"], spec["names"]["plural"]):
        yield (
            f"advice: Windlass serves {plural} itself: this definition is stored, and kind {kind} keeps the "
            "versions, fields and controller that Windlass has"
        )
    if (spec.get("conversion") or {}).get("strategy") == "Webhook":
        yield (
            "advice: spec.conversion: the webhook is not called on this server: objects are shown in each version "
            "with apiVersion changed, and fields that a version does not specify are left out"
        )
    yield from _grouping_advice(crd)
    for index, version in enumerate(spec["versions"]):
        yield from _version_advice(version, f"spec.versions[{index}]")


def _grouping_advice(crd: Json) -> Iterable[str]:
    """Yield the declared paths of grouping that no version's schema specifies."""
    annotations = crd["metadata"].get("annotations") or {}
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in crd["spec"]["versions"]]
    for name in rules.DECLARATIONS:
        for part in annotations.get(name, "").split("+"):
            path = part.strip()
            if path.startswith(".") and not any(paths.specified(schema, path) for schema in schemas):
                yield f"advice: annotation {name}: no version specifies {path}, so it has no value"


def _version_advice(version: Json, path: str) -> Iterable[str]:
    found: list[tuple[str, Json]] = []
    checks.visit(
        (version.get("schema") or {}).get("openAPIV3Schema"), f"{path}.schema.openAPIV3Schema", found
    )
    ruled = [
        (where, inner["x-kubernetes-validations"])
        for where, inner in found
        if inner.get("x-kubernetes-validations")
    ]
    if ruled:
        count = sum(len(rules) for _, rules in ruled)
        yield (
            f"advice: {ruled[0][0]}.x-kubernetes-validations: {count} CEL rule{'s' if count > 1 else ''} of version "
            f"{version['name']} not enforced on this server"
        )
    for _, inner in found:
        name = inner.get("format")
        if name and not formats.effective(inner.get("type") or "", name):
            yield f'unrecognized format "{name}"'
        items = inner.get("items")
        kind = items.get("type") if isinstance(items, Mapping) else ""
        if inner.get("x-kubernetes-list-type") == "set" and kind in ("object", "array"):
            yield (
                f'x-kubernetes-list-type: set for items of type "{kind}" is not supported by server-side apply '
                "or CEL validation rules"
            )
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            parse_path(column["jsonPath"])
        except ValueError as error:
            yield f"advice: {path}.additionalPrinterColumns[{index}]: this column stays empty: {error}"
