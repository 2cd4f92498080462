"""One walk over a decoded body: what is unknown, what has the wrong type, and the normal form.

For built-in kinds the walk does what decoding into Go structs does on the real server: nulls vanish,
empty values of ``omitempty`` fields are dropped and the others written, quantities and times get their
canonical text, and errors have Go's words. For custom kinds it prunes by the schema of the
CustomResourceDefinition and collects type errors as field errors of validation.

The object is changed in place; hand in what :func:`windlass.api.wire.decode.decode_body` returned.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.resources import PODS, Resource
from windlass.api.structural.definition import Definition
from windlass.api.wire import schema
from windlass.api.wire.field_walk import GoWalker, SchemaWalker
from windlass.api.wire.schema import Struct
from windlass.kits.seen_cache import PassedChecks

_VALIDATIONS = ("", "Ignore", "Warn", "Strict")
_encode = msgspec.json.Encoder().encode
_normal_specs = PassedChecks()
"""Pod specs that the walk left as they were: those of a gang are equal, or nearly so."""


class FieldReport(msgspec.Struct):
    """Result of :func:`review`. ``errors`` yield a 400 (Go's messages), ``invalid`` a 422; both empty: valid."""

    object: dict[str, Any]
    unknown: list[str] = msgspec.field(default_factory=list)
    duplicates: list[str] = msgspec.field(default_factory=list)
    errors: list[str] = msgspec.field(default_factory=list)
    invalid: list[FieldError] = msgspec.field(default_factory=list)

    @property
    def strict(self) -> list[str]:
        """The messages of strict decoding: unknown fields, then duplicates, in the order of the body."""
        return [f'unknown field "{path}"' for path in self.unknown] + [
            f'duplicate field "{path}"' for path in self.duplicates
        ]


def review(resource: Resource, obj: dict[str, Any]) -> FieldReport:
    """Prune, normalise and check ``obj`` (in place) as an object of ``resource``."""
    if resource.definition is not None:
        return _review_defined(resource.definition, obj)
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    if struct is None:
        return FieldReport(obj)
    if resource is PODS and type(obj.get("spec")) is dict:
        return _review_pod(struct, obj)
    return review_struct(struct, obj, custom=resource.custom)


def _review_defined(definition: Definition, obj: dict[str, Any]) -> FieldReport:
    """As :func:`review_struct`, by the schema of a user's CustomResourceDefinition. Defaults are filled in."""
    walker = SchemaWalker(schema.object_header())
    walker.header(obj)
    report = FieldReport(obj, walker.unknown, [], walker.errors)
    if not walker.errors:
        report.unknown += definition.prune(obj)
        definition.fill(obj)
    _tell_duplicates(report)
    return report


def _review_pod(struct: Struct, obj: dict[str, Any]) -> FieldReport:
    """As :func:`review_struct`; a spec that is known to be in normal form is not walked again."""
    spec = obj["spec"]
    mark = PassedChecks.mark(_encode(spec))
    if mark in _normal_specs:
        obj["spec"] = {}
        try:
            return review_struct(struct, obj)
        finally:
            obj["spec"] = spec
    report = review_struct(struct, obj)
    if not report.unknown and not report.errors and PassedChecks.mark(_encode(obj.get("spec"))) == mark:
        _normal_specs.add(mark)
    return report


def review_struct(struct: Struct, obj: dict[str, Any], *, custom: bool = False) -> FieldReport:
    """Like :func:`review`, for any struct (DeleteOptions, Binding, a pod template)."""
    if custom:
        schema_walker = SchemaWalker(struct)
        schema_walker.object(obj)
        report = FieldReport(obj, schema_walker.unknown, [], schema_walker.errors, schema_walker.invalid)
    else:
        walker = GoWalker(struct)
        walker.struct(obj, struct, None)
        report = FieldReport(obj, walker.unknown, [], walker.errors)
    _tell_duplicates(report)
    return report


def _tell_duplicates(report: FieldReport) -> None:
    duplicates = getattr(report.object, "duplicates", ())
    if duplicates:
        gone = set(report.unknown)  # a duplicate of an unknown field is told once, as unknown
        report.duplicates = [path for path in duplicates if path not in gone]


def enforce(
    resource: Resource, report: FieldReport, validation: str = "", *, patch: bool = False
) -> list[str]:
    """Turn a report into warnings, or raise the StatusError that the real server answers.

    ``validation`` is the query parameter ``fieldValidation``: Strict, Warn (also when empty), Ignore.
    """
    check_validation(validation, patch=patch)
    if report.errors:
        raise _refusal(resource, report.errors[0], patch=patch)
    strict = report.strict
    if validation == "Strict" and strict:
        raise _refusal(resource, f"strict decoding error: {', '.join(strict)}", patch=patch)
    if report.invalid:
        raise errors.invalid(resource, _name(report.object), report.invalid)
    return strict if validation != "Ignore" else []


def check_validation(value: str, *, patch: bool = False) -> None:
    """Raise the 422 for an unknown value of ``fieldValidation``."""
    if value in _VALIDATIONS:
        return
    kind = "PatchOptions" if patch else "CreateOptions"
    error = FieldError.not_supported("fieldValidation", value, ("", "Ignore", "Strict", "Warn"))
    raise errors.failure(
        422,
        "Invalid",
        f'{kind}.meta.k8s.io "" is invalid: {error.field}: {error.message}',
        {
            "group": "meta.k8s.io",
            "kind": kind,
            "causes": [{"reason": error.reason, "message": error.message, "field": error.field}],
        },
    )


def undecodable(resource: Resource, message: str) -> str:
    """The sentence of a 400 for a body that is no such object."""
    return (
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {message}'
    )


def _refusal(resource: Resource, text: str, *, patch: bool) -> errors.StatusError:
    if not patch:
        return errors.bad_request(undecodable(resource, text))
    message = f'Invalid value: "patch": {text}'
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return errors.failure(422, "Invalid", f' "" is invalid: patch: {message}', {"causes": [cause]})


def _name(obj: dict[str, Any]) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
