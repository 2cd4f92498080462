"""Settings of ``queue create`` and ``queue set``, as the spec of a queue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windlass.api import quantities
from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest

GPU = "nvidia.com/gpu"
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources without a vendor prefix, apart from ``hugepages-SIZE``."""
_PLAIN = {"weight": int, "priority": int, "parent": str, "reclaimable": bool, "type": str}
_AMOUNTS = {"capability": ("capability",), "deserved": ("deserved",), "guarantee": ("guarantee", "resource")}


def parse_settings(settings: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the spec and the state for ``weight=2 capability.nvidia.com/gpu=8 state=Closed``.

    An empty value becomes ``None``, which removes the field. Raises
    :class:`WindlassError`.
    """
    spec: dict[str, Any] = {}
    state = ""
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise _bad(text, "the format is KEY=VALUE")
        head, _, resource = key.partition(".")
        if key == "state":
            state = {"open": "Open", "closed": "Closed", "close": "Closed"}.get(value.lower(), "")
            if not state:
                raise _bad(text, "the state is Open or Closed")
        elif key in _PLAIN:
            spec[key] = _plain(text, key, value)
        elif head in _AMOUNTS and resource:
            place = spec
            for step in _AMOUNTS[head]:
                place = place.setdefault(step, {})
            place[resource] = _amount(text, resource, value)
        else:
            instead = f"capability.{GPU}={value}" if head in ("gpu", "gpus", GPU.partition(".")[0]) else ""
            raise _bad(text, "queues have no such setting", head, instead)
    return spec, state


def _plain(text: str, key: str, value: str) -> Any:
    if value == "":
        return None
    kind = _PLAIN[key]
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise _bad(text, "the value must be true or false")
        return value.lower() == "true"
    if kind is int:
        if not re.fullmatch("-?[0-9]{1,18}", value):
            raise _bad(text, "the value must be a whole number")
        return int(value)
    return value


def _amount(text: str, resource: str, value: str) -> str | None:
    if value == "":
        return None
    if resource in ("gpu", "gpus"):
        raise _bad(
            text, "pods do not request this resource", instead=text.replace(f".{resource}=", f".{GPU}=")
        )
    if "/" not in resource and resource not in _NATIVE and not resource.startswith("hugepages-"):
        raise _bad(
            text,
            f"pods do not request {resource}",
            instead=f"one of {', '.join(_NATIVE)}, or VENDOR/{resource}",
        )
    try:
        units = quantities.to_units(resource, value)
    except quantities.QuantityError as error:
        raise _bad(text, str(error)) from error
    if units < 0:
        raise _bad(text, f"the amount must be at least 0; {text.partition('=')[0]}= removes it")
    return value


def _bad(text: str, why: str, meant: str = "", instead: str = "") -> WindlassError:
    """Return the error for an invalid setting.

    :param meant: unknown name, for which similar ones are suggested
    :param instead: correct setting
    """
    known = [*_PLAIN, "state", *(f"{name}.RESOURCE" for name in _AMOUNTS)]
    return WindlassError(
        "WL-USE-400",
        f'"{text}" is not a valid setting: {why}',
        evidence="settings: " + ", ".join(known),
        remedies=(
            *((instead,) if instead else ()),
            *(f"did you mean {name}?" for name in nearest(meant, known, 1) if meant),
            "windlass queue set NAME weight=2 capability.nvidia.com/gpu=8",
        ),
    )
