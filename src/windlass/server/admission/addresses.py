"""Assignment of cluster addresses and node ports to Services, unique among all Services."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.resources import SERVICES
from windlass.server.admission.plugin import Review

_TRIES = 64
HEADLESS = "None"


def assign(review: Review) -> None:
    if review.resource is not SERVICES or not review.main:
        return
    spec = review.object.get("spec")
    if not isinstance(spec, dict):
        return
    kind = spec.get("type", "ClusterIP")
    if kind == "ExternalName":
        return
    _keep_old(spec, (review.old or {}).get("spec") or {})
    if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        _cluster_address(review, spec)
    if kind in ("NodePort", "LoadBalancer"):
        _node_ports(review, spec)


def _keep_old(spec: dict[str, Any], old: dict[str, Any]) -> None:
    """Keep the addresses that an update does not repeat, as kube-apiserver does."""
    if not old or old.get("type") == "ExternalName":
        return
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if name not in spec and name in old:
            spec[name] = old[name]
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        before = {
            (port.get("name", ""), port.get("port")): port.get("nodePort") for port in old.get("ports") or ()
        }
        for port in spec.get("ports") or ():
            known = before.get((port.get("name", ""), port.get("port")))
            if known and not port.get("nodePort"):
                port["nodePort"] = known


def _cluster_address(review: Review, spec: dict[str, Any]) -> None:
    network = ipaddress.ip_network(review.options.service_cidr)
    address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
    if address == HEADLESS:
        spec["clusterIP"], spec["clusterIPs"] = HEADLESS, [HEADLESS]
        _families(spec, both=not spec.get("selector"))
        return
    _families(spec, both=False)
    own = ((review.old or {}).get("spec") or {}).get("clusterIP")
    if not address:
        address = _free_address(review, network)
    elif address != own:
        _check_address(review, address, network)
    spec["clusterIP"] = address
    spec.setdefault("clusterIPs", [address])


def _families(spec: dict[str, Any], *, both: bool) -> None:
    """Set the address families.

    A headless Service without a selector may have endpoints of both families; other
    Services have IPv4.
    """
    if "ipFamilies" not in spec:
        spec["ipFamilies"] = ["IPv4", "IPv6"] if both else ["IPv4"]
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if len(spec["ipFamilies"]) > 1 else "SingleStack")


def _taken(review: Review) -> set[str]:
    return {(service.get("spec") or {}).get("clusterIP", "") for service in review.objects.list(SERVICES)}


def _free_address(review: Review, network: Any) -> str:
    taken = _taken(review)
    size = network.num_addresses
    for _ in range(_TRIES):
        candidate = str(network[review.rng.randrange(2, size - 1)])  # .1 is the server's address
        if candidate not in taken:
            return candidate
    for offset in range(2, size - 1):
        candidate = str(network[offset])
        if candidate not in taken:
            return candidate
    raise errors.failure(
        500, "InternalError", f"no service address is free in {network}: delete unused Services"
    )


def _check_address(review: Review, address: str, network: Any) -> None:
    try:
        inside = ipaddress.ip_address(address) in network
    except ValueError:
        return  # reported by validation
    problem = ""
    if not inside:
        problem = (
            f"failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range "
            f"of valid IPs is {network}"
        )
    elif address in _taken(review):
        problem = f"failed to allocate IP {address}: provided IP is already allocated"
    if problem:
        error = FieldError("spec.clusterIPs", f'Invalid value: ["{address}"]: {problem}')
        raise errors.invalid(SERVICES, review.name, [error])


def _used_ports(review: Review) -> Iterator[int]:
    for service in review.objects.list(SERVICES):
        if (
            service["metadata"]["name"] == review.name
            and service["metadata"].get("namespace") == review.namespace
        ):
            continue
        for port in (service.get("spec") or {}).get("ports") or ():
            if port.get("nodePort"):
                yield port["nodePort"]


def _node_ports(review: Review, spec: dict[str, Any]) -> None:
    low, high = review.options.node_ports
    used = set(_used_ports(review))
    for index, port in enumerate(spec.get("ports") or ()):
        wanted = port.get("nodePort")
        if not wanted:
            port["nodePort"] = wanted = _free_port(review, used, low, high)
        else:
            where, why = f"spec.ports[{index}].nodePort", ""
            if not low <= wanted <= high:
                why = f"provided port is not in the valid range. The range of valid ports is {low}-{high}"
            elif wanted in used:
                why = "provided port is already allocated"
            if why:
                raise errors.invalid(SERVICES, review.name, [FieldError.invalid(where, wanted, why)])
        used.add(wanted)


def _free_port(review: Review, used: set[int], low: int, high: int) -> int:
    free = [port for port in range(low, high + 1) if port not in used]
    if not free:
        raise errors.failure(
            500, "InternalError", f"no node port is free in {low}-{high}: delete unused Services"
        )
    return review.rng.choice(free)
