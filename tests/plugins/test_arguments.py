"""Each plug-in reads the arguments that are declared, and no others; ignored arguments are reported."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from typing import Any

import pytest

from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.model.scheduler_config import parse
from windlass.plugins import registry
from windlass.plugins.arguments import (
    ANY,
    BOOLEAN,
    DURATION,
    KNOWN,
    LOW_NODE_UTILIZATION,
    NUMBER,
    PERCENT,
    STRATEGY,
    Argument,
    Known,
    ListArgument,
    declared,
    problems,
)
from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.volcano_catalogue import CATALOGUE, PLACEMENT
from windlass.spi.configuration import SWITCHES, PluginOption, PluginTier, SchedulerConfig

RESOURCE = "nvidia.com/gpu"
SAMPLES = {NUMBER: "1", BOOLEAN: "true", DURATION: "1m", PERCENT: "50", STRATEGY: LOW_NODE_UTILIZATION}
READ_WITH_CARE = {
    **dict.fromkeys(("gpuMemoryWeight", "gpuComputeWeight", "interGPUCommsWeight"), 1),
    "window": "1h",
    "nodes": 2,
    "deviceshare.GPUExclusiveRules": [{"app": "a"}],
}
"""Arguments that the reading plugin itself rejects if they are wrong."""


class Recorder(dict[str, Any]):
    """Arguments, and which of them are asked for, with what counts where there is none."""

    def __init__(self, given: Mapping[str, Any], asked: dict[str, Any], place: str = "") -> None:
        self._asked, self._place = asked, place
        super().__init__((name, self._within(value, f"{place}{name}|")) for name, value in given.items())

    def _within(self, value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [self._within(item, place) for item in value]
        return Recorder(value, self._asked, place) if isinstance(value, dict) else value

    def _note(self, name: object, default: object = None) -> None:
        if self._asked.get(f"{self._place}{name}") is None:
            self._asked[f"{self._place}{name}"] = default

    def get(self, key: str, default: Any = None) -> Any:  # type: ignore[override]
        self._note(key, default)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        for name in self:
            self._note(name)
        return super().items()


def sample(known: Known, plugin: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, kind in known.items():
        if isinstance(kind, Argument):
            value = SAMPLES.get(kind.wanted, READ_WITH_CARE.get(name, RESOURCE))
            if name == "weight" and plugin in ON_TOP:
                value = 1
        elif isinstance(kind, ListArgument):
            value = [sample(kind.section, plugin)]
        else:
            value = sample(kind, plugin)
        given[name.replace("*", RESOURCE)] = value
    return given


def asked_by(plugin: str) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    option = PluginOption(
        plugin, dict.fromkeys(SWITCHES, True), Recorder(sample(KNOWN[plugin], plugin), asked)
    )
    config = SchedulerConfig(tiers=(PluginTier((PluginOption("gang"), option)),))
    if plugin in PLACEMENT:
        config = SchedulerConfig(plugins=(option,))
    warned: list[str] = []
    registry.build(config, warned.append)
    exclusive_rules(config)
    assert not any("unknown" in text for text in warned)
    return asked


def leaves(known: Known, place: str = "") -> dict[str, Argument | None]:
    """By path: the arguments, and the sections with ``None``."""
    found: dict[str, Argument | None] = {}
    for name, kind in known.items():
        path = place + name.replace("*", RESOURCE)
        if isinstance(kind, Argument):
            found[path] = kind
        else:
            section = kind.section if isinstance(kind, ListArgument) else kind
            found |= {path: None, **leaves(section, f"{path}|")}
    return found


def is_declared(known: Known, path: str) -> bool:
    name, _, rest = path.partition("|")
    found = declared(known, name)
    if isinstance(found, ListArgument):
        found = found.section
    if not rest or found is None or isinstance(found, Argument):
        return found is not None and (not rest or found == ANY)
    return is_declared(found, rest)


def test_every_plugin_that_is_offered_declares_its_arguments() -> None:
    assert set(KNOWN) == {*CATALOGUE, *PLACEMENT, *ON_TOP}


@pytest.mark.parametrize("plugin", sorted(KNOWN))
def test_what_is_read_is_declared_and_what_is_declared_is_read(plugin: str) -> None:
    asked = asked_by(plugin)
    assert [path for path in asked if not is_declared(KNOWN[plugin], path)] == []
    assert leaves(KNOWN[plugin]).keys() <= asked.keys()


@pytest.mark.parametrize("plugin", sorted(KNOWN))
def test_what_is_said_to_count_is_what_counts(plugin: str) -> None:
    asked = asked_by(plugin)
    for path, argument in leaves(KNOWN[plugin]).items():
        if argument is not None and argument.wanted in (NUMBER, BOOLEAN, PERCENT):
            assert asked[path] == argument.default, path


@pytest.mark.parametrize(
    ("plugin", "arguments", "told"),
    [
        ("binpack", {"binpack.wieght": 5}, "binpack.wieght is not known and not used; did you mean binpack.weight?"),
        ("binpack", {"binpack.weight": "heavy"}, "binpack.weight is 'heavy', not a number: 1 is used"),
        ("binpack", {"binpack.weight": True}, "binpack.weight is True, not a number: 1 is used"),
        ("binpack", {"binpack.resources.nvidia.com/gpu": []}, "binpack.resources.nvidia.com/gpu is [], not a number"),
        ("overcommit", {"overcommit-factor": float("inf")}, "overcommit-factor is inf, not a number: 1.2 is used"),
        ("nodegroup", {"strict": "maybe"}, "strict is 'maybe', neither true nor false: true is used"),
        ("sla", {"sla-waiting-time": "soon"}, "is 'soon', not a duration such as 90s or 1h30m: it is ignored"),
        ("extender", {"extender.httpTimeout": 100}, "not a duration such as 90s or 1h30m: 1s is used"),
        ("usage", {"thresholds": {"cpu": "x"}}, "thresholds.cpu is 'x', not a number: 80 is used"),
        ("usage", {"thresholds": {"memory": 1}}, "thresholds.memory is not known and not used"),
        ("usage", {"thresholds": 80}, "thresholds is 80, not a mapping: it is ignored"),
        ("rescheduling", {"interval": "soon"}, "interval is 'soon', not a duration such as 90s or 1h30m: 5m is used"),
        ("rescheduling", {"intervall": "5m"}, "intervall is not known and not used; did you mean interval?"),
        ("rescheduling", {"strategies": "all"}, "strategies is 'all', not a list: it is ignored"),
        ("rescheduling", {"strategies": [7]}, "strategies[0] is 7, not a mapping: it is ignored"),
        (
            "rescheduling",
            {"strategies": [{"params": {"thresholds": {"cpu": 101}}}]},
            "strategies[0].params.thresholds.cpu is 101, not a number from 0 to 100: 100 is used",
        ),
        (
            "rescheduling",
            {"strategies": [{"params": {"targetThresholds": {"memroy": 5}}}]},
            "strategies[0].params.targetThresholds.memroy is not known and not used; did you mean memory?",
        ),
        ("rescheduling", {"labelSelector": {"a": "b"}}, "labelSelector has an effect in Volcano only"),
        ("gang", {"any": 1}, "any is not known and not used"),
        ("deviceshare", {"deviceshare.NodeLockEnable": True}, "NodeLockEnable has an effect in Volcano only"),
    ],
)  # fmt: skip
def test_what_counts_as_not_given_is_told(plugin: str, arguments: dict[str, Any], told: str) -> None:
    (found,) = problems(plugin, arguments)
    assert told in f"{found.name} {found.text}"


@pytest.mark.parametrize("plugin", sorted(KNOWN))
def test_what_is_right_or_empty_is_not_told(plugin: str) -> None:
    given = sample(KNOWN[plugin], plugin)
    assert list(problems(plugin, given)) == []
    assert list(problems(plugin, dict.fromkeys(given))) == []


def test_a_third_partys_arguments_are_its_own() -> None:
    assert list(problems("mine", {"nodes": 3})) == []


def test_a_configuration_loads_and_tells_line_and_field() -> None:
    parsed = parse(
        "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: binpack\n    arguments:\n"
        "      binpack.wieght: 5\n      binpack.cpu: 2\n      binpack.memory: heavy\n"
    )
    place = "binpack: tiers[0].plugins[1].arguments.binpack"
    assert parsed.notes == (
        f"line 7: {place}.wieght is not known and not used; did you mean binpack.weight?",
        f"line 9: {place}.memory is 'heavy', not a number: 1 is used",
    )
    option = parsed.config.tiers[0].plugins[1]
    assert option.arguments == {"binpack.wieght": 5, "binpack.cpu": 2, "binpack.memory": "heavy"}
