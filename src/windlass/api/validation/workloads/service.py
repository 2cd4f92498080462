"""Services: ports, addresses, selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation import names
from windlass.api.validation.collector import Collector
from windlass.api.validation.metadata import IMMUTABLE, labels
from windlass.api.validation.pods.containers import port_reference

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_TRAFFIC = ("Cluster", "Local")
_AFFINITY_LIMIT = 86_400
Obj = Mapping[str, Any]


def service(obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = obj.get("spec") or {}
    kind, address = spec.get("type", "ClusterIP"), spec.get("clusterIP", "")
    ports = spec.get("ports") or ()
    headless = address == "None"
    if not out.choice("spec.type", kind, _TYPES):
        return
    if not ports and not headless and kind != "ExternalName":
        out.required("spec.ports")
    if kind == "ExternalName":
        out.checked("spec.externalName", spec.get("externalName", "").removesuffix("."), names.dns_subdomain)
        if address:
            out.forbidden("spec.clusterIPs[0]", "may not be set for ExternalName services")
    elif headless and kind != "ClusterIP":
        out.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    elif address and not headless:
        out.each("spec.clusterIPs[0]", address, names.ip_address(address))
    labels(spec.get("selector"), "spec.selector", out)
    out.choice("spec.sessionAffinity", spec.get("sessionAffinity", "None"), _AFFINITIES)
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= _AFFINITY_LIMIT:
        out.invalid(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            seconds,
            f"must be greater than 0 and less than {_AFFINITY_LIMIT}",
        )
    for field in ("internalTrafficPolicy", "externalTrafficPolicy"):
        if spec.get(field):
            out.choice(f"spec.{field}", spec[field], _TRAFFIC)
    for index, ip in enumerate(spec.get("externalIPs") or ()):
        out.each(f"spec.externalIPs[{index}]", ip, names.ip_address(ip))
    _ports(ports, kind, out)
    if old is not None:
        _update(spec, old.get("spec") or {}, out)


def _ports(ports: Any, kind: str, out: Collector) -> None:
    seen_names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        where = f"spec.ports[{index}]"
        name, number = port.get("name", ""), port.get("port", 0)
        protocol = port.get("protocol", "TCP")
        if not name and len(ports) > 1:
            out.required(f"{where}.name")
        elif name:
            complaints = names.dns_label(name)
            out.each(f"{where}.name", name, complaints)
            if not complaints and name in seen_names:
                out.duplicate(f"{where}.name", name)
            seen_names.add(name)
        out.each(f"{where}.port", number, names.port_number(number))
        out.choice(f"{where}.protocol", protocol, _PROTOCOLS)
        port_reference(port.get("targetPort", number), f"{where}.targetPort", out)
        if port.get("nodePort") and kind == "ClusterIP":
            out.forbidden(f"{where}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if (protocol, number) in seen:
            out.duplicate(where, f"{number}/{protocol}")
        seen.add((protocol, number))


def _update(spec: Obj, old: Obj, out: Collector) -> None:
    before = old.get("clusterIP")
    kept = "ExternalName" not in (spec.get("type"), old.get("type"))
    if kept and before and spec.get("clusterIP") != before:
        out.invalid("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set")


def endpoints(obj: Obj, old: Obj | None, out: Collector) -> None:
    for index, subset in enumerate(obj.get("subsets") or ()):
        where = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            out.required(where, "must specify `addresses` or `notReadyAddresses`")
        for group in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(group) or ()):
                ip = address.get("ip", "")
                out.each(f"{where}.{group}[{at}].ip", ip, names.ip_address(ip))
        for at, port in enumerate(subset.get("ports") or ()):
            out.each(f"{where}.ports[{at}].port", port.get("port", 0), names.port_number(port.get("port", 0)))


def endpoint_slice(obj: Obj, old: Obj | None, out: Collector) -> None:
    out.choice("addressType", obj.get("addressType", ""), ("FQDN", "IPv4", "IPv6"))
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        if not endpoint.get("addresses"):
            out.required(f"endpoints[{index}].addresses", "must contain at least 1 address")
    if old is not None and obj.get("addressType") != old.get("addressType"):
        out.invalid("addressType", obj.get("addressType"), IMMUTABLE)
