"""Environment, command and arguments of a container. Pure: objects come in, a result goes out.

``$(NAME)`` is Kubernetes' own (``$$`` escapes; what is unknown stays). ``${NAME}`` is expanded in command
and args too, as people coming from a shell write it, unless a shell is what runs, which does it itself.
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
"""What a container has of the agent's own environment; everything else it must be given."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"}
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ContainerConfigError(Exception):
    """The container cannot be described: a reference leads nowhere. ``reason`` is a waiting reason."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


def expand(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` and ``$$``, exactly as Kubernetes' ``expansion.Expand``."""
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
    """``${NAME}`` where NAME is known; everything else stays."""
    return _BRACED.sub(lambda match: values.get(match[1], match[0]), text)


def command_line(container: Mapping[str, Any], values: Mapping[str, str]) -> list[str]:
    """command then args, expanded. Empty when the manifest names neither."""
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
    """The ConfigMaps and Secrets that the container's environment names."""
    found: list[Reference] = []
    for source in container.get("envFrom") or ():
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if ref := source.get(field):
                found.append(Reference(kind, ref.get("name", ""), bool(ref.get("optional"))))
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if ref := source.get(field):
                found.append(Reference(kind, ref.get("name", ""), bool(ref.get("optional"))))
    return found


def payload(obj: Mapping[str, Any]) -> dict[str, bytes]:
    """The entries of a ConfigMap or Secret."""
    if obj.get("kind") == "Secret" or "stringData" in obj or "type" in obj:
        entries = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
        return entries | {key: text.encode() for key, text in (obj.get("stringData") or {}).items()}
    entries = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
    return entries | {key: base64.b64decode(text) for key, text in (obj.get("binaryData") or {}).items()}


Lookup = Callable[[str, str], Mapping[str, Any] | None]
"""``(kind, name)`` → the object in the pod's namespace, or None."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a pod may ask about itself and its node."""

    pod: Mapping[str, Any]
    pod_address: str
    host_address: str
    allocatable: Mapping[str, str]


def environment(
    container: Mapping[str, Any], facts: PodFacts, lookup: Lookup, base: Mapping[str, str]
) -> dict[str, str]:
    """``base``, then envFrom, then env in order (later ones see earlier ones). Raises :class:`ContainerConfigError`."""
    values = dict(base)
    for source in container.get("envFrom") or ():
        values.update(_from_object(source, facts, lookup))
    for variable in container.get("env") or ():
        name = variable["name"]
        if variable.get("valueFrom"):
            found = _from_source(variable["valueFrom"], facts, lookup, container)
            if found is not None:
                values[name] = found
        else:
            values[name] = expand(variable.get("value") or "", values)
    return values


def _from_object(source: Mapping[str, Any], facts: PodFacts, lookup: Lookup) -> dict[str, str]:
    found: dict[str, str] = {}
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
                found[prefix + key] = raw.decode(errors="replace")
    return found


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
    raise ContainerConfigError("an environment variable has a source of a kind that is not known")


def field_value(path: str, facts: PodFacts) -> str:
    """The downward API's ``fieldRef``. Raises :class:`ContainerConfigError`."""
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
    raise ContainerConfigError(f"the field {path} cannot be given to a container")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(ref: Mapping[str, Any], facts: PodFacts, container: Mapping[str, Any] | None) -> str:
    """The downward API's ``resourceFieldRef``; an unset limit is what the node has."""
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
    """What every container starts from: a little of the agent's environment, unbuffered Python output."""
    values = {name: own[name] for name in INHERITED if name in own}
    values.setdefault("PATH", DEFAULT_PATH)
    values.setdefault("HOME", "/")
    values.setdefault("TERM", "xterm")
    values["HOSTNAME"] = hostname
    values["PYTHONUNBUFFERED"] = "1"
    return values
