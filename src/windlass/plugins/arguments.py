"""Arguments that each plugin reads, their types and default values.

A configuration in Volcano's format loads whatever arguments it has. An unknown
argument, or one of the wrong type, counts as missing. :func:`problems` reports such
arguments. A test (``tests/plugins/test_arguments.py``) compares the declarations with
the arguments that the plugins read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from windlass.plugins.argument_values import as_boolean, as_number, duration


@dataclass(frozen=True, slots=True)
class Argument:
    """Declaration of one argument.

    ``wanted``: error text for a wrong value. It is empty if the plugin reports errors
    itself or accepts any text. ``default``: value if the argument is missing.
    """

    wanted: str = ""
    default: object = None

    def rejects(self, value: object) -> bool:
        """Return whether the value has the wrong type; an empty value counts as missing."""
        if value is None:
            return False
        if self.wanted == NUMBER:
            return as_number(value) is None
        if self.wanted == BOOLEAN:
            return as_boolean(value) is None
        if self.wanted == PERCENT:
            number = as_number(value)
            return number is None or not 0 <= number <= 100
        if self.wanted == STRATEGY:
            return value != LOW_NODE_UTILIZATION
        return self.wanted == DURATION and duration(value) is None


@dataclass(frozen=True, slots=True)
class ListArgument:
    """Declaration of a list of sections."""

    section: Known


class ArgumentProblem(NamedTuple):
    """Problem with one argument; ``name`` includes the names of the enclosing sections."""

    name: str
    text: str


Known = Mapping[str, "Argument | ListArgument | Known"]
"""Name → declaration of an argument or of a section.

``*`` stands for a name, such as that of a resource.
"""

NUMBER, BOOLEAN, DURATION = "not a number", "neither true nor false", "not a duration such as 90s or 1h30m"
PERCENT = "not a number from 0 to 100"
LOW_NODE_UTILIZATION = "lowNodeUtilization"
STRATEGY = f"not the supported strategy, {LOW_NODE_UTILIZATION}"
ANY = Argument()


def _number(default: float) -> Argument:
    return Argument(NUMBER, default)


def _boolean(default: bool) -> Argument:
    return Argument(BOOLEAN, default)


def _each(names: str, argument: Argument) -> Known:
    return dict.fromkeys(names.split(), argument)


_WEIGHT = {"weight": ANY}
_EXTENDER_VERBS = (
    "predicate prioritize onSessionOpen onSessionClose preemptable reclaimable queueOverused jobEnqueueable "
    "jobEnqueued jobReady allocateFunc deallocateFunc"
)
KNOWN: Mapping[str, Known] = {
    **{
        key: {}
        for key in ["gang", "priority", "conformance", "drf", "proportion", "resourcequota", "cdp", "pdb"]
    },
    **{key: {} for key in ["gpupack", "gpuspread", "gpusharingorder", "las", "srtf", "srsf", "predicted"]},
    "capacity": {"ancestorReclaimLevel": _number(0)},
    "overcommit": {"overcommit-factor": _number(1.2)},
    "sla": {"sla-waiting-time": Argument(DURATION)},
    "predicates": {"predicate.*": _boolean(True)},
    "nodeorder": {
        "leastrequested.weight": _number(1),
        "mostrequested.weight": _number(0),
        "balancedresource.weight": _number(1),
        "nodeaffinity.weight": _number(2),
        "tainttoleration.weight": _number(3),
        "imagelocality.weight": _number(1),
        "podaffinity.weight": _number(2),
        "podtopologyspread.weight": _number(2),
    },
    "binpack": {
        "binpack.resources": ANY,
        **_each("binpack.weight binpack.cpu binpack.memory binpack.resources.*", _number(1)),
    },
    "resource-strategy-fit": {
        "resourceStrategyFitWeight": _number(10),
        "resources": {"*": {"type": ANY, "weight": _number(1)}},
        "sra": {
            "enable": _boolean(False),
            "weight": _number(0),
            "resources": ANY,
            "resourceWeight": {"*": _number(1)},
        },
        "proportional": {
            "enable": _boolean(False),
            "resources": ANY,
            "resourceProportion": _each("*.cpu *.memory", _number(1)),
        },
    },
    "usage": {
        "usage.weight": _number(5),
        "cpu.weight": _number(1),
        "memory.weight": _number(1),
        "thresholds": {"cpu": _number(80), "mem": _number(80)},
        "estimator": {
            "request_ratio": _number(0.7),
            "risk_threshold": _number(0.6),
            "risk_factor": _number(1.2),
            "be_cpu": ANY,
            "be_mem": ANY,
        },
    },
    "nodegroup": {"strict": _boolean(True), "enablePreferredOrder": _boolean(False)},
    "rescheduling": {
        "interval": Argument(DURATION, "5m"),
        "metricsPeriod": Argument(DURATION, "5m"),
        "strategies": ListArgument(
            {
                "name": Argument(STRATEGY),
                "params": dict.fromkeys(
                    ("thresholds", "targetThresholds"), _each("cpu memory", Argument(PERCENT, 100))
                ),
            }
        ),
    },
    "tdm": {"tdm.revocable-zone.*": ANY, "tdm.evict.period": Argument(DURATION, "1m")},
    "extender": {
        "extender.urlPrefix": ANY,
        "extender.httpTimeout": Argument(DURATION, "1s"),
        "extender.ignorable": _boolean(False),
        "extender.managedResources": ANY,
        **{f"extender.{verb}Verb": ANY for verb in _EXTENDER_VERBS.split()},
    },
    "network-topology-aware": {
        "weight": _number(1),
        "hypernode.binpack.resources": ANY,
        **_each("hypernode.binpack.cpu hypernode.binpack.memory hypernode.binpack.resources.*", _number(1)),
        "hypernode.binpack.normal-pod.enable": _boolean(True),
        "hypernode.binpack.normal-pod.fading": _number(0.8),
        "hypernode.gradient.evict.max-hypernodes": ANY,
    },
    "task-topology": {"task-topology.weight": _number(1)},
    "numa-aware": {"weight": _number(1)},
    "deviceshare": {
        **_each(
            "deviceshare.GPUSharingEnable deviceshare.GPUNumberEnable deviceshare.VGPUEnable", _boolean(True)
        ),
        "deviceshare.SchedulePolicy": ANY,
        "deviceshare.ScheduleWeight": _number(0),
        "deviceshare.GPUExclusiveRules": ANY,
    },
    "nodeplacement": {"gpu": ANY, "cpu": ANY},
    "gpu-aware": _each("gpuMemoryWeight gpuComputeWeight interGPUCommsWeight", ANY),
    "fgd": _WEIGHT,
    "scarcity": _WEIGHT,
    "model-grouping": {"window": ANY},
    "low-priority-gate": {"nodes": ANY},
}
"""Plugin → its arguments. Third-party plugins are not listed."""

UNUSED: Mapping[str, tuple[str, ...]] = {
    "capacity": ("capacity.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable"),
    "rescheduling": (
        "queueSelector",
        "labelSelector",
        *(
            f"strategies[*].params.{name}"
            for name in ("nodeFit", "thresholdPriorityClassName", "numberOfNodes")
        ),
        *(f"strategies[*].params.{name}.pod*" for name in ("thresholds", "targetThresholds")),
    ),
    "deviceshare": (
        "deviceshare.NodeLockEnable",
        "deviceshare.KnownGeometriesCMName",
        "deviceshare.KnownGeometriesCMNamespace",
        "deviceshare.AscendHAMiVNPUEnable",
        "deviceshare.AscendMindClusterVNPUEnable",
    ),
}
"""Plugin → arguments of Volcano that have no effect here.

