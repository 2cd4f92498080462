"""CustomResourceDefinitions: names, versions, schemas, and what an update may not change.

Messages are those of ``apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.structural import checks, openapi_rules
from windlass.api.structural.values import invalid
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.metadata import IMMUTABLE

Json = Mapping[str, Any]
_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_AT_ROOT = frozenset(
    (
        *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum"),
        *("exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems"),
        *("multipleOf", "required", "items", "properties", "externalDocs", "example"),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    )
)
_AT_ROOT_WORDS = (
    "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength "
    "Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "
    "XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status "
    "subresource is enabled"
)
_MAX_SELECTABLE = 8
_STORED = (
    "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions"
)


def definition(obj: Json, old: Json | None, out: Collector) -> None:
    spec = part(obj, "spec")
    _name(obj, spec, out)
    _group(spec, out)
    if not spec.get("scope"):
        out.required("spec.scope")
    else:
        out.choice("spec.scope", spec["scope"], _SCOPES)
    unknown = bool(spec.get("preserveUnknownFields"))
    if unknown and not part(old or {}, "spec").get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        out.add(invalid("spec.preserveUnknownFields", True, why))
    versions = spec.get("versions") or []
    for index, version in enumerate(versions):
        _version(version, f"spec.versions[{index}]", out)
    named = [version.get("name") for version in versions]
    if len(set(named)) != len(named):
        out.add(invalid("spec.versions", versions, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        out.add(invalid("spec.versions", versions, why))
    _names(part(spec, "names"), out)
    _conversion(part(spec, "conversion"), out)
    _stored_versions(part(obj, "status").get("storedVersions") or [], versions, out)
    if old is not None:
        _unchanged(spec, part(old, "spec"), _established(old), out)


def _name(obj: Json, spec: Json, out: Collector) -> None:
    name = part(obj, "metadata").get("name") or ""
    if name != f"{part(spec, 'names').get('plural') or ''}.{spec.get('group') or ''}":
        out.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _group(spec: Json, out: Collector) -> None:
    group = spec.get("group") or ""
    if not group:
        out.required("spec.group")
    elif why := names.dns_subdomain(group):
        out.invalid("spec.group", group, ",".join(why))
    elif "." not in group:
        out.invalid("spec.group", group, "should be a domain with at least one dot")


def _version(version: Json, path: str, out: Collector) -> None:
    name = version.get("name") or ""
    if why := names.dns_1035_label(name):
        out.invalid(f"{path}.name", name, ",".join(why))
    warning = version.get("deprecationWarning")
    if warning is not None:
        if not version.get("deprecated"):
            out.invalid(f"{path}.deprecationWarning", warning, "can only be set for deprecated versions")
        if len(warning) > 256:
            out.invalid(f"{path}.deprecationWarning", warning, "must be <= 256 characters long")
        if not warning:
            out.invalid(f"{path}.deprecationWarning", warning, "must not be an empty string")
    schema = part(version, "schema").get("openAPIV3Schema")
    where = f"{path}.schema.openAPIV3Schema"
    if schema is None:
        out.required(where)
    else:
        _schema(schema, where, part(version, "subresources").get("status") is not None, out)
    _scale(part(version, "subresources").get("scale"), f"{path}.subresources.scale", out)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        _column(column, f"{path}.additionalPrinterColumns[{index}]", out)
    _selectable(version.get("selectableFields") or (), schema or {}, f"{path}.selectableFields", out)


def _schema(schema: Json, path: str, status: bool, out: Collector) -> None:
    if status:
        if schema.get("type") not in (None, "object"):
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            out.invalid(f"{path}.type", schema["type"], why)
        elif not _AT_ROOT.issuperset(schema) and "nullable" not in schema:
            out.add(invalid(path, schema, _AT_ROOT_WORDS))
    if schema.get("nullable"):
        out.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    rules = openapi_rules.check(schema, path)
    structural = (
        [] if any(error.field.endswith(".items") for error in rules) else checks.structural(schema, path)
    )
    for error in structural or ([] if rules else checks.defaults(schema, path)):
        out.add(error)
    for error in rules:
        out.add(error)


def _scale(scale: Json | None, path: str, out: Collector) -> None:
    if scale is None:
        return
    for name, below in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        value = scale.get(name) or ""
        if not value:
            out.required(f"{path}.{name}")
        else:
            _simple_path(value, f"{path}.{name}", (below,), f"should be a json path under {below}", out)
    selector = scale.get("labelSelectorPath") or ""
    if selector:
        why = "should be a json path under either .spec or .status"
        _simple_path(selector, f"{path}.labelSelectorPath", (".spec", ".status"), why, out)


def _simple_path(value: str, path: str, below: Sequence[str], why: str, out: Collector) -> None:
    if not value.startswith("."):
        out.invalid(path, value, "must be a simple json path starting with .")
    elif below and not value.startswith(tuple(f"{start}." for start in below)):
        out.invalid(path, value, why)


def _column(column: Json, path: str, out: Collector) -> None:
    if not column.get("name"):
        out.required(f"{path}.name")
    kinds = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        out.required(f"{path}.type", kinds)
    elif column["type"] not in _COLUMN_TYPES:
        out.invalid(f"{path}.type", column["type"], kinds)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        out.invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        out.required(f"{path}.JSONPath")
    else:
        _simple_path(column["jsonPath"], f"{path}.JSONPath", (), "", out)


def _selectable(fields: Sequence[Json], schema: Json, path: str, out: Collector) -> None:
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where, value = f"{path}[{index}].jsonPath", field.get("jsonPath") or ""
        if not value:
            out.required(where)
            continue
        node: Json | None = schema
        for step in value.removeprefix(".").split("."):
            node = part(node or {}, "properties").get(step)
        if node is None:
            out.invalid(where, value, f"is an invalid path: does not refer to a valid field: {value}")
            continue
        if value.startswith(".metadata"):
            out.invalid(where, value, "must not point to fields in metadata")
        if node.get("type") not in ("string", "boolean", "integer"):
            out.invalid(
                where,
                value,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with "
                "formats are allowed.",
            )
        if value in seen:
            out.duplicate(where, value)
        seen.add(value)
    if len(seen) > _MAX_SELECTABLE:
        out.too_many(path, len(seen), _MAX_SELECTABLE)


def _names(found: Json, out: Collector) -> None:
    for name in ("plural", "singular", "kind", "listKind"):
        value = found.get(name) or ""
        if not value:
            out.required(f"spec.names.{name}")
        elif why := names.dns_1035_label(value.lower() if "ind" in name else value):
            mixed = "may have mixed case, but should otherwise match: " if "ind" in name else ""
            out.invalid(f"spec.names.{name}", value, f"{mixed}{','.join(why)}")
    for name in ("shortNames", "categories"):
        for index, value in enumerate(found.get(name) or ()):
            if why := names.dns_1035_label(value):
                out.invalid(f"spec.names.{name}[{index}]", value, ",".join(why))
    if found.get("kind") and found["kind"] == found.get("listKind"):
        out.invalid("spec.names.listKind", found["listKind"], "kind and listKind may not be the same")


def _conversion(conversion: Json, out: Collector) -> None:
    strategy = conversion.get("strategy") or ""
    if not strategy:
        out.required("spec.conversion.strategy")
        return
    out.choice("spec.conversion.strategy", strategy, ("None", "Webhook"))
    webhook = part(conversion, "webhook")
    client = webhook.get("clientConfig")
    path = "spec.conversion.webhookClientConfig"
    if strategy != "Webhook":
        if client is not None:
            out.forbidden(path, "should not be set when strategy is not set to Webhook")
        return
    if client is None:
        out.required(path, "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        out.required(path, "exactly one of url or service is required")
    versions = webhook.get("conversionReviewVersions") or []
    if not versions:
        out.required("spec.conversion.conversionReviewVersions")
    elif not {"v1", "v1beta1"} & set(versions):
        why = "must include at least one of v1, v1beta1"
        out.add(invalid("spec.conversion.conversionReviewVersions", versions, why))


def _stored_versions(stored: Sequence[str], versions: Sequence[Json], out: Collector) -> None:
    if not stored:
        out.add(invalid("status.storedVersions", list(stored), "must have at least one stored version"))
        return
    named = [version.get("name") for version in versions]
    for index, name in enumerate(stored):
        if name not in named:
            out.invalid(f"status.storedVersions[{index}]", name, _STORED.format(name))


def _unchanged(spec: Json, old: Json, established: bool, out: Collector) -> None:
    if established and spec.get("scope") != old.get("scope"):
        out.invalid("spec.scope", spec.get("scope"), IMMUTABLE)
    new_names, old_names = part(spec, "names"), part(old, "names")
    if established and new_names.get("kind") != old_names.get("kind"):
        out.invalid("spec.names.kind", new_names.get("kind"), IMMUTABLE)
    if spec.get("group") != old.get("group"):
        out.invalid("spec.group", spec.get("group"), IMMUTABLE)
    if new_names.get("plural") != old_names.get("plural"):
        out.invalid("spec.names.plural", new_names.get("plural"), IMMUTABLE)


def _established(obj: Json) -> bool:
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in part(obj, "status").get("conditions") or ()
    )
