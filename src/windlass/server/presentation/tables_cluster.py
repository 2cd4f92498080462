"""Rows of the remaining built-in kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.server.presentation.tables_common import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    TableColumn,
    TableOf,
    age_of,
    name_of,
    selector_text,
    shortened,
    since,
)

Obj = Mapping[str, Any]
_ROLE = "node-role.kubernetes.io/"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_SHOWN_ENDPOINTS = 3


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _status(obj: Obj) -> Obj:
    return obj.get("status") or {}


# --- nodes and namespaces -----------------------------------------------------------------------------


def _node(node: Obj, now: float) -> list[Any]:
    info = _status(node).get("nodeInfo") or {}
    return [
        name_of(node),
        _node_status(node),
        _roles((node.get("metadata") or {}).get("labels") or {}),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(node: Obj) -> str:
    states = [
        "Ready" if condition.get("status") == "True" else "NotReady"
        for condition in _status(node).get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    states = states or ["Unknown"]
    if _spec(node).get("unschedulable"):
        states.append("SchedulingDisabled")
    return ",".join(states)


def _roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or NONE


def _address(node: Obj, kind: str) -> str:
    addresses = _status(node).get("addresses") or ()
    return next((address.get("address", "") for address in addresses if address.get("type") == kind), NONE)


NODES = TableOf(
    (
        NAME,
        TableColumn("Status", description="Whether the node takes pods."),
        TableColumn("Roles", description="The roles that its labels give it."),
        AGE,
        TableColumn("Version", description="The version of its agent."),
        TableColumn("Internal-IP", wide=True),
        TableColumn("External-IP", wide=True),
        TableColumn("OS-Image", wide=True),
        TableColumn("Kernel-Version", wide=True),
        TableColumn("Container-Runtime", wide=True),
    ),
    _node,
)
NAMESPACES = TableOf(
    (NAME, TableColumn("Status", description="Active, or Terminating."), AGE),
    lambda obj, now: [name_of(obj), _status(obj).get("phase", ""), age_of(obj, now)],
)


# --- services -----------------------------------------------------------------------------------------


def _service(service: Obj, now: float) -> list[Any]:
    spec = _spec(service)
    return [
        name_of(service),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        _external(service, spec),
        ",".join(map(_port, spec.get("ports") or ())) or NONE,
        age_of(service, now),
        selector_text(spec.get("selector")),
    ]


def _external(service: Obj, spec: Obj) -> str:
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "LoadBalancer":
            ingress = (_status(service).get("loadBalancer") or {}).get("ingress") or ()
            addresses = [entry.get("ip") or entry.get("hostname", "") for entry in ingress]
            return ",".join([*filter(None, addresses), *external]) or "<pending>"
        case "ExternalName":
            return spec.get("externalName", "")
    return ",".join(external) or NONE


def _port(port: Obj) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


SERVICES = TableOf(
    (
        NAME,
        TableColumn("Type"),
        TableColumn("Cluster-IP"),
        TableColumn("External-IP"),
        TableColumn("Port(s)"),
        AGE,
        TableColumn("Selector", wide=True),
    ),
    _service,
)


def _endpoint_addresses(subsets: Iterable[Obj]) -> list[str]:
    endpoints = []
    for subset in subsets:
        ports = subset.get("ports") or ()
        addresses = [entry.get("ip", "") for entry in subset.get("addresses") or ()]
        if not ports:
            endpoints += addresses
        for port in ports:
            endpoints += [f"{address}:{port.get('port')}" for address in addresses]
    return endpoints


def _slice(obj: Obj, now: float) -> list[Any]:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or ()]
    addresses = [
        address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        shortened(ports, _SHOWN_ENDPOINTS) if ports else UNSET,
        shortened(addresses, _SHOWN_ENDPOINTS) if addresses else UNSET,
        age_of(obj, now),
    ]


ENDPOINTS = TableOf(
    (NAME, TableColumn("Endpoints"), AGE),
    lambda obj, now: [
        name_of(obj),
        shortened(_endpoint_addresses(obj.get("subsets") or ()), _SHOWN_ENDPOINTS),
        age_of(obj, now),
    ],
)
ENDPOINT_SLICES = TableOf(
    (NAME, TableColumn("AddressType"), TableColumn("Ports"), TableColumn("Endpoints"), AGE), _slice
)

# --- configuration ------------------------------------------------------------------------------------

CONFIG_MAPS = TableOf(
    (NAME, TableColumn("Data", description="How many entries it has."), AGE),
    lambda obj, now: [
        name_of(obj),
        len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
        age_of(obj, now),
    ],
)
SECRETS = TableOf(
    (NAME, TableColumn("Type"), TableColumn("Data", description="How many entries it has."), AGE),
    lambda obj, now: [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)],
)
LEASES = TableOf(
    (NAME, TableColumn("Holder"), AGE),
    lambda obj, now: [name_of(obj), _spec(obj).get("holderIdentity") or "", age_of(obj, now)],
)
PRIORITY_CLASSES = TableOf(
    (
        NAME,
        TableColumn("Value", "integer"),
        TableColumn("Global-Default", "boolean"),
        AGE,
        TableColumn("PreemptionPolicy"),
    ),
    lambda obj, now: [
        name_of(obj),
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        age_of(obj, now),
        obj.get("preemptionPolicy", ""),
    ],
)


def _quota(quota: Obj, now: float) -> list[Any]:
    status = _status(quota)
    hard, used = status.get("hard") or {}, status.get("used") or {}
    requests, limits = [], []
    for name in sorted(hard):
        text = f"{name}: {used.get(name, '0')}/{hard[name]}"
        (limits if name.startswith("limits") else requests).append(text)
    return [name_of(quota), ", ".join(requests), ", ".join(limits), age_of(quota, now)]


RESOURCE_QUOTAS = TableOf((NAME, TableColumn("Request"), TableColumn("Limit"), AGE), _quota)
LIMIT_RANGES = TableOf(
    (NAME, TableColumn("Created At", "date")),
    lambda obj, now: [name_of(obj), (obj.get("metadata") or {}).get("creationTimestamp")],
)


def _budget(budget: Obj, now: float) -> list[Any]:
    spec = _spec(budget)
    return [
        name_of(budget),
        str(spec["minAvailable"]) if spec.get("minAvailable") is not None else "N/A",
        str(spec["maxUnavailable"]) if spec.get("maxUnavailable") is not None else "N/A",
        _status(budget).get("disruptionsAllowed", 0),
        age_of(budget, now),
    ]


DISRUPTION_BUDGETS = TableOf(
    (
        NAME,
        TableColumn("Min Available"),
        TableColumn("Max Unavailable"),
        TableColumn("Allowed Disruptions", "integer"),
        AGE,
    ),
    _budget,
)

# --- storage ------------------------------------------------------------------------------------------


def _modes(modes: Iterable[str]) -> str:
    present = set(modes)
    return ",".join(short for mode, short in _MODES.items() if mode in present)


def _volume(volume: Obj, now: float) -> list[Any]:
    spec, status = _spec(volume), _status(volume)
    claim = spec.get("claimRef") or {}
    terminating = (volume.get("metadata") or {}).get("deletionTimestamp")
    return [
        name_of(volume),
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if terminating else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason", ""),
        age_of(volume, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(claim: Obj, now: float) -> list[Any]:
    spec, status = _spec(claim), _status(claim)
    bound = bool(spec.get("volumeName"))
    terminating = (claim.get("metadata") or {}).get("deletionTimestamp")
    return [
        name_of(claim),
        "Terminating" if terminating else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _modes(status.get("accessModes") or ()) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or UNSET,
        age_of(claim, now),
        spec.get("volumeMode") or UNSET,
    ]


PERSISTENT_VOLUMES = TableOf(
    (
        NAME,
        TableColumn("Capacity"),
        TableColumn("Access Modes"),
        TableColumn("Reclaim Policy"),
        TableColumn("Status"),
        TableColumn("Claim"),
        TableColumn("StorageClass"),
        TableColumn("VolumeAttributesClass"),
        TableColumn("Reason"),
        AGE,
        TableColumn("VolumeMode", wide=True),
    ),
    _volume,
)
PERSISTENT_VOLUME_CLAIMS = TableOf(
    (
        NAME,
        TableColumn("Status"),
        TableColumn("Volume"),
        TableColumn("Capacity"),
        TableColumn("Access Modes"),
        TableColumn("StorageClass"),
        TableColumn("VolumeAttributesClass"),
        AGE,
        TableColumn("VolumeMode", wide=True),
    ),
    _claim,
)

# --- events -------------------------------------------------------------------------------------------


def _event(event: Obj, now: float) -> list[Any]:
    """Return the cells of an event of core (``involvedObject``) or events.k8s.io."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    count = event.get("count") or event.get("deprecatedCount") or 1
    if series:
        last, count = series.get("lastObservedTime") or last, series.get("count", count)
    component = (
        source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    )
    host = source.get("host") or ""
    return [
        since(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (event.get("message") or event.get("note") or "").strip(),
        since(first, now),
        count,
        name_of(event),
    ]


EVENTS = TableOf(
    (
        TableColumn("Last Seen"),
        TableColumn("Type"),
        TableColumn("Reason"),
        TableColumn("Object"),
        TableColumn("Subobject", wide=True),
        TableColumn("Source", wide=True),
        TableColumn("Message"),
        TableColumn("First Seen", wide=True),
        TableColumn("Count", wide=True),
        TableColumn("Name", format="name", wide=True),
    ),
    _event,
)
DEFINITIONS = TableOf(
    (NAME, TableColumn("Created At", "date", description="When the definition was made.")),
    lambda obj, _: [name_of(obj), (obj.get("metadata") or {}).get("creationTimestamp", "")],
)
OTHERS = TableOf((NAME, AGE), lambda obj, now: [name_of(obj), age_of(obj, now)])
