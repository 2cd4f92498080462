"""Pods and pod templates, as ``ValidatePodCreate`` and ``ValidatePodUpdate`` of Kubernetes judge them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation import amounts, names
from windlass.api.validation.collector import Collector
from windlass.api.validation.pods.containers import containers, user_id
from windlass.api.validation.pods.placement import placement
from windlass.api.validation.pods.volumes import volumes

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_DEADLINE_LIMIT = 2**31 - 1
_MAX_NAMESERVERS = 3
_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_BUDGET = re.compile(r"[0-9]{1,9}%?")
Obj = Mapping[str, Any]


def pod(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    pod_spec(spec, "spec", out)
    if old is None:
        if spec.get("ephemeralContainers"):
            out.forbidden("spec.ephemeralContainers", "cannot be set on create")
        if spec.get("schedulingGates") and spec.get("nodeName"):
            out.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def budgets(annotations: Obj, out: Collector) -> None:
    """The disruption budget that Volcano's ``tdm`` goes by: one of the two, a number or a part of the pods."""
    given = [name for name in _BUDGETS if name in annotations]
    for name in given:
        text = str(annotations[name])
        number = int(text.removesuffix("%")) if _BUDGET.fullmatch(text) else 0
        if number < 1 or (text.endswith("%") and number > 99):
            out.invalid(
                f"metadata.annotations[{name}]", text, "write a number of pods from 1 on, or 1% to 99%"
            )
    if len(given) > 1:
        out.invalid(
            f"metadata.annotations[{given[1]}]", annotations[given[1]], f"{given[0]} is given, too: keep one"
        )


def template(obj: Obj, path: str, out: Collector) -> None:
    """A pod template with its defaults filled in; ``path`` is where it stands."""
    from windlass.api.validation.metadata import labels

    labels((obj.get("metadata") or {}).get("labels"), f"{path}.metadata.labels", out)
    spec = obj.get("spec") or {}
    pod_spec(spec, f"{path}.spec", out)
    if spec.get("ephemeralContainers"):
        out.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def pod_spec(spec: Obj, path: str, out: Collector) -> None:
    volumes(spec.get("volumes") or (), f"{path}.volumes", out)
    containers(spec, path, out)
    out.choice(f"{path}.restartPolicy", spec.get("restartPolicy", "Always"), _RESTART)
    out.choice(f"{path}.dnsPolicy", spec.get("dnsPolicy", "ClusterFirst"), _DNS)
    _names(spec, path, out)
    _numbers(spec, path, out)
    placement(spec, path, out)
    _security(spec, path, out)
    _dns_config(spec, path, out)
    _gates(spec, path, out)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        where = f"{path}.hostAliases[{index}]"
        out.each(f"{where}.ip", alias.get("ip", ""), names.ip_address(alias.get("ip", "")))
        for at, hostname in enumerate(alias.get("hostnames") or ()):
            out.each(f"{where}.hostnames[{at}]", hostname, names.dns_subdomain(hostname))
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        out.each(f"{path}.readinessGates[{index}].conditionType", kind, names.qualified_name(kind))
    if spec.get("os") is not None:
        out.choice(f"{path}.os", spec["os"].get("name", ""), ("linux", "windows"))
    for name, text in (spec.get("overhead") or {}).items():
        amounts.quantity(f"{path}.overhead[{name}]", name, text, out)
    amounts.pod_level(spec.get("resources") or {}, f"{path}.resources", out)
    _claims(spec, path, out)


def _names(spec: Obj, path: str, out: Collector) -> None:
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        value = spec.get(field)
        if value:
            out.each(f"{path}.{field}", value, names.dns_subdomain(value))
    for field in ("hostname", "subdomain"):
        value = spec.get(field)
        if not value:
            continue
        if field == "hostname" and "." in value:
            out.invalid(f"{path}.{field}", value, "must not contain dots")
        else:
            out.each(f"{path}.{field}", value, names.dns_label(value))


def _numbers(spec: Obj, path: str, out: Collector) -> None:
    out.at_least(f"{path}.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _DEADLINE_LIMIT:
        out.invalid(
            f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_DEADLINE_LIMIT}, inclusive"
        )


def _security(spec: Obj, path: str, out: Collector) -> None:
    context = spec.get("securityContext") or {}
    where = f"{path}.securityContext"
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        user_id(context.get(field), f"{where}.{field}", out)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        user_id(group, f"{where}.supplementalGroups[{index}]", out)
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        name = sysctl.get("name", "")
        if not name:
            out.required(f"{where}.sysctls[{index}].name")
        elif len(name) > names.SUBDOMAIN_MAX or not _SYSCTL.fullmatch(name):
            out.invalid(
                f"{where}.sysctls[{index}].name",
                name,
                f"must have at most {names.SUBDOMAIN_MAX} characters and match regex ^{_SYSCTL.pattern}$",
            )
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        out.invalid(
            f"{where}.shareProcessNamespace",
            True,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        )


def _dns_config(spec: Obj, path: str, out: Collector) -> None:
    config = spec.get("dnsConfig")
    where = f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            out.required(where, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            out.required(
                f"{where}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None"
            )
    servers = (config or {}).get("nameservers") or ()
    if len(servers) > _MAX_NAMESERVERS:
        shown = "[" + ",".join(f'"{server}"' for server in servers) + "]"
        out.add(
            FieldError(
                f"{where}.nameservers",
                f"Invalid value: {shown}: must not have more than {_MAX_NAMESERVERS} nameservers",
            )
        )
    for index, server in enumerate(servers):
        out.each(f"{where}.nameservers[{index}]", server, names.ip_address(server))
    for index, domain in enumerate((config or {}).get("searches") or ()):
        out.each(f"{where}.searches[{index}]", domain, names.search_domain(domain))
    for index, option in enumerate((config or {}).get("options") or ()):
        if not option.get("name"):
            out.required(f"{where}.options[{index}]", "must not be empty")


def _gates(spec: Obj, path: str, out: Collector) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        where, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        out.each(where, name, names.qualified_name(name))
        if name in seen:
            out.duplicate(where, name)
        seen.add(name)


def _claims(spec: Obj, path: str, out: Collector) -> None:
    for index, claim in enumerate(spec.get("resourceClaims") or ()):
        where = f"{path}.resourceClaims[{index}]"
        out.checked(f"{where}.name", claim.get("name", ""), names.dns_label)
        sources = [s for s in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(s)]
        if len(sources) != 1:
            words = (
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
                if not sources
                else "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            out.invalid(where, claim.get("name", ""), words)
