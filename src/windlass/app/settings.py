"""Settings of ``windlass scheduler`` and ``windlass controller`` from a file: their schema, and how it is read.

A file is YAML, one document, by sections; :data:`FIELDS` is all that may stand in it, and the reference page
``docs/reference/settings.md`` is written from it. One file may serve both processes: each reads its own part. A flag
on the command line wins over the file, the file over the default. Nothing is guessed: an unknown field, a value of
another type or out of its range is refused, with line, field, reason and remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import WindlassError
from windlass.observe.logs import LEVELS

REFUSED = "WL-CONFIG-465"
Setting = str | int | float | bool | tuple[str, ...]
Values = Mapping[str, Setting]
BOTH, SCHEDULER = ("scheduler", "controller"), ("scheduler",)


@dataclass(frozen=True, slots=True)
class Field:
    """``live``: a change takes effect while the process runs; else with its next start. Seconds have ``least`` and
    ``most`` (inclusive), as integers have."""

    path: str
    default: Setting
    meaning: str
    live: bool = False
    roles: tuple[str, ...] = BOTH
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0

    @property
    def kind(self) -> str:
        match self.default:
            case bool():
                return "true or false"
            case int():
                return f"a whole number, {self.least:g} to {self.most:g}"
            case float():
                return f"seconds, {self.least:g} to {self.most:g}"
            case tuple():
                return f"a list of {', '.join(self.choices)}" if self.choices else "a list of names"
        return " or ".join(self.choices) if self.choices else "text"


FIELDS: tuple[Field, ...] = (
    Field("log.level", "info", "what is logged", live=True, choices=LEVELS),
    Field("log.format", "text", "of the log's lines", live=True, choices=("text", "json")),
    Field("metrics.bind", "", "`HOST:PORT` of /metrics, /healthz and /readyz; empty: none"),
    Field(
        "metrics.details",
        (),
        "what /metrics tells one by one: `cards`, each GPU and each pod's part of one under HAMi's names"
        " (`legacyCards`: its older ones); `jobs`, each PodGroup under Volcano's and KAI's. Nine series for a GPU,"
        " four for a job: not for large clusters without need",
        roles=SCHEDULER,
        choices=("cards", "legacyCards", "jobs"),
    ),
    Field(
        "metrics.compat",
        (),
        "names of other schedulers that /metrics uses in addition: `kueue`, `yunikorn`. Those of kube-scheduler,"
        " Volcano and KAI are always exported, HAMi's with `metrics.details`",
        roles=SCHEDULER,
        choices=("kueue", "yunikorn"),
    ),
    Field("traces.endpoint", "", "URL of an OTLP/HTTP collector; empty: the environment's"),
    Field("leaderElection.enabled", False, "of several instances only the holder of a lease works"),
    Field("leaderElection.namespace", "kube-system", "where the lease, and what is learned, are kept"),
    Field("leaderElection.leaseSeconds", 15, "so long is a lease believed in", least=2, most=3600),
    Field("leaderElection.renewSeconds", 10.0, "so long may renewing fail", least=0.5, most=3600),
    Field("leaderElection.retrySeconds", 2.0, "between two renewals", live=True, least=0.1, most=600),
    Field("scheduler.names", ("windlass",), "`schedulerName`s whose pods are scheduled", roles=SCHEDULER),
    Field(
        "scheduler.configuration",
        "",
        "file with the policy; that file is followed by itself (queues' shares, plug-ins, `metrics:` sources of load)",
        roles=SCHEDULER,
    ),
    Field("scheduler.beside", (), "schedulers that still run and hand over queue by queue: `volcano`, `kai`"),
    Field(
        "scheduler.waitForGroup",
        ("volcano",),
        "`schedulerName`s whose pods wait until somebody has made their PodGroup",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.withControllers",
        False,
        "this process does the controllers' work, too (then there is no `windlass controller`)",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.bindConcurrency",
        32,
        "bindings under way at once, at the start",
        roles=SCHEDULER,
        least=1,
        most=1024,
    ),
    Field(
        "scheduler.bindConcurrencyMax",
        128,
        "the most that the limit grows to while the server answers fast",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=1024,
    ),
    Field(
        "scheduler.debounceSeconds",
        0.003,
        "changes are collected for so long before a cycle, in a rush for 0.05 s at least",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=5,
    ),
    Field(
        "scheduler.assumeSeconds",
        30.0,
        "a bind that was not seen by then is looked up",
        roles=SCHEDULER,
        least=1,
        most=600,
    ),
    Field(
        "scheduler.gangSeconds",
        30.0,
        "a gang that stands below its minimum for so long without progress is evicted",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=3600,
    ),
    Field(
        "scheduler.quietSeconds",
        0.5,
        "a group waits so long before its reason is written",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=60,
    ),
    Field(
        "scheduler.rewriteSeconds",
        5.0,
        "between two writes of a group's reason",
        live=True,
        roles=SCHEDULER,
        least=0.1,
        most=600,
    ),
    Field(
        "scheduler.podRewriteSeconds",
        30.0,
        "the same, on its pods",
        live=True,
        roles=SCHEDULER,
        least=0.1,
        most=3600,
    ),
    Field(
        "scheduler.estimateSeconds",
        15.0,
        "between two estimates of starts by simulation, as long as something waits; 0: none",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=3600,
    ),
    Field(
        "scheduler.provisioningClass",
        "none",
        "class of the ProvisioningRequests by which a gang that lacks nodes asks for all of them or none, such as"
        " `best-effort-atomic-scale-up.autoscaling.x-k8s.io`; `none`: only where its queue says one",
        live=True,
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.provisioningRetries",
        3,
        "so often is a request that failed made anew",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=1000,
    ),
    Field(
        "scheduler.provisioningBackoffSeconds",
        60.0,
        "so long after the first that failed, twice as long after each further one",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=86_400,
    ),
    Field(
        "scheduler.provisioningBackoffMaxSeconds",
        1800.0,
        "and never longer",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=86_400,
    ),
    Field(
        "scheduler.reservationImage",
        "",
        "image (Windlass' own) of pods that hold GPUs of device plug-ins for those who share them; empty: none do",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.reservationPullPolicy",
        "IfNotPresent",
        "of that image",
        roles=SCHEDULER,
        choices=("Always", "IfNotPresent", "Never"),
    ),
    Field("scheduler.reservationPullSecrets", (), "names of its pull secrets", roles=SCHEDULER),
    Field(
        "scheduler.reservationRuntimeClass",
        "nvidia",
        "runtime class in which containers see their GPUs; empty: the nodes' own",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.reservationSeconds",
        60.0,
        "so long may a kubelet take to name a GPU, before its pods are placed anew",
        roles=SCHEDULER,
        least=5,
        most=300,
    ),
    Field(
        "scheduler.deviceNames",
        "uuid",
        "how containers name their GPUs: `cdi` where the device plug-in hands GPUs out by CDI",
        roles=SCHEDULER,
        choices=("uuid", "cdi"),
    ),
    Field(
        "controllers.workers",
        4,
        "keys that one controller looks at side by side",
        live=True,
        least=1,
        most=64,
    ),
)
BY_PATH: Mapping[str, Field] = {field.path: field for field in FIELDS}


def defaults() -> dict[str, Setting]:
    return {field.path: field.default for field in FIELDS}


def read(text: str, file: str) -> dict[str, Setting]:
    """What the file says, by path. Raises :class:`WindlassError` (``WL-CONFIG-465``, exit status 65)."""
    import yaml

    from windlass.api.wire.yaml_text import YamlError, load_one

    try:
        value, twice = load_one(text)
        lines = dict(_lines(yaml.compose(text, Loader=yaml.SafeLoader)))
    except (YamlError, yaml.YAMLError) as error:
        raise WindlassError(
            REFUSED, f"{file}: no YAML: {error}", remedies=("mend the line named",)
        ) from error
    if twice:
        raise _refuse(file, lines, twice[0], "is given twice", "keep one of them")
    if value is None:
        return {}
    found = dict(_flat(file, lines, value))
    _check_leader(file, lines, {**defaults(), **found})
    return found


def _flat(file: str, lines: Mapping[str, int], value: object) -> Iterator[tuple[str, Setting]]:
    sections = {path.partition(".")[0] for path in BY_PATH}
    if not isinstance(value, dict):
        raise _refuse(file, lines, "", "is no mapping of sections", f"begin with one of {_words(sections)}")
    for section, fields in value.items():
        if section not in sections:
            raise _refuse(file, lines, section, "is not known", _nearest(section, sections))
        if fields is None:
            continue
        if not isinstance(fields, dict):
            raise _refuse(
                file, lines, section, "is no mapping of fields", "write its fields indented below it"
            )
        known = {path.partition(".")[2] for path in BY_PATH if path.startswith(f"{section}.")}
        for name, given in fields.items():
            path = f"{section}.{name}"
            if name not in known:
                raise _refuse(file, lines, path, "is not known", _nearest(name, known))
            yield path, _value(file, lines, BY_PATH[path], given)


def _value(file: str, lines: Mapping[str, int], field: Field, given: object) -> Setting:
    remedy = f"write {field.kind}; the default is {shown(field.default)}"
    match field.default:
        case bool():
            good = isinstance(given, bool)
        case int():
            good = isinstance(given, int) and not isinstance(given, bool)
            good = good and field.least <= given <= field.most  # type: ignore[operator]
        case float():
            good = isinstance(given, int | float) and not isinstance(given, bool)
            good = good and field.least <= given <= field.most  # type: ignore[operator]
            given = float(given) if good else given  # type: ignore[arg-type]
        case tuple():
            good = isinstance(given, list) and all(_is_name(one, field.choices) for one in given)
            given = tuple(given) if good else given  # type: ignore[arg-type]
        case _:
            good = isinstance(given, str) and (not field.choices or given in field.choices)
    if not good:
        raise _refuse(file, lines, field.path, f"{given!r} is not {field.kind}", remedy)
    return given  # type: ignore[return-value]


def _is_name(given: object, choices: tuple[str, ...]) -> bool:
    return isinstance(given, str) and (given in choices if choices else given != "")


def _check_leader(file: str, lines: Mapping[str, int], values: Values) -> None:
    lease, renew, retry = (
        float(values[f"leaderElection.{name}Seconds"])  # type: ignore[arg-type]
        for name in ("lease", "renew", "retry")
    )
    if not lease > renew > retry:
        named = [p for p in lines if p.startswith("leaderElection.") and p.endswith("Seconds")]
        raise _refuse(
            file,
            lines,
            named[0] if named else "leaderElection",
            f"lease {lease:g} s, renew {renew:g} s, retry {retry:g} s: two instances could lead at once",
            "keep leaseSeconds > renewSeconds > retrySeconds",
        )


def shown(value: Setting) -> str:
    """A value as it is written in the file."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return f"[{', '.join(value)}]"
        case float():
            return f"{value:g}"
    return str(value) if value != "" else '""'


def _lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    if node is not None and node.id == "mapping":
        for key, value in node.value:
            path = f"{prefix}{key.value}"
            yield path, key.start_mark.line + 1
            yield from _lines(value, f"{path}.")


def _nearest(name: object, known: set[str]) -> str:
    near = difflib.get_close_matches(str(name), sorted(known), 1)
    return f"did you mean {near[0]}?" if near else f"it takes {_words(known)}"


def _words(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _refuse(file: str, lines: Mapping[str, int], path: object, why: str, remedy: str) -> WindlassError:
    line = lines.get(str(path), 0)
    where = f"{file}:{line}" if line else file
    return WindlassError(REFUSED, f"{where}: {f'{path} ' if path else ''}{why}", remedies=(remedy,))
