"""Validation of ``batch/v1`` Jobs (``pkg/apis/batch/validation`` of Kubernetes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.fields.batch import CONTROLLER_UID, JOB_NAME, OLD_CONTROLLER_UID, OLD_JOB_NAME
from windlass.api.selectors import SelectorError, from_object
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.pods import pod
from windlass.api.validation.pods.placement import label_selector
from windlass.api.validation.workloads import batch_policies
from windlass.api.validation.workloads.batch_update import job_update

Obj = Mapping[str, Any]
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_INDEXED = "when completion mode is Indexed"
_MAX_INDEXED_PARALLELISM = _MAX_FAILED_INDEXES = _MANY_COMPLETIONS = 100_000
_MAX_WITH_MANY_COMPLETIONS = 10_000
_MAX_MANAGED_BY = 63


def job(obj: Obj, old: Obj | None, out: Collector) -> None:
    metadata, spec = part(obj, "metadata"), part(obj, "spec")
    _generated_selector(obj, out)
    job_spec(spec, "spec", out)
    _selector(spec, out)
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and isinstance(completions, int) and completions > 0:
        longest = f"{metadata.get('name', '')}-{completions - 1}"
        if names.dns_label(longest):
            why = f"will not able to create pod with invalid DNS label: {longest}"
            out.invalid("metadata.name", metadata.get("name", ""), why)
    if old is not None:
        job_update(spec, old, out)


def job_spec(spec: Obj, path: str, out: Collector) -> None:
    """Check the fields that a Job and the template of a CronJob have in common."""
    for field in _COUNTS:
        out.at_least(f"{path}.{field}", spec.get(field))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        out.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    _managed_by(spec.get("managedBy"), f"{path}.managedBy", out)
    _completion_mode(spec, path, out)
    batch_policies.policies(spec, path, out)
    template = part(spec, "template")
    pod.template(template, f"{path}.template", out)
    _restart_policy(spec, part(template, "spec").get("restartPolicy"), path, out)


def _managed_by(name: Any, path: str, out: Collector) -> None:
    if name is None:
        return
    domain, slash, rest = str(name).partition("/")
    if not slash or not domain or not rest:
        out.invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        out.each(path, domain, names.dns_subdomain(domain))
    if len(str(name)) > _MAX_MANAGED_BY:
        out.invalid(path, name, f"may not be more than {_MAX_MANAGED_BY} bytes")


def _completion_mode(spec: Obj, path: str, out: Collector) -> None:
    mode = spec.get("completionMode")
    if mode is not None and not out.choice(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")):
        return
    if mode == "Indexed":
        _indexed(spec, path, out)
        return
    for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(field) is not None:
            out.invalid(f"{path}.{field}", spec[field], "requires indexed completion mode")


def _indexed(spec: Obj, path: str, out: Collector) -> None:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    most = spec.get("maxFailedIndexes")
    if completions is None:
        out.required(f"{path}.completions", _INDEXED)
    if parallelism is not None and parallelism > _MAX_INDEXED_PARALLELISM:
        why = f"must be less than or equal to {_MAX_INDEXED_PARALLELISM} {_INDEXED}"
        out.invalid(f"{path}.parallelism", parallelism, why)
    if completions is not None and most is not None and most > completions:
        out.invalid(f"{path}.maxFailedIndexes", most, "must be less than or equal to completions")
    if most is not None and most > _MAX_FAILED_INDEXES:
        out.invalid(f"{path}.maxFailedIndexes", most, f"must be less than or equal to {_MAX_FAILED_INDEXES}")
    if (completions or 0) > _MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        if most is None:
            why = f"must be specified when completions is above {_MANY_COMPLETIONS}"
            out.required(f"{path}.maxFailedIndexes", why)
        for field in ("parallelism", "maxFailedIndexes"):
            if (spec.get(field) or 0) > _MAX_WITH_MANY_COMPLETIONS:
                why = (
                    f"must be less than or equal to {_MAX_WITH_MANY_COMPLETIONS} when completions are above "
                    f"{_MANY_COMPLETIONS} and used with backoff limit per index"
                )
                out.invalid(f"{path}.{field}", spec[field], why)


def _restart_policy(spec: Obj, policy: Any, path: str, out: Collector) -> None:
    where = f"{path}.template.spec.restartPolicy"
    if policy in (None, "", "Always"):
        out.required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        out.choice(where, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        out.invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _generated_selector(obj: Obj, out: Collector) -> None:
    """Check the labels that the server adds, which the user may have set to something else."""
    metadata, spec = part(obj, "metadata"), part(obj, "spec")
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    wanted = {OLD_CONTROLLER_UID: uid, OLD_JOB_NAME: name, CONTROLLER_UID: uid, JOB_NAME: name}
    template = part(part(spec, "template"), "metadata")
    found = part(template, "labels")
    for label, value in wanted.items():
        where = f"spec.template.metadata.labels[{label}]"
        if label not in found:
            out.required(where, f"must be '{value}'")
        elif found[label] != value:
            out.invalid(where, dict(found), f"must be '{value}'")
    if not _matches(spec["selector"], wanted):
        out.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _selector(spec: Obj, out: Collector) -> None:
    selector = spec.get("selector")
    before = len(out.errors)
    labels = part(part(part(spec, "template"), "metadata"), "labels")
    if selector is None:
        out.required("spec.selector")
    else:
        label_selector(selector, "spec.selector", out)
        if len(out.errors) > before:
            return
    if not _matches(selector, labels):
        why = "`selector` does not match template `labels`"
        out.invalid("spec.template.metadata.labels", dict(labels) or None, why)


def _matches(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    try:
        found = from_object(selector)
        return found is not None and found.matches(labels)
    except SelectorError:
        return True  # reported where it stands
