"""Containers of a pod: names, images, environment, ports, mounts, probes, hooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation import amounts, names
from windlass.api.validation.collector import Collector

_PULL = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICIES = ("File", "FallbackToLogsOnError")
_CONTAINER_RESTARTS = ("Always", "Never", "OnFailure")
_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_RESOURCE_FIELDS = tuple(
    sorted(f"{which}.{name}" for which in ("limits", "requests") for name in amounts.STANDARD)
)
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBE_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_UID_LIMIT = 2**31 - 1
Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodReferences:
    """Parts of a pod that its containers may refer to."""

    volumes: frozenset[str]
    claims: tuple[str, ...]
    host_network: bool


def containers(spec: Obj, path: str, out: Collector) -> None:
    """Init containers and containers of a pod spec."""
    references = PodReferences(
        frozenset(volume.get("name", "") for volume in spec.get("volumes") or ()),
        tuple(claim.get("name", "") for claim in spec.get("resourceClaims") or ()),
        bool(spec.get("hostNetwork")),
    )
    main = spec.get("containers") or []
    if not main:
        out.required(f"{path}.containers")
    seen: set[str] = set()
    host_ports: set[str] = set()
    for index, one in enumerate(main):
        where = f"{path}.containers[{index}]"
        common(one, where, references, out)
        _name(one, where, seen, out)
        _hooks(one, where, out)
        _host_ports(one, where, host_ports, out)
        if one.get("restartPolicy") is not None:
            out.choice(f"{where}.restartPolicy", one["restartPolicy"], _CONTAINER_RESTARTS)
    for index, one in enumerate(spec.get("initContainers") or ()):
        _init(one, f"{path}.initContainers[{index}]", references, seen, out)


def _init(one: Obj, where: str, references: PodReferences, seen: set[str], out: Collector) -> None:
    common(one, where, references, out)
    _name(one, where, seen, out)
    _host_ports(one, where, set(), out)
    policy = one.get("restartPolicy")
    if policy is not None and not out.choice(f"{where}.restartPolicy", policy, _CONTAINER_RESTARTS):
        return
    if policy == "Always":
        _hooks(one, where, out)
        return
    for hook in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if one.get(hook) is not None:
            out.forbidden(
                f"{where}.{hook}", "may not be set for init containers without restartPolicy=Always"
            )


def _name(one: Obj, where: str, seen: set[str], out: Collector) -> None:
    name = one.get("name", "")
    if name and name in seen:
        out.duplicate(f"{where}.name", name)
    seen.add(name)


def common(one: Obj, where: str, references: PodReferences, out: Collector) -> None:
    out.checked(f"{where}.name", one.get("name", ""), names.dns_label)
    image = one.get("image", "")
    if not image:
        out.required(f"{where}.image")
    elif image.strip() != image:
        out.invalid(f"{where}.image", image, "must not have leading or trailing whitespace")
    if one.get("terminationMessagePolicy"):
        out.choice(f"{where}.terminationMessagePolicy", one["terminationMessagePolicy"], _POLICIES)
    _ports(one.get("ports") or (), f"{where}.ports", references, out)
    _environment(one.get("env") or (), f"{where}.env", out)
    _environment_from(one.get("envFrom") or (), f"{where}.envFrom", out)
    _mounts(one, where, references, out)
    if one.get("imagePullPolicy"):
        out.choice(f"{where}.imagePullPolicy", one["imagePullPolicy"], _PULL)
    amounts.requirements(one.get("resources") or {}, f"{where}.resources", out, references.claims)
    _security(one.get("securityContext") or {}, f"{where}.securityContext", out)


# --- ports --------------------------------------------------------------------------------------------


def _ports(ports: Iterable[Obj], path: str, references: PodReferences, out: Collector) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            complaints = names.port_name(name)
            out.each(f"{where}.name", name, complaints)
            if not complaints and name in seen:
                out.duplicate(f"{where}.name", name)
            seen.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            out.required(f"{where}.containerPort")
        else:
            out.each(f"{where}.containerPort", number, names.port_number(number))
        host = port.get("hostPort", 0)
        if host:
            out.each(f"{where}.hostPort", host, names.port_number(host))
            if references.host_network and host != number:
                out.invalid(
                    f"{where}.hostPort", host, "must match `containerPort` when `hostNetwork` is true"
                )
        out.choice(f"{where}.protocol", port.get("protocol", "TCP"), _PROTOCOLS)


def _host_ports(one: Obj, where: str, seen: set[str], out: Collector) -> None:
    for index, port in enumerate(one.get("ports") or ()):
        number = port.get("hostPort", 0)
        if not number:
            continue
        key = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{number}"
        if key in seen:
            out.duplicate(f"{where}.ports[{index}].hostPort", key)
        seen.add(key)


# --- environment --------------------------------------------------------------------------------------


def _environment(variables: Iterable[Obj], path: str, out: Collector) -> None:
    for index, variable in enumerate(variables):
        where = f"{path}[{index}]"
        out.checked(f"{where}.name", variable.get("name", ""), names.environment_name)
        source = variable.get("valueFrom")
        if source is not None:
            _value_from(source, f"{where}.valueFrom", bool(variable.get("value")), out)


def _value_from(source: Obj, where: str, has_value: bool, out: Collector) -> None:
    kinds = [
        k
        for k in ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
        if k in source
    ]
    if "fieldRef" in source:
        field_path(source["fieldRef"], f"{where}.fieldRef", _FIELD_PATHS, out)
    if "resourceFieldRef" in source:
        resource_field(source["resourceFieldRef"], f"{where}.resourceFieldRef", out, needs_container=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            name = source[kind].get("name", "")
            out.each(f"{where}.{kind}.name", name, names.dns_subdomain(name))
            out.checked(f"{where}.{kind}.key", source[kind].get("key", ""), names.config_key)
    if not kinds:
        out.invalid(
            where,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        )
    elif has_value:
        out.invalid(where, "", "may not be specified when `value` is not empty")
    elif len(kinds) > 1:
        out.invalid(where, "", "may not have more than one field specified at a time")


def field_path(reference: Obj, where: str, supported: tuple[str, ...], out: Collector) -> None:
    """A ``fieldRef``: a known field, or one label or annotation by its key."""
    path = reference.get("fieldPath", "")
    if not path:
        out.required(f"{where}.fieldPath")
        return
    head, bracket, rest = path.partition("['")
    if bracket and rest.endswith("']"):
        if head not in ("metadata.labels", "metadata.annotations"):
            out.invalid(f"{where}.fieldPath", path, "does not support subscript")
        else:
            out.each(f"{where}.fieldPath", rest[:-2], names.qualified_name(rest[:-2].lower()))
        return
    known = (*_FIELD_PATHS, "metadata.labels", "metadata.annotations")
    if path not in known:
        out.invalid(
            f"{where}.fieldPath", path, f"error converting fieldPath: field label not supported: {path}"
        )
    elif path not in supported:
        out.choice(f"{where}.fieldPath", path, tuple(sorted(supported)))


def resource_field(reference: Obj, where: str, out: Collector, *, needs_container: bool) -> None:
    if needs_container and not reference.get("containerName"):
        out.required(f"{where}.containerName")
        return
    name = reference.get("resource", "")
    if not name:
        out.required(f"{where}.resource")
    elif not name.split(".", 1)[-1].startswith("hugepages-"):
        out.choice(f"{where}.resource", name, _RESOURCE_FIELDS)


def _environment_from(sources: Iterable[Obj], path: str, out: Collector) -> None:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        if source.get("prefix"):
            out.each(f"{where}.prefix", source["prefix"], names.environment_name(source["prefix"]))
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        if len(kinds) == 1:
            out.checked(f"{where}.{kinds[0]}.name", source[kinds[0]].get("name", ""), names.dns_subdomain)
        elif kinds:
            out.invalid(path, "", "may not have more than one field specified at a time")
        else:
            out.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")


# --- mounts -------------------------------------------------------------------------------------------


def _mounts(one: Obj, where: str, references: PodReferences, out: Collector) -> None:
    seen: set[str] = set()
    privileged = bool((one.get("securityContext") or {}).get("privileged"))
    for index, mount in enumerate(one.get("volumeMounts") or ()):
        path = f"{where}.volumeMounts[{index}]"
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            out.required(f"{path}.name")
        if name not in references.volumes:
            out.add(FieldError.not_found(f"{path}.name", name))
        if not target:
            out.required(f"{path}.mountPath")
        elif target in seen:
            out.invalid(f"{path}.mountPath", target, "must be unique")
        seen.add(target)
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                relative_path(mount[field], f"{where}.volumeMounts.{field}", out)
        if mount.get("subPath") and mount.get("subPathExpr"):
            out.invalid(
                f"{where}.volumeMounts.subPathExpr",
                mount["subPathExpr"],
                "subPathExpr and subPath are mutually exclusive",
            )
        propagation = mount.get("mountPropagation")
        if propagation == "Bidirectional" and not privileged:
            out.forbidden(
                f"{where}.volumeMounts.mountPropagation",
                "Bidirectional mount propagation is available only to privileged containers",
            )
        elif propagation:
            out.choice(
                f"{where}.volumeMounts.mountPropagation",
                propagation,
                ("Bidirectional", "HostToContainer", "None"),
            )


def relative_path(path: str, where: str, out: Collector) -> None:
    """Inside the volume: not absolute, no ``..``."""
    if path.startswith("/"):
        out.invalid(where, path, "must be a relative path")
    if ".." in path.split("/"):
        out.invalid(where, path, "must not contain '..'")


# --- probes and hooks ---------------------------------------------------------------------------------


def _hooks(one: Obj, where: str, out: Collector) -> None:
    for hook in ("postStart", "preStop"):
        handler = (one.get("lifecycle") or {}).get(hook)
        if handler is not None:
            _handler(handler, f"{where}.lifecycle.{hook}", (*_HANDLERS[:3], "sleep"), out)
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = one.get(kind)
        if probe is not None:
            _probe(probe, f"{where}.{kind}", kind, out)


def _probe(probe: Obj, where: str, kind: str, out: Collector) -> None:
    _handler(probe, where, _HANDLERS, out)
    for field in _PROBE_NUMBERS:
        out.at_least(f"{where}.{field}", probe.get(field))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and kind == "readinessProbe":
        out.invalid(f"{where}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
    elif grace is not None and grace <= 0:
        out.invalid(f"{where}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if kind != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        out.invalid(f"{where}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(handler: Obj, where: str, kinds: tuple[str, ...], out: Collector) -> None:
    found = [kind for kind in kinds if handler.get(kind) is not None]
    if not found:
        out.required(where, "must specify a handler type")
        return
    _action(found[0], handler[found[0]], f"{where}.{found[0]}", out)
    for extra in found[1:]:
        out.forbidden(f"{where}.{extra}", "may not specify more than 1 handler type")


def _action(kind: str, action: Obj, path: str, out: Collector) -> None:
    match kind:
        case "exec":
            if not action.get("command"):
                out.required(f"{path}.command")
        case "httpGet":
            if not action.get("path"):
                out.required(f"{path}.path")
            port_reference(action.get("port", 0), f"{path}.port", out)
            out.choice(f"{path}.scheme", action.get("scheme", "HTTP"), ("HTTP", "HTTPS"))
        case "tcpSocket":
            port_reference(action.get("port", 0), f"{path}.port", out)
        case "grpc":
            out.each(f"{path}.port", action.get("port", 0), names.port_number(action.get("port", 0)))


def port_reference(port: int | str, where: str, out: Collector) -> None:
    """A port by number or by name."""
    complaints = names.port_number(port) if isinstance(port, int) else names.port_name(port)
    out.each(where, port, complaints)


# --- security -----------------------------------------------------------------------------------------


def _security(context: Obj, where: str, out: Collector) -> None:
    for field in ("runAsUser", "runAsGroup"):
        user_id(context.get(field), f"{where}.{field}", out)
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        out.invalid(where, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")


def user_id(value: Any, where: str, out: Collector) -> None:
    if value is not None and not 0 <= value <= _UID_LIMIT:
        out.invalid(where, value, f"must be between 0 and {_UID_LIMIT}, inclusive")
