"""Engine options: flags of Volcano's processes in a scheduler ConfigMap, as a layer next to the policy.

A ConfigMap ``volcano-scheduler-config`` with flags alone holds no policy, in any namespace.
Its flags are engine options. Each has a fixed meaning here, or none because the engine
needs no such setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kits import durations


@dataclass(frozen=True, slots=True)
class EngineOption:
    """Engine option. ``check`` raises ``ValueError`` for a value that Volcano would refuse."""

    check: Callable[[str], object]
    effect: str


@dataclass(frozen=True, slots=True)
class StatedOption:
    """Engine option that a ConfigMap states.

    ``source``: namespace and name of the ConfigMap. ``problem``: why it is ignored; empty
    if it is not.
    """

    name: str
    value: str
    source: str = ""
    problem: str = ""

    @property
    def effect(self) -> str:
        known = KNOWN.get(self.name)
        return f"ignored: {self.problem}" if known is None or self.problem else known.effect

    def as_record(self) -> dict[str, str]:
        """Return the entry of ``windlass plugin ls -o json``."""
        return {"name": self.name, "value": self.value, "from": self.source, "effect": self.effect}


def _truth(value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0", "t", "f"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.lower() in ("true", "1", "t")


def _threads(value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or not int(value):
        raise ValueError(f"{value!r} is not a number of threads")
    return int(value)


KNOWN: Mapping[str, EngineOption] = {
    "enable-queue-schedule": EngineOption(_truth, "queues are always in use"),
    "cache-pod-group-interval": EngineOption(durations.parse, "not needed: PodGroups are watched"),
    "scheduler-worker-threads": EngineOption(_threads, "not needed: one cycle evaluates all nodes at once"),
    "bind-worker-threads": EngineOption(_threads, "not needed: binds are sent concurrently"),
    "min-resync-interval": EngineOption(durations.parse, "not needed: a watch that breaks is resumed"),
}


def is_flags(text: str) -> bool:
    """Return whether a text consists of command-line flags."""
    lines = _lines(text)
    return bool(lines) and all(line.startswith("--") for line in lines) and lines != ["---"]


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def stated(text: str, source: str = "") -> list[StatedOption]:
    """Return the engine options of a text of flags, in its order."""
    found = []
    for line in _lines(text):
        name, _, value = line.removeprefix("--").partition("=")
        value = value.strip() or "true"
        known, problem = KNOWN.get(name), ""
        if known is None:
            problem = f"no engine option has this name (known: {', '.join(KNOWN)})"
        else:
            try:
                known.check(value)
            except ValueError as error:
                problem = str(error)
        found.append(StatedOption(name, value, source, problem))
    return found


def notes(text: str) -> tuple[str, ...]:
    """Return how each flag is read, as warnings."""
    return tuple(
        f"alias: --{option.name}={option.value} -> engine option {option.name}"
        if not option.problem
        else f"default: --{option.name}={option.value} -> left out: {option.problem}"
        for option in stated(text)
    )


def of_config_maps(config_maps: Iterable[Mapping[str, Any]]) -> list[StatedOption]:
    """Return the engine options of ConfigMaps with flags; of one name the last ConfigMap counts."""
    found: dict[str, StatedOption] = {}
    for config_map in config_maps:
        metadata = config_map["metadata"]
        source = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        for text in (config_map.get("data") or {}).values():
            if isinstance(text, str) and is_flags(text):
                found |= {option.name: option for option in stated(text, source)}
    return list(found.values())
