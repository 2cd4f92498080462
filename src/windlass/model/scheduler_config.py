"""Reader of ``volcano-scheduler.conf`` and Windlass' extensions of it.

The result is a :class:`~windlass.spi.configuration.SchedulerConfig`. Three forms are
read: the policy file itself, a ConfigMap that contains one, and command-line flags in
place of a policy (they do not affect placement and are reported as notes).

Beyond Volcano's format there are ``actions`` as a list, ``compatibility: volcano``, a
list ``plugins`` on top of the default policy, a list ``nodeorder`` of node scorers, and
arguments as JSON text under ``args``. A tier that names only KAI's placement
(``nodeplacement``, ``gpupack``, ``gpuspread``) is also read on top of the default
policy.

Every error raises :class:`ConfigError` with its line.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import yaml

from windlass.api.wire.yaml_text import YamlError, build, positions
from windlass.kits import durations
from windlass.model import engine_options
from windlass.plugins.arguments import problems
from windlass.spi.configuration import (
    ACTIONS,
    AGING,
    BACKFILLS,
    FOREIGN,
    FOREIGN_QUEUE,
    LEARNED,
    METRICS,
    RESERVATIONS,
    SWITCHES,
    PluginOption,
    PluginTier,
    SchedulerConfig,
    canonical_switch,
)

PLACEMENT = ("nodeplacement", "gpupack", "gpuspread", "gpusharingorder")
"""KAI's plugins that only influence where work is placed."""
CONFIG_MAP_NAMESPACE = "volcano-system"
CONFIG_MAP_NAME = "volcano-scheduler-config"
"""Name of the ConfigMap with a cluster's configuration."""
ARGUMENTS_NOTE = "alias: args as a JSON text -> arguments as a map"
_METRICS = (
    "type",
    "address",
    "interval",
    "tls.insecureSkipVerify",
    "elasticsearch.index",
    "elasticsearch.username",
    "elasticsearch.password",
    "elasticsearch.hostnameFieldName",
)
TOP = ("actions", "tiers", "configurations", "metrics", "plugins", "nodeorder", "compatibility")
"""Keys at the top level of a configuration."""
_COMPATIBILITIES = ("", "windlass", "volcano")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigError(ValueError):
    """Error in a configuration.

    ``line``: from 1; 0 if unknown.
    ``field``: path of the field.
    ``remedy``: what to write instead.
    """

    def __init__(self, message: str, *, line: int = 0, field: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.field = field
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.field + ': ' if self.field else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Configuration that was read.

    ``notes``: settings that are read differently from their text, or ignored.
    ``lines``: field → line.
    """

    config: SchedulerConfig
    notes: tuple[str, ...] = ()
    lines: Mapping[str, int] | None = None

    def line_of(self, field: str) -> int:
        """Return the line of a field, or of its nearest parent; 0 if unknown."""
        return _line_of(self.lines or {}, field)


def parse(text: str) -> Parsed:
    """Return the configuration in ``text``. Raises :class:`ConfigError`."""
    if engine_options.is_flags(text):
        return _flags(text)
    value, lines, node = _compose(text)
    if isinstance(value, dict) and value.get("kind") == "ConfigMap":
        return _config_map(value, lines, node)
    return _policy(value, lines)


def _flags(text: str) -> Parsed:
    built_in = "default: no policy inside -> the built-in policy takes over"
    return Parsed(SchedulerConfig(), (*engine_options.notes(text), built_in))


def _config_map(value: Mapping[str, Any], lines: Mapping[str, int], node: yaml.MappingNode) -> Parsed:
    data = value.get("data")
    texts = (
        {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    )
    key = _key_of(texts, lines.get("data", 1))
    inner = _child(_child(node, "data"), key)
    block = isinstance(inner, yaml.ScalarNode) and inner.style in ("|", ">")
    offset = inner.start_mark.line + (1 if block else 0)
    try:
        parsed = parse(texts[key])
    except ConfigError as error:
        raise ConfigError(
            error.message,
            line=error.line + offset if error.line else offset,
            field=error.field,
            remedy=error.remedy,
        ) from None
    shifted = {field: line + offset for field, line in (parsed.lines or {}).items()}
    return replace(parsed, lines=shifted)


def text_of(data: Mapping[str, str]) -> str:
    """Return the configuration's text in a ConfigMap's data. Raises :class:`ConfigError`."""
    return data[_key_of(data, 0)]


def _key_of(texts: Mapping[str, str], line: int) -> str:
    chosen = [key for key in texts if key.endswith(".conf")] or list(texts)
    if len(chosen) != 1:
        raise ConfigError(
            f"the ConfigMap holds {len(chosen)} texts that could be the configuration",
            line=line,
            field="data",
            remedy="keep one key, volcano-scheduler.conf",
        )
    return chosen[0]


def _compose(text: str) -> tuple[Any, dict[str, int], Any]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError("the file is empty", remedy='write at least: actions: "allocate"')
        lines = positions(node)
        value, duplicates = build(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(
            error.problem or "is not YAML", line=mark.line + 1 if mark is not None else 0
        ) from None
    except (yaml.YAMLError, YamlError, RecursionError) as error:
        raise ConfigError(" ".join(str(error).split()) or "is nested too deeply") from None
    finally:
        loader.dispose()
    if duplicates:
        raise ConfigError("occurs twice", line=_line_of(lines, duplicates[0]), field=duplicates[0])
    return value, lines, node


def _child(node: Any, name: str) -> Any:
    return next(value for key, value in node.value if key.value == name)


def _line_of(lines: Mapping[str, int], field: str) -> int:
    while field:
        if field in lines:
            return lines[field]
        end = max(field.rfind("."), field.rfind("["))
        field = field[:end] if end > 0 else ""
    return 0


def _policy(value: Any, lines: Mapping[str, int]) -> Parsed:
    if not isinstance(value, dict):
        raise ConfigError(
            "is not a mapping", line=1, remedy='a configuration has keys actions, tiers: actions: "allocate"'
        )
    reader = _Reader(lines)
    reader.unknown(value, TOP, "")
    compatibility = value.get("compatibility") or ""
    if compatibility not in _COMPATIBILITIES:
        raise reader.wrong("compatibility", f"is {compatibility!r}", "write windlass or volcano")
    tiers = reader.tiers(value.get("tiers"))
    extra = [option for _, option in reader.options(value.get("plugins"), "plugins")]
    extra += reader.scorers(value.get("nodeorder"))
    named = [option.name for tier in tiers for option in tier.plugins]
    if named and "gang" not in named and compatibility != "volcano" and not set(named) <= set(PLACEMENT):
        reader.notes.append(
            "default: no gang plug-in in the tiers -> gang stays on "
            "(all-or-nothing is never switched off by omission)"
        )
    if named and all(name in PLACEMENT for name in named):
        extra = [option for tier in tiers for option in tier.plugins] + extra
        tiers = ()
    return Parsed(
        SchedulerConfig(
            actions=reader.actions(value.get("actions"), bool(tiers)),
            tiers=tiers,
            configurations=reader.configurations(value.get("configurations")),
            compatibility="volcano" if compatibility == "volcano" else "",
            plugins=tuple(extra),
            metrics=reader.metrics(value.get("metrics")),
        ),
        tuple(reader.notes),
        lines,
    )


def described(config: SchedulerConfig) -> str:
    """Return actions and plugins with their arguments in one line, tier by tier."""
    named = ["; ".join(_described(option) for option in tier.plugins) for tier in config.tiers]
    named += [_described(option) for option in config.plugins]
    actions = f"actions {', '.join(config.actions)}" if config.actions else "default actions"
    return " | ".join([actions, *(text for text in named if text)])


def _described(option: PluginOption) -> str:
    settings = {**option.flags, **option.arguments}
    text = ", ".join(
        f"{name} {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in settings.items()
    )
    return f"{option.name} ({text})" if text else option.name


class _Reader:
    """Reader of the sections of a policy. It collects notes."""

    def __init__(self, lines: Mapping[str, int]) -> None:
        self._lines = lines
        self.notes: list[str] = []

    def wrong(self, field: str, message: str, remedy: str = "") -> ConfigError:
        return ConfigError(message, line=_line_of(self._lines, field), field=field, remedy=remedy)

    def unknown(self, section: Mapping[str, Any], known: Sequence[str], place: str) -> None:
        for name in section:
            if name not in known:
                field = f"{place}.{name}" if place else str(name)
                line = _line_of(self._lines, field)
                similar = difflib.get_close_matches(str(name), known, n=1)
                hint = f"; did you mean {similar[0]}?" if similar else ""
                self.notes.append(f"line {line}: {field} is not known and not used{hint}")

    def mapping(self, value: Any, field: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(field, "is not a mapping")
        return value

    def listed(self, value: Any, field: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if value is None:
            return
        if not isinstance(value, list):
            raise self.wrong(field, "is not a list")
        for at, item in enumerate(value):
            yield f"{field}[{at}]", self.mapping(item, f"{field}[{at}]")

    def actions(self, value: Any, tiers: bool) -> tuple[str, ...]:
        if value is None:
            if tiers:
                self.notes.append("default: no actions -> enqueue, allocate, backfill")
                return ("enqueue", "allocate", "backfill")
            return ()
        if isinstance(value, str):
            names = [name.strip() for name in value.split(",") if name.strip()]
        elif isinstance(value, list) and all(isinstance(name, str) for name in value):
            names = [name.strip() for name in value]
        else:
            raise self.wrong("actions", "is not a text", 'write actions: "enqueue, allocate, backfill"')
        if not names:
            raise self.wrong("actions", "names no action", f"actions are {', '.join(ACTIONS)}")
        for name in names:
            if name not in ACTIONS:
                similar = difflib.get_close_matches(name, ACTIONS, n=1)
                known = f"actions are {', '.join(ACTIONS)}"
                raise self.wrong(
                    "actions",
                    f"names {name!r}, which is not an action",
                    f"did you mean {similar[0]}?" if similar else known,
                )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise self.wrong("actions", f"names {twice[0]} twice", "an action runs once in a cycle")
        return tuple(names)

    def tiers(self, value: Any) -> tuple[PluginTier, ...]:
        result = []
        for field, tier in self.listed(value, "tiers"):
            self.unknown(tier, ("plugins",), field)
            options = [option for _, option in self.options(tier.get("plugins"), f"{field}.plugins")]
            result.append(PluginTier(tuple(options)))
        return tuple(result)

    def options(self, value: Any, place: str) -> Iterator[tuple[str, PluginOption]]:
        for field, item in self.listed(value, place):
            yield field, self.option(item, field)

    def option(self, item: Mapping[str, Any], field: str) -> PluginOption:
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise self.wrong(
                f"{field}.name" if "name" in item else field, "a plugin has no name", "- name: gang"
            )
        flags: dict[str, bool] = {}
        for key, setting in item.items():
            if not key.startswith("enable"):
                continue
            switch = canonical_switch(key)
            if switch is None:
                similar = difflib.get_close_matches(key, SWITCHES, n=1)
                raise self.wrong(
                    f"{field}.{key}",
                    "is not a switch of a plugin",
                    f"did you mean {similar[0]}?" if similar else "",
                )
            if not isinstance(setting, bool):
                raise self.wrong(f"{field}.{key}", f"is {setting!r}", "write true or false")
            flags[switch] = setting
        plain = {key: setting for key, setting in item.items() if not key.startswith("enable")}
        self.unknown(plain, ("name", "arguments", "args"), field)
        arguments = self.arguments(item, field)
        place = f"{field}.{'args' if 'args' in item else 'arguments'}"
        for problem in problems(name, arguments):
            path = f"{place}.{problem.name}"
            self.notes.append(f"line {_line_of(self._lines, path)}: {name}: {path} {problem.text}")
        return PluginOption(name, flags, arguments)

    def arguments(self, item: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        if "args" not in item:
            return self.mapping(item.get("arguments"), f"{field}.arguments")
        text = item["args"]
        if isinstance(text, str):
            try:
                text = json.loads(text)
            except ValueError:
                raise self.wrong(
                    f"{field}.args", "is not valid JSON", "write arguments as a mapping"
                ) from None
        if ARGUMENTS_NOTE not in self.notes:
            self.notes.append(ARGUMENTS_NOTE)
        return self.mapping(text, f"{field}.args")

    def scorers(self, value: Any) -> list[PluginOption]:
        """Return the node scorers in the top-level list ``nodeorder``."""
        options = []
        for _, option in self.options(value, "nodeorder"):
            arguments = ", ".join(f"{name} {setting}" for name, setting in option.arguments.items())
            self.notes.append(
                f"alias: top-level nodeorder list -> node scorer {option.name}"
                + (f" with {arguments}" if arguments else "")
            )
            options.append(option)
        return options

    def configurations(self, value: Any) -> Mapping[str, Mapping[str, Any]]:
        result: dict[str, Mapping[str, Any]] = {}
        for field, item in self.listed(value, "configurations"):
            self.unknown(item, ("name", "arguments"), field)
            name = item.get("name")
            if not isinstance(name, str) or not name:
                raise self.wrong(field, "an entry has no name", "- name: preempt")
            result[name] = arguments = self.mapping(item.get("arguments"), f"{field}.arguments")
            if name == "backfill":
                self.backfill(arguments, f"{field}.arguments")
            elif name == FOREIGN:
                queue = arguments.get(FOREIGN_QUEUE)
                if not isinstance(queue, str) or not queue:
                    place = f"{field}.arguments.{FOREIGN_QUEUE}"
                    raise self.wrong(place, "is the name of a queue", f"{FOREIGN_QUEUE}: default")
        return result

    def metrics(self, value: Any) -> dict[str, str]:
        """Return the source of load metrics.

        An unusable source is reported in a note, and the cluster's metrics API is used
        instead.
        """
        settings = {}
        for name, text in self.mapping(value, "metrics").items():
            if isinstance(text, bool):
                settings[str(name)] = "true" if text else "false"
            elif isinstance(text, str | int | float):
                settings[str(name)] = str(text)
        kind, line = settings.get("type", ""), _line_of(self._lines, "metrics")
        instead = "loads are read from the cluster's metrics API (metrics.k8s.io)"
        if settings and kind not in METRICS:
            self.notes.append(
                f"line {line}: metrics.type is {kind!r}, not one of {', '.join(METRICS)}: {instead}"
            )
        elif kind == "prometheus_adaptor":
            self.notes.append(f"line {line}: metrics.type prometheus_adaptor: {instead}")
        elif kind and not settings.get("address"):
            self.notes.append(f"line {line}: metrics.address is missing: {instead}")
        elif kind and urlsplit(settings["address"]).scheme not in ("http", "https"):
            raise self.wrong(
                "metrics.address", f"{settings['address']!r} is not a URL", "write http://HOST:PORT"
            )
        self.unknown(settings, _METRICS, "metrics")
        return settings

    def backfill(self, arguments: Mapping[str, Any], place: str) -> None:
        policy = arguments.get(RESERVATIONS, BACKFILLS[0])
        if policy not in BACKFILLS:
            message = f"{policy!r} is not one of {', '.join(BACKFILLS)}"
            raise self.wrong(f"{place}.{RESERVATIONS}", message, f"{RESERVATIONS}: easy")
        if str(arguments.get(LEARNED, "true")).lower() not in ("true", "false"):
            raise self.wrong(
                f"{place}.{LEARNED}", f"{arguments[LEARNED]!r} is neither true nor false", f"{LEARNED}: false"
            )
        if AGING in arguments:
            try:
                good = durations.parse(str(arguments[AGING])) >= 0
            except ValueError:
                good = False
            if not good:
                message = f"{arguments[AGING]!r} is not a duration"
                raise self.wrong(f"{place}.{AGING}", message, f"{AGING}: 1h")
