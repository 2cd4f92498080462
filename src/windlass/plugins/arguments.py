"""Which arguments each plug-in reads, and what counts where one cannot be used.

A configuration in Volcano's format loads with whatever arguments it has: one that nobody reads, or that is no number
where one is needed, counts as not given. :func:`problems` says so. The declarations are held against what the plug-ins
read by a test (``tests/plugins/test_arguments.py``).
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
    """``wanted``: what it has to be, empty where whoever reads it says himself what is wrong, or takes any text.
    ``default``: what counts where it is not given."""

    wanted: str = ""
    default: object = None

    def refuses(self, value: object) -> bool:
        """Return whether the value counts as not given; an empty one does, and nobody misses anything."""
        if value is None:
            return False
        if self.wanted == NUMBER:
            return as_number(value) is None
        if self.wanted == BOOLEAN:
            return as_boolean(value) is None
        if self.wanted == PERCENT:
            found = as_number(value)
            return found is None or not 0 <= found <= 100
        if self.wanted == STRATEGY:
            return value != LOW_NODE_UTILIZATION
        return self.wanted == DURATION and duration(value) is None


@dataclass(frozen=True, slots=True)
class ListArgument:
    """A list of sections."""

    section: Known


class ArgumentProblem(NamedTuple):
    """``name``: of the argument, with those of the sections around it before it."""

    name: str
    text: str


Known = Mapping[str, "Argument | ListArgument | Known"]
"""Name → what it is, or what its section may hold; ``*`` stands for any name of a resource or the like."""

NUMBER, BOOLEAN, DURATION = "no number", "neither true nor false", "no duration such as 90s or 1h30m"
PERCENT = "no number from 0 to 100"
LOW_NODE_UTILIZATION = "lowNodeUtilization"
STRATEGY = f"not the strategy that there is, {LOW_NODE_UTILIZATION}"
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
}
"""Plug-in → its arguments. Of one that is not here, a third party's, nothing is known."""

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
"""Plug-in → arguments that Volcano knows, and that nobody has to read here; ``*`` stands for any letters, ``[*]`` for
any place in a list."""
_INDEX = re.compile(r"\[\d+\]")


def problems(plugin: str, arguments: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
    """What of a plug-in's arguments counts as not given, and why."""
    known = KNOWN.get(plugin)
    if known is None:
        return
    for problem in _of_section(known, arguments, ""):
        name = _INDEX.sub("[*]", problem.name)
        if any(fnmatchcase(name, unused.replace("[", "[[]")) for unused in UNUSED.get(plugin, ())):
            yield ArgumentProblem(problem.name, "is Volcano's and changes nothing here")
        else:
            yield problem


def _of_section(known: Known, section: Mapping[str, Any], place: str) -> Iterator[ArgumentProblem]:
    for key, value in section.items():
        name = str(key)
        found = declared(known, name)
        if found is None:
            near = difflib.get_close_matches(name, [word for word in known if "*" not in word], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield ArgumentProblem(place + name, f"is not known and not used{hint}")
        elif isinstance(found, ListArgument):
            yield from _of_list(found, value, place + name)
        elif not isinstance(found, Argument):
            if isinstance(value, Mapping):
                yield from _of_section(found, value, f"{place}{name}.")
            elif value is not None:
                yield ArgumentProblem(place + name, f"is {value!r}, no mapping: it counts as not given")
        elif found.refuses(value):
            yield ArgumentProblem(place + name, f"is {value!r}, {found.wanted}: {_counts(found.default)}")


def _of_list(listed: ListArgument, value: object, name: str) -> Iterator[ArgumentProblem]:
    if not isinstance(value, list):
        if value is not None:
            yield ArgumentProblem(name, f"is {value!r}, no list: it counts as not given")
        return
    for at, item in enumerate(value):
        if isinstance(item, Mapping):
            yield from _of_section(listed.section, item, f"{name}[{at}].")
        else:
            yield ArgumentProblem(f"{name}[{at}]", f"is {item!r}, no mapping: it counts as not given")


def declared(known: Known, name: str) -> Argument | ListArgument | Known | None:
    """What is known of a name; a ``*`` gives way to the name itself."""
    if name in known:
        return known[name]
    return next((found for word, found in known.items() if "*" in word and fnmatchcase(name, word)), None)


def _counts(default: object) -> str:
    if default is None:
        return "it counts as not given"
    if isinstance(default, bool):
        return f"{str(default).lower()} counts"
    return f"{default:g} counts" if isinstance(default, int | float) else f"{default} counts"