``*`` stands for any letters, ``[*]`` for any index of a list.
"""
_INDEX = re.compile(r"\[\d+\]")


def problems(plugin: str, arguments: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
    """Return the arguments of a plugin that count as missing, with the reason."""
    known = KNOWN.get(plugin)
    if known is None:
        return
    for problem in _section_problems(known, arguments, ""):
        name = _INDEX.sub("[*]", problem.name)
        if any(fnmatchcase(name, unused.replace("[", "[[]")) for unused in UNUSED.get(plugin, ())):
            yield ArgumentProblem(problem.name, "has an effect in Volcano only")
        else:
            yield problem


def _section_problems(known: Known, section: Mapping[str, Any], place: str) -> Iterator[ArgumentProblem]:
    for key, value in section.items():
        name = str(key)
        declaration = declared(known, name)
        if declaration is None:
            near = difflib.get_close_matches(name, [word for word in known if "*" not in word], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield ArgumentProblem(place + name, f"is not known and not used{hint}")
        elif isinstance(declaration, ListArgument):
            yield from _list_problems(declaration, value, place + name)
        elif not isinstance(declaration, Argument):
            if isinstance(value, Mapping):
                yield from _section_problems(declaration, value, f"{place}{name}.")
            elif value is not None:
                yield ArgumentProblem(place + name, f"is {value!r}, not a mapping: it is ignored")
        elif declaration.rejects(value):
            yield ArgumentProblem(
                place + name, f"is {value!r}, {declaration.wanted}: {_replacement(declaration.default)}"
            )


def _list_problems(listed: ListArgument, value: object, name: str) -> Iterator[ArgumentProblem]:
    if not isinstance(value, list):
        if value is not None:
            yield ArgumentProblem(name, f"is {value!r}, not a list: it is ignored")
        return
    for index, item in enumerate(value):
        if isinstance(item, Mapping):
            yield from _section_problems(listed.section, item, f"{name}[{index}].")
        else:
            yield ArgumentProblem(f"{name}[{index}]", f"is {item!r}, not a mapping: it is ignored")


def declared(known: Known, name: str) -> Argument | ListArgument | Known | None:
    """Return the declaration of a name; an exact name precedes a pattern with ``*``."""
    if name in known:
        return known[name]
    return next(
        (declaration for word, declaration in known.items() if "*" in word and fnmatchcase(name, word)), None
    )


def _replacement(default: object) -> str:
    if default is None:
        return "it is ignored"
    if isinstance(default, bool):
        return f"{str(default).lower()} is used"
    return f"{default:g} is used" if isinstance(default, int | float) else f"{default} is used"
