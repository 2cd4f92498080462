"""``apps/v1``, as ``pkg/apis/apps/validation`` of Kubernetes judges it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import selectors
from windlass.api.defaults import pod as pod_defaults
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.metadata import IMMUTABLE
from windlass.api.validation.pods import pod
from windlass.api.validation.pods.placement import label_selector
from windlass.api.validation.simple import claim_spec
from windlass.api.wire import patch_types

Obj = Mapping[str, Any]
_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_WORDS = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)
_STATEFUL_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_FIXED_SPEC = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def deployment(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = part(obj, "spec")
    out.at_least("spec.replicas", spec.get("replicas"))
    _selector(spec, "deployment", out)
    _template(spec, "ReplicaSet", out)
    _deployment_strategy(part(spec, "strategy"), out)
    _numbers(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), out)
    deadline, settled = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if isinstance(deadline, int) and deadline <= settled:
        out.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    _fixed_selector(spec, old, out)


def replica_set(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = part(obj, "spec")
    _numbers(spec, ("replicas", "minReadySeconds"), out)
    _selector(spec, "deployment", out)
    _template(spec, "ReplicaSet", out)
    _fixed_selector(spec, old, out)


def daemon_set(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = part(obj, "spec")
    _selector(spec, "daemonset", out)
    _template(spec, "DaemonSet", out)
    _numbers(spec, ("minReadySeconds", "revisionHistoryLimit"), out)
    strategy = part(spec, "updateStrategy")
    if out.choice("spec.updateStrategy.type", strategy.get("type"), ("RollingUpdate", "OnDelete")) and (
        strategy["type"] == "RollingUpdate"
    ):
        _daemon_rolling(part(strategy, "rollingUpdate"), out)
    _fixed_selector(spec, old, out)


def stateful_set(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = part(obj, "spec")
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        out.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    _stateful_strategy(part(spec, "updateStrategy"), out)
    retention = part(spec, "persistentVolumeClaimRetentionPolicy")
    for field in ("whenDeleted", "whenScaled"):
        path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
        out.choice(path, retention.get(field, "Retain"), ("Retain", "Delete"))
    claims: Sequence[Obj] = spec.get("volumeClaimTemplates") or ()
    if old is None:
        for index, claim in enumerate(claims):
            claim_spec(part(claim, "spec"), f"spec.volumeClaimTemplates[{index}].spec", out)
    _numbers(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), out)
    out.at_least("spec.ordinals.start", part(spec, "ordinals").get("start"))
    service = spec.get("serviceName")
    if service and old is None:
        out.each("spec.serviceName", service, names.dns_label(service))
    _selector(spec, "statefulset", out)
    _template(spec, "StatefulSet", out, claims)
    if old is not None and _fixed_part(spec) != _fixed_part(part(old, "spec")):
        out.forbidden("spec", _FIXED_SPEC)


def controller_revision(obj: Obj, old: Obj | None, out: Collector) -> None:
    out.at_least("revision", obj.get("revision"))
    data = obj.get("data")
    if old is None and data is None:
        out.required("data", "data is mandatory")
    elif old is None and not isinstance(data, Mapping):
        out.required("data", "data must be a valid JSON object")
    elif old is not None and data != old.get("data"):
        out.invalid("data", data, IMMUTABLE)


def _fixed_part(spec: Obj) -> Obj:
    return {name: value for name, value in spec.items() if name not in _STATEFUL_FIELDS}


def _numbers(spec: Obj, fields: tuple[str, ...], out: Collector) -> None:
    for field in fields:
        out.at_least(f"spec.{field}", spec.get(field))


def _selector(spec: Obj, kind: str, out: Collector) -> None:
    selector = spec.get("selector")
    if selector is None:
        out.required("spec.selector")
        return
    label_selector(selector, "spec.selector", out)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        out.invalid("spec.selector", selector, f"empty selector is invalid for {kind}")


def _fixed_selector(spec: Obj, old: Obj | None, out: Collector) -> None:
    if old is not None and spec.get("selector") != part(old, "spec").get("selector"):
        out.invalid("spec.selector", spec.get("selector"), IMMUTABLE)


def _template(spec: Obj, kind: str, out: Collector, claims: Sequence[Obj] = ()) -> None:
    """Check the template as the pods that are created from it.

    ``claims``: claims from which the pods get volumes in addition.
    """
    filled = patch_types.copy(part(spec, "template"))
    selector = selectors.from_object(spec.get("selector"))
    labels = part(filled, "metadata").get("labels")
    if selector and not selector.matches(labels):
        why = "`selector` does not match template `labels`"
        out.invalid("spec.template.metadata.labels", labels or {}, why)
    pod_spec = filled.setdefault("spec", {})
    if claims:
        added = [
            {"name": claim["metadata"].get("name", ""), "persistentVolumeClaim": {"claimName": "claim"}}
            for claim in claims
        ]
        replaced = {volume["name"] for volume in added}
        kept = [one for one in pod_spec.get("volumes") or () if one.get("name") not in replaced]
        pod_spec["volumes"] = [*added, *kept]
    pod_defaults.requests_from_limits(pod_spec)
    pod.template(filled, "spec.template", out)
    policy = pod_spec.get("restartPolicy", "Always")
    if policy != "Always":
        out.choice("spec.template.spec.restartPolicy", policy, ("Always",))
    if pod_spec.get("activeDeadlineSeconds") is not None:
        where = "spec.template.spec.activeDeadlineSeconds"
        out.forbidden(where, f"activeDeadlineSeconds in {kind} is not Supported")


def _deployment_strategy(strategy: Obj, out: Collector) -> None:
    kind = strategy.get("type")
    if not out.choice("spec.strategy.type", kind, ("Recreate", "RollingUpdate")):
        return
    rolling = strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            out.forbidden("spec.strategy.rollingUpdate", why)
        return
    amounts = _amounts(rolling or {}, "spec.strategy.rollingUpdate", out)
    if amounts["maxUnavailable"] == 0 and amounts["maxSurge"] == 0:
        given = (rolling or {}).get("maxUnavailable")
        out.invalid("spec.strategy.rollingUpdate.maxUnavailable", given, "may not be 0 when `maxSurge` is 0")
    _at_most_all("spec.strategy.rollingUpdate.maxUnavailable", (rolling or {}).get("maxUnavailable"), out)


def _daemon_rolling(rolling: Obj, out: Collector) -> None:
    path = "spec.updateStrategy.rollingUpdate"
    amounts = _amounts(rolling, path, out)
    for field in amounts:
        _at_most_all(f"{path}.{field}", rolling.get(field), out)
    if amounts["maxUnavailable"] != 0 and amounts["maxSurge"] != 0:
        why = "may not be set when maxUnavailable is non-zero"
        out.invalid(f"{path}.maxSurge", rolling.get("maxSurge"), why)
    elif amounts["maxUnavailable"] == 0 and amounts["maxSurge"] == 0:
        out.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _stateful_strategy(strategy: Obj, out: Collector) -> None:
    kind, path = strategy.get("type"), "spec.updateStrategy.rollingUpdate"
    rolling = strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            out.invalid(path, rolling, "only allowed for updateStrategy 'RollingUpdate'")
    elif kind != "RollingUpdate":
        out.invalid("spec.updateStrategy", dict(strategy), "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None:
        out.at_least(f"{path}.partition", rolling.get("partition"))
        limit = rolling.get("maxUnavailable")
        if limit is not None:
            if _amount(f"{path}.maxUnavailable", limit, out) == 0:
                out.invalid(f"{path}.maxUnavailable", limit, "cannot be 0")
            _at_most_all(f"{path}.maxUnavailable", limit, out)


def _amounts(rolling: Obj, path: str, out: Collector) -> dict[str, int]:
    """Return the numbers of both limits, percentages without their sign."""
    return {
        field: _amount(f"{path}.{field}", rolling.get(field, 0), out)
        for field in ("maxUnavailable", "maxSurge")
    }


def _amount(path: str, value: Any, out: Collector) -> int:
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            out.invalid(path, value, _PERCENT_WORDS)
            return -1
        return int(value[:-1])
    out.at_least(path, value)
    return int(value or 0)


def _at_most_all(path: str, value: Any, out: Collector) -> None:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        out.invalid(path, value, "must not be greater than 100%")
