"""Environment, command and arguments of a container. Pure.

``$(NAME)`` is expanded as in Kubernetes: ``$$`` escapes, and unknown names stay. ``${NAME}`` is
also expanded in command and args, as users of a shell write it. If the command is a shell, the
shell expands it.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import quantities

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TERM",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
"""Variables that a container inherits from the agent. All others come from the manifest."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"}
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ContainerConfigError(Exception):
    """The container cannot be described, for instance because of a missing object.

    ``reason`` is a waiting reason.
    """

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


def expand(text: str, values: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` and ``$$`` exactly as Kubernetes' ``expansion.Expand``."""
    out: list[str] = []
    position = 0
    while (at := text.find("$", position)) >= 0 and at + 1 < len(text):
        out.append(text[position:at])
        follower = text[at + 1]
        if follower == "$":
            out.append("$")
            position = at + 2
        elif follower == "(" and (end := text.find(")", at + 2)) >= 0:
            name = text[at + 2 : end]
            out.append(values.get(name, text[at : end + 1]))
            position = end + 1
        else:
            out.append(text[at : at + 2])
            position = at + 2
    out.append(text[position:])
    return "".join(out)


def expand_braced(text: str, values: Mapping[str, str]) -> str:
    """Expand ``${NAME}`` if NAME is known. Everything else stays."""
    return _BRACED.sub(lambda match: values.get(match[1], match[0]), text)


def command_line(container: Mapping[str, Any], values: Mapping[str, str]) -> list[str]:
    """Return command and args, expanded. The list is empty if the manifest has neither."""
    raw = [*(container.get("command") or ()), *(container.get("args") or ())]
    words = [expand(word, values) for word in raw]
    if words and os.path.basename(words[0]) in _SHELLS:
        return words
    return [expand_braced(word, values) for word in words]


@dataclass(frozen=True, slots=True)
class Reference:
    kind: str
    """``ConfigMap`` or ``Secret``."""
    name: str
    optional: bool


def references(container: Mapping[str, Any]) -> list[Reference]:
    """Return references to the ConfigMaps and Secrets of the container's environment."""
    result: list[Reference] = []
    for source in container.get("envFrom") or ():
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if ref := source.get(field):
                result.append(Reference(kind, ref.get("name", ""), bool(ref.get("optional"))))
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if ref := source.get(field):
                result.append(Reference(kind, ref.get("name", ""), bool(ref.get("optional"))))
    return result


def payload(obj: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the entries of a ConfigMap or Secret."""
    if obj.get("kind") == "Secret" or "stringData" in obj or "type" in obj:
        entries = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
        return entries | {key: text.encode() for key, text in (obj.get("stringData") or {}).items()}
    entries = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
    return entries | {key: base64.b64decode(text) for key, text in (obj.get("binaryData") or {}).items()}


Lookup = Callable[[str, str], Mapping[str, Any] | None]
"""``(kind, name)`` → the object in the pod's namespace, or None."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts that a pod can read about itself and its node (downward API)."""

    pod: Mapping[str, Any]
    pod_address: str
    host_address: str
    allocatable: Mapping[str, str]


def environment(
    container: Mapping[str, Any], facts: PodFacts, lookup: Lookup, base: Mapping[str, str]
) -> dict[str, str]:
    """Return ``base`` with envFrom, then with env in order. Later variables can use earlier ones.

    Raises :class:`ContainerConfigError`.
    """
    values = dict(base)
    for source in container.get("envFrom") or ():
        values.update(_from_object(source, facts, lookup))
    for variable in container.get("env") or ():
        name = variable["name"]
        if variable.get("valueFrom"):
            value = _from_source(variable["valueFrom"], facts, lookup, container)
            if value is not None:
                values[name] = value
        else:
            values[name] = expand(variable.get("value") or "", values)
    return values


def _from_object(source: Mapping[str, Any], facts: PodFacts, lookup: Lookup) -> dict[str, str]:
    values: dict[str, str] = {}
    for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
        ref = source.get(field)
        if not ref:
            continue
        obj = lookup(kind, ref.get("name", ""))
        if obj is None:
            if ref.get("optional"):
                continue
            raise ContainerConfigError(f'{kind.lower()} "{ref.get("name", "")}" not found')
        prefix = source.get("prefix") or ""
        for key, raw in payload(obj).items():
            if _ENV_NAME.fullmatch(prefix + key):
                values[prefix + key] = raw.decode(errors="replace")
    return values


def _from_source(
    source: Mapping[str, Any], facts: PodFacts, lookup: Lookup, container: Mapping[str, Any]
) -> str | None:
    if ref := source.get("fieldRef"):
        return field_value(ref["fieldPath"], facts)
    if ref := source.get("resourceFieldRef"):
        return resource_value(ref, facts, container)
    for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        ref = source.get(field)
        if not ref:
            continue
        obj = lookup(kind, ref.get("name", ""))
        entries = payload(obj) if obj is not None else {}
        if ref["key"] in entries:
            return entries[ref["key"]].decode(errors="replace")
        if ref.get("optional"):
            return None
        if obj is None:
            raise ContainerConfigError(f'{kind.lower()} "{ref.get("name", "")}" not found')
        namespace = facts.pod["metadata"]["namespace"]
        raise ContainerConfigError(
            f"couldn't find key {ref['key']} in {kind} {namespace}/{ref.get('name', '')}"
        )
    raise ContainerConfigError("an environment variable has a source of an unknown kind")


def field_value(path: str, facts: PodFacts) -> str:
    """Return the value of a downward API ``fieldRef``. Raises :class:`ContainerConfigError`."""
    pod = facts.pod
    metadata, spec = pod["metadata"], pod["spec"]
    simple = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.hostIP": facts.host_address,
        "status.hostIPs": facts.host_address,
        "status.podIP": facts.pod_address,
        "status.podIPs": facts.pod_address,
    }
    if path in simple:
        return simple[path] or ""
    for field in ("labels", "annotations"):
        entries = metadata.get(field) or {}
        if path == f"metadata.{field}":
            return "\n".join(f'{key}="{_escaped(entries[key])}"' for key in sorted(entries))
        if path.startswith(f"metadata.{field}['") and path.endswith("']"):
            return entries.get(path[len(f"metadata.{field}['") : -2], "")
    raise ContainerConfigError(f"the downward API does not have the field {path}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(ref: Mapping[str, Any], facts: PodFacts, container: Mapping[str, Any] | None) -> str:
    """Return the value of a downward API ``resourceFieldRef``.

    An unset limit counts as the node's allocatable amount.
    """
    spec = facts.pod["spec"]
    name = ref.get("containerName")
    if name:
        every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        container = next((c for c in every if c["name"] == name), None)
    if container is None:
        raise ContainerConfigError(f"container {name} of a resourceFieldRef is not found")
    kind, _, resource = ref["resource"].partition(".")
    resources = container.get("resources") or {}
    text = (resources.get(kind) or {}).get(resource)
    if text is None:
        text = facts.allocatable.get(resource, "0") if kind == "limits" else "0"
    divisor = str(ref.get("divisor") or "1")
    try:
        quotient = quantities.parse(str(text)) / (quantities.parse(divisor) or 1)
    except quantities.QuantityError as error:
        raise ContainerConfigError(str(error)) from None
    return str(-(-quotient.numerator // quotient.denominator))


def base_environment(own: Mapping[str, str], hostname: str) -> dict[str, str]:
    """Return the base environment: inherited variables, and unbuffered Python output."""
    values = {name: own[name] for name in INHERITED if name in own}
    values.setdefault("PATH", DEFAULT_PATH)
    values.setdefault("HOME", "/")
    values.setdefault("TERM", "xterm")
    values["HOSTNAME"] = hostname
    values["PYTHONUNBUFFERED"] = "1"
    return values
