"""Settings of ``windlass scheduler`` and ``windlass controller``: schema and reading of
the file.

A file is one YAML document with sections. :data:`FIELDS` lists all its fields; the
reference page ``docs/reference/settings.md`` is generated from it. One file may serve
both processes: each reads its own part. A flag on the command line precedes the file,
the file precedes the default. An unknown field, or a value of another type or out of
its range, is an error with line, field, reason and remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.fields.model_cache import MODELS_FOLDER
from windlass.api.job_kind_families import JOB_KIND_FAMILIES
from windlass.observe.logs import LEVELS

REFUSED = "WL-CONFIG-465"
Setting = str | int | float | bool | tuple[str, ...]
Values = Mapping[str, Setting]
BOTH, SCHEDULER = ("scheduler", "controller"), ("scheduler",)


@dataclass(frozen=True, slots=True)
class Field:
    """Field of the settings file.

    ``live``: a change takes effect at once, otherwise at the next start. ``least``,
    ``most``: inclusive range of integers and seconds.
    """

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
    Field("log.level", "info", "minimum level of log messages", live=True, choices=LEVELS),
    Field("log.format", "text", "format of log lines", live=True, choices=("text", "json")),
    Field("metrics.bind", "", "`HOST:PORT` of /metrics, /healthz and /readyz; empty: not served"),
    Field(
        "metrics.details",
        (),
        "detailed series of /metrics: `cards`, each GPU and each pod's share of one under HAMi's names"
        " (`legacyCards`: its older names); `jobs`, each PodGroup under Volcano's and KAI's. Nine series for a GPU,"
        " four for a job: avoid them in large clusters",
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
    Field(
        "leaderElection.enabled",
        False,
        "leader election: of several instances only the holder of a lease works",
    ),
    Field("leaderElection.namespace", "kube-system", "namespace of the lease and of learned data"),
    Field("leaderElection.leaseSeconds", 15, "duration of a lease", least=2, most=3600),
    Field("leaderElection.renewSeconds", 10.0, "timeout for renewing the lease", least=0.5, most=3600),
    Field(
        "leaderElection.retrySeconds", 2.0, "interval between two renewals", live=True, least=0.1, most=600
    ),
    Field("scheduler.names", ("windlass",), "`schedulerName`s of the pods to schedule", roles=SCHEDULER),
    Field(
        "scheduler.configuration",
        "",
        "file with the policy; followed while running (queues' shares, plug-ins, `metrics:` sources of load)",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.beside",
        (),
        "schedulers that run at the same time and hand over queue by queue: `volcano`, `kai`",
    ),
    Field(
        "scheduler.waitForGroup",
        ("volcano",),
        "`schedulerName`s of pods that wait until their PodGroup exists",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.withControllers",
        False,
        "run the controllers in this process (instead of `windlass controller`)",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.bindConcurrency",
        32,
        "initial limit of concurrent bindings",
        roles=SCHEDULER,
        least=1,
        most=1024,
    ),
    Field(
        "scheduler.bindConcurrencyMax",
        128,
        "maximum of that limit, which grows while the API server responds fast",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=1024,
    ),
    Field(
        "scheduler.debounceSeconds",
        0.003,
        "interval for collecting changes before a cycle; at least 0.05 s while the API server is busy",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=5,
    ),
    Field(
        "scheduler.assumeSeconds",
        30.0,
        "timeout after which an unconfirmed binding is read from the API server",
        roles=SCHEDULER,
        least=1,
        most=600,
    ),
    Field(
        "scheduler.gangSeconds",
        30.0,
        "time after which a gang below its minimum and without progress is evicted",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=3600,
    ),
    Field(
        "scheduler.quietSeconds",
        0.5,
        "waiting time of a group before its reason is written",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=60,
    ),
    Field(
        "scheduler.rewriteSeconds",
        5.0,
        "interval between two writes of a group's reason",
        live=True,
        roles=SCHEDULER,
        least=0.1,
        most=600,
    ),
    Field(
        "scheduler.podRewriteSeconds",
        30.0,
        "interval between two writes of the reason to its pods",
        live=True,
        roles=SCHEDULER,
        least=0.1,
        most=3600,
    ),
    Field(
        "scheduler.estimateSeconds",
        15.0,
        "interval between two estimates of start times by simulation while groups are pending; 0: none",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=3600,
    ),
    Field(
        "scheduler.provisioningClass",
        "none",
        "class of the ProvisioningRequests that request all missing nodes of a gang at once, such as"
        " `best-effort-atomic-scale-up.autoscaling.x-k8s.io`; `none`: only for queues that name a class",
        live=True,
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.provisioningRetries",
        3,
        "maximum number of retries of a failed ProvisioningRequest",
        live=True,
        roles=SCHEDULER,
        least=0,
        most=1000,
    ),
    Field(
        "scheduler.provisioningBackoffSeconds",
        60.0,
        "delay after the first failure; it doubles with each further one",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=86_400,
    ),
    Field(
        "scheduler.provisioningBackoffMaxSeconds",
        1800.0,
        "maximum of that delay",
        live=True,
        roles=SCHEDULER,
        least=1,
        most=86_400,
    ),
    Field(
        "scheduler.reservationImage",
        "",
        "image (Windlass' own) of the pods that reserve device-plugin GPUs for sharing; empty: no such pods",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.reservationPullPolicy",
        "IfNotPresent",
        "pull policy of that image",
        roles=SCHEDULER,
        choices=("Always", "IfNotPresent", "Never"),
    ),
    Field("scheduler.reservationPullSecrets", (), "names of that image's pull secrets", roles=SCHEDULER),
    Field(
        "scheduler.reservationRuntimeClass",
        "nvidia",
        "runtime class that gives containers access to GPUs; empty: the nodes' default",
        roles=SCHEDULER,
    ),
    Field(
        "scheduler.reservationSeconds",
        60.0,
        "timeout for a kubelet to report the allocated GPU, before the pods are placed again",
        roles=SCHEDULER,
        least=5,
        most=300,
    ),
    Field(
        "scheduler.deviceNames",
        "uuid",
        "names of GPUs in containers: `cdi` if the device plug-in allocates GPUs by CDI",
        roles=SCHEDULER,
        choices=("uuid", "cdi"),
    ),
    Field(
        "controllers.workers",
        4,
        "number of keys that one controller reconciles concurrently",
        live=True,
        least=1,
        most=64,
    ),
    Field(
        "controllers.jobKinds",
        ("auto",),
        "families of job kinds that Windlass operates in a cluster: auto means each without a running operator, "
        "a name the family in any case, [] none",
        choices=("auto", *JOB_KIND_FAMILIES),
    ),
    Field(
        "controllers.progressBind",
        "",
        "`HOST:PORT` of the endpoint to which jobs report progress in a cluster (HTTPS); empty: not served",
    ),
    Field(
        "controllers.progressAddress",
        "",
        "address of that endpoint for pods; default `https://windlass-progress.NAMESPACE.svc:PORT`",
    ),
    Field(
        "controllers.outputsFolder",
        "",
        "folder of the nodes for ledger and outputs of AIGCJobs that name no `outputs.path` or claim; empty:"
        " they are lost with the driver's pod",
    ),
    Field(
        "controllers.outputsClaim",
        "",
        "size, such as `10Gi`, of a PersistentVolumeClaim for them that each such job gets; it precedes the folder"
        " and stays after the job unless `outputs.retain` is false",
    ),
    Field("controllers.modelsFolder", MODELS_FOLDER, "folder of the nodes for models of AIGCJobs"),
    Field("controllers.outputsClass", "", "storage class of these claims; empty: the cluster's default"),
)
BY_PATH: Mapping[str, Field] = {field.path: field for field in FIELDS}


def defaults() -> dict[str, Setting]:
    return {field.path: field.default for field in FIELDS}


def read(text: str, file: str) -> dict[str, Setting]:
    """Return the values of the file by path.

    :raises WindlassError: ``WL-CONFIG-465``, exit status 65
    """
    import yaml

    from windlass.api.wire.yaml_text import YamlError, load_one

    try:
        value, twice = load_one(text)
        lines = dict(_lines(yaml.compose(text, Loader=yaml.SafeLoader)))
    except (YamlError, yaml.YAMLError) as error:
        raise WindlassError(
            REFUSED, f"{file}: not valid YAML: {error}", remedies=("correct the line named",)
        ) from error
    if twice:
        raise _invalid(file, lines, twice[0], "is given twice", "keep one of them")
    if value is None:
        return {}
    values = dict(_flat(file, lines, value))
    _check_leader(file, lines, {**defaults(), **values})
    return values


def _flat(file: str, lines: Mapping[str, int], value: object) -> Iterator[tuple[str, Setting]]:
    sections = {path.partition(".")[0] for path in BY_PATH}
    if not isinstance(value, dict):
        raise _invalid(
            file, lines, "", "is not a mapping of sections", f"begin with one of {_words(sections)}"
        )
    for section, fields in value.items():
        if section not in sections:
            raise _invalid(file, lines, section, "is not known", _nearest(section, sections))
        if fields is None:
            continue
        if not isinstance(fields, dict):
            raise _invalid(
                file, lines, section, "is not a mapping of fields", "write its fields indented below it"
            )
        known = {path.partition(".")[2] for path in BY_PATH if path.startswith(f"{section}.")}
        for name, given in fields.items():
            path = f"{section}.{name}"
            if name not in known:
                raise _invalid(file, lines, path, "is not known", _nearest(name, known))
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
        raise _invalid(file, lines, field.path, f"{given!r} is not {field.kind}", remedy)
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
        raise _invalid(
            file,
            lines,
            named[0] if named else "leaderElection",
            f"lease {lease:g} s, renew {renew:g} s, retry {retry:g} s: two instances could lead at once",
            "keep leaseSeconds > renewSeconds > retrySeconds",
        )


def shown(value: Setting) -> str:
    """Return a value as written in the file."""
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
    similar = difflib.get_close_matches(str(name), sorted(known), 1)
    return f"did you mean {similar[0]}?" if similar else f"it takes {_words(known)}"


def _words(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _invalid(file: str, lines: Mapping[str, int], path: object, why: str, remedy: str) -> WindlassError:
    line = lines.get(str(path), 0)
    where = f"{file}:{line}" if line else file
    return WindlassError(REFUSED, f"{where}: {f'{path} ' if path else ''}{why}", remedies=(remedy,))
