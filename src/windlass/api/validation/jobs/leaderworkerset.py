"""A LeaderWorkerSet by itself: the rules of its webhook, each with its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.workloads.job_template import job_template

Obj = Mapping[str, Any]
_INT32_MAX = 2**31 - 1
_SPEC = "spec.leaderWorkerTemplate"
_ROLLING = "spec.rolloutStrategy.rollingUpdateConfiguration"


def leader_worker_set(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a LeaderWorkerSet, which has its defaults."""
    metadata, spec = part(obj, "metadata"), part(obj, "spec")
    template = part(spec, "leaderWorkerTemplate")
    if name := metadata.get("name"):
        out.checked("metadata.name", name, names.dns_1035_label)
    replicas, size = _number(spec.get("replicas", 1)), _number(template.get("size", 1))
    if replicas < 0:
        out.invalid("spec.replicas", replicas, "replicas must be equal or greater than 0")
    if size < 1:
        out.invalid(f"{_SPEC}.size", size, "size must be equal or greater than 1")
    if replicas * size > _INT32_MAX:
        out.invalid(
            "spec.replicas",
            replicas,
            f"the product of replicas and worker replicas must not exceed {_INT32_MAX}",
        )
    claims = [
        {"name": part(claim, "metadata").get("name") or "", "emptyDir": {}}
        for claim in template.get("volumeClaimTemplates") or ()
    ]
    for role in ("leaderTemplate", "workerTemplate"):
        if isinstance(template.get(role), Mapping):
            _restart_policy(template[role], f"{_SPEC}.{role}", out)
            word = role.removesuffix("Template")
            job_template(template[role], f"{_SPEC}.{role}", word, out, claims)
    _rolling(spec, replicas, out)
    _sub_groups(
        part(template, "subGroupPolicy") if template.get("subGroupPolicy") else None, size, metadata, out
    )
    if old is not None:
        _update(template, part(part(old, "spec"), "leaderWorkerTemplate"), out)


def _restart_policy(template: Obj, path: str, out: Collector) -> None:
    policy = part(template, "spec").get("restartPolicy")
    if policy not in (None, "", "Always"):
        out.choice(f"{path}.spec.restartPolicy", policy, ("Always",))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _rolling(spec: Obj, replicas: int, out: Collector) -> None:
    rolling = part(part(spec, "rolloutStrategy"), "rollingUpdateConfiguration")
    found = {}
    for field in ("maxUnavailable", "maxSurge"):
        value = rolling.get(field, 1 if field == "maxUnavailable" else 0)
        if isinstance(value, str):
            digits = value.removesuffix("%")
            if not value.endswith("%") or not digits.isdecimal():
                out.invalid(
                    f"{_ROLLING}.{field}",
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%')",
                )
                return
            if field == "maxUnavailable" and int(digits) > 100:
                out.invalid(f"{_ROLLING}.{field}", value, "must not be greater than 100%")
            product = int(digits) * replicas
            found[field] = product // 100 if field == "maxUnavailable" else -(-product // 100)
        elif value < 0:
            out.invalid(f"{_ROLLING}.{field}", value, "must be greater than or equal to 0")
            return
        else:
            found[field] = value
    if replicas and not found["maxUnavailable"] and not found["maxSurge"]:
        out.invalid(
            f"{_ROLLING}.maxUnavailable", rolling.get("maxUnavailable"), "must not be 0 when `maxSurge` is 0"
        )
    if (rolling.get("partition") or 0) < 0:
        out.invalid(f"{_ROLLING}.partition", rolling["partition"], "must be greater than or equal to 0")


def _sub_groups(policy: Obj | None, size: int, metadata: Obj, out: Collector) -> None:
    annotations = metadata.get("annotations") or {}
    key = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
    if policy is None:
        if annotations.get(key):
            out.invalid(
                f"metadata.annotations.{key}",
                annotations[key],
                "cannot have subgroup-exclusive-topology without subGroupSize set",
            )
        return
    path, found = f"{_SPEC}.subGroupPolicy.subGroupSize", policy.get("subGroupSize")
    if not isinstance(found, int) or found < 1:
        out.invalid(path, found, "subGroupSize must be equal or greater than 1")
        return
    if found > size:
        out.invalid(path, found, "subGroupSize cannot be larger than size")
    excluded = policy.get("subGroupPolicyType") == "LeaderExcluded"
    if excluded and (size - 1) % found:
        out.invalid(path, found, "size - 1 must be divisible by subGroupSize for LeaderExcluded")
    elif size % found and (size - 1) % found:
        out.invalid(path, found, "size or size - 1 must be divisible by subGroupSize")


def _update(template: Obj, before: Obj, out: Collector) -> None:
    now, old = part(template, "subGroupPolicy"), part(before, "subGroupPolicy")
    if now.get("subGroupSize") != old.get("subGroupSize"):
        out.invalid(f"{_SPEC}.subGroupPolicy.subGroupSize", now.get("subGroupSize"), "field is immutable")
