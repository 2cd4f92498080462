"""Input and execution of ``windlass plan``: files → objects → dry run → document.

An error in the input raises a :class:`WindlassError` with exit status 65. It names the
file, the document, the object and the field, and nothing is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import WindlassError
from windlass.api.quantities import QuantityError
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, Resource
from windlass.api.text_files import STDIN, FileCodes, read_stdin, read_text, words_of
from windlass.api.views import DEFAULT_SCHEDULER
from windlass.api.wire import yaml_text
from windlass.cli.manifests import read
from windlass.cli.simulate import live_cluster
from windlass.cli.text import plural
from windlass.client.blocking import BlockingClient
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.model import scheduler_config
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, Counted, SnapshotError, load
from windlass.model.dryrun.dry_run import DryRun
from windlass.model.dryrun.plan_record import record
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.model.queues.dry_run_quota import NamespaceQuotas, without_effect
from windlass.model.queues.queue_rings import ring_problems
from windlass.model.scheduler_config import CONFIG_MAP_NAME, Parsed
from windlass.scheduler import configuration

INPUT_ERROR = "WL-INPUT-465"
_CODES = FileCodes(no_text=INPUT_ERROR)
LIVE_SCHEDULERS = names.SCHEDULER_NAMES
"""Names of the schedulers that a plan of a running cluster covers.

Other pods stay with the cluster's own scheduler.
"""
_MAX_REPEATED = 8
"""Maximum number of warnings about objects that occur again."""
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for a plan.

    ``files``: paths, or ``-``. ``config``: path; ``""`` for the default policy.
    ``now``: Unix seconds. ``scheduler_names``: the pods of these schedulers are
    planned. If empty, it is :data:`EVERY_SCHEDULER`, and for a running cluster outside
    of single-node mode :data:`LIVE_SCHEDULERS`.
    """

    files: Sequence[str]
    config: str = ""
    now: float = 0.0
    cycles: int = 1
    until_stable: bool = False
    scheduler_names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A cluster that was read, and the configuration in force."""

    model: ClusterModel
    parsed: Parsed
    counted: Counted


def load_files(request: PlanRequest, warn: Warn) -> Loaded:
    """Read a cluster from files. Raises :class:`WindlassError`.

    ``warn`` receives what is ignored.
    """
    parsed = (
        read_config(request.config, warn) if request.config else Parsed(scheduler_config.SchedulerConfig())
    )
    model = _model(request.scheduler_names or EVERY_SCHEDULER, parsed)
    counted = Counted()
    for name in request.files:
        ignored = [f"{count} {kind}" for kind, count in add_file(model, name, counted).items()]
        if ignored:
            warn(
                f"{words_of(name)}: ignored, as the scheduler does not read these kinds: {', '.join(ignored)}"
            )
    for text in (*counted.repeated[:_MAX_REPEATED], *without_effect(counted.quotas)):
        warn(text)
    if len(counted.repeated) > _MAX_REPEATED:
        warn(f"{len(counted.repeated) - _MAX_REPEATED} further objects occur again: the last ones count")
    return Loaded(model, parsed, counted)


def load_live(client: BlockingClient, request: PlanRequest, warn: Warn, *, embedded: bool = False) -> Loaded:
    """Read a running cluster, without writing to it.

    Without ``request.config`` the configuration of the installed Windlass is used.
    Raises :class:`WindlassError`, ``StatusError`` and ``Unreachable``.

    :param embedded: the server is that of single-node mode, where Windlass schedules
        all pods
    """
    parsed = Parsed(scheduler_config.SchedulerConfig())
    if request.config:
        parsed = read_config(request.config, warn)
    elif text := live_cluster.policy_in_force(client, embedded):
        parsed = configuration.parse(
            text, f"ConfigMap {CONFIG_MAP_NAME if embedded else 'windlass-scheduler'}"
        )
    everybody = EVERY_SCHEDULER if embedded else LIVE_SCHEDULERS
    model = _model(request.scheduler_names or everybody, parsed)
    counted = Counted()
    read: set[Resource] = set()
    load(model, live_cluster.objects(client, warn, read), counted=counted)
    if {STORAGE_CLASSES, PERSISTENT_VOLUME_CLAIMS} <= read:
        model.features.volumes.set_served()
    return Loaded(model, parsed, counted)


def plan(request: PlanRequest, warn: Warn) -> dict[str, Any]:
    """Return the plan for files as a document. Raises :class:`WindlassError`.

    ``warn`` receives what is ignored.
    """
    cluster = load_files(request, warn)
    if not request.scheduler_names:
        _warn_about_default_scheduler(cluster.counted, warn)
    return run(cluster.model, cluster.parsed, request, warn, cluster.counted)


def _warn_about_default_scheduler(counted: Counted, warn: Warn) -> None:
    """Warn that pods of the cluster's own scheduler are planned.

    A dump names that scheduler on each of its pods. In a running cluster they would
    stay with it.
    """
    others = [
        pod
        for pod in counted.pods
        if (pod.get("spec") or {}).get("schedulerName") == DEFAULT_SCHEDULER and not _is_done(pod)
    ]
    if others:
        waiting = sum(not pod["spec"].get("nodeName") for pod in others)
        names = " ".join(f"--scheduler-name {name}" for name in LIVE_SCHEDULERS)
        warn(
            f"the plan includes {plural(len(others), 'pod')} of the cluster's own scheduler ({waiting} pending); "
            f"to exclude them: {names}"
        )


def _is_done(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def plan_live(
    client: BlockingClient, request: PlanRequest, warn: Warn, *, embedded: bool = False
) -> dict[str, Any]:
    """Return the plan for a running cluster: see :func:`load_live`.

    An invalid field is reported with the groups that wait because of it.
    """
    cluster = load_live(client, request, warn, embedded=embedded)
    return run(cluster.model, cluster.parsed, request, warn, cluster.counted)


def _model(scheduler_names: Sequence[str], parsed: Parsed) -> ClusterModel:
    return ClusterModel(
        scheduler_names, tiers=bool(parsed.config.tiers), exclusive=exclusive_rules(parsed.config)
    )


def run(
    model: ClusterModel,
    parsed: Parsed,
    request: PlanRequest,
    warn: Warn,
    counted: Counted | None = None,
    more: Sequence[object] = (),
) -> dict[str, Any]:
    """Return the plan for a cluster that was read. Raises :class:`WindlassError`.

    ``more``: plugins in addition to those of the configuration.
    """
    quotas = quotas_of(counted) if counted is not None else None
    engine = engine_of(model, parsed, lambda text: warn(f"{request.config}: {text}"), more)
    dry_run = DryRun(model, engine, request.now, quotas)
    document = record(dry_run.run(request.cycles, until_stable=request.until_stable))
    for problem in (*model.features.topology.index.problems, *ring_problems(engine.state.queues)):
        warn(problem)
    return document


def engine_of(model: ClusterModel, parsed: Parsed, warn: Warn, more: Sequence[object] = ()) -> Engine:
    """Return the engine of a plan. The model then holds the labels that its plugins read."""
    # The clock does not advance, so a pause would never end.
    engine = make_engine(parsed.config, warn, base=EngineConfig(claim_pause_seconds=0.0), more=more)
    model.read_labels(engine.reads, images=engine.reads_images)
    return engine


def quotas_of(counted: Counted) -> NamespaceQuotas:
    """Return the quotas of the namespaces. Raises :class:`WindlassError`."""
    try:
        return NamespaceQuotas(counted.quotas, counted.pods)
    except QuantityError as error:
        raise WindlassError(INPUT_ERROR, f"a ResourceQuota or a pod of its namespace: {error}") from error


def read_config(path: str, warn: Warn) -> Parsed:
    """Read a scheduler configuration.

    Raises :class:`WindlassError` with file, line, field and remedy.
    """
    parsed = configuration.parse(configuration.read_text(path), path)
    for note in parsed.notes:
        warn(f"{path}: {note}")
    return parsed


def add_file(model: ClusterModel, name: str, counted: Counted) -> dict[str, int]:
    """Add the objects of a file to the model, and return the ignored kinds with counts."""
    text = _text(name)
    shown = words_of(name)
    if not text.strip():
        raise WindlassError(
            INPUT_ERROR,
            f"{shown} is empty",
            evidence="kubectl get prints nothing if the cluster lacks one of the requested kinds",
            remedies=("omit kinds that kubectl api-resources does not list", "windlass --context NAME plan"),
        )
    try:
        return load(model, _objects(text, shown), strict=True, counted=counted)
    except yaml_text.YamlError as error:
        raise WindlassError(
            INPUT_ERROR,
            f"{shown} is not valid YAML: {error}",
            remedies=("kubectl get nodes,pods -A -o json   (and the other kinds that matter)",),
        ) from error
    except SnapshotError as error:
        line = _line(text, shown, error)
        raise WindlassError(
            INPUT_ERROR,
            str(error),
            evidence=f"{shown}:{line}" if line else "",
            remedies=("correct the field, or remove the object",),
        ) from error


def _objects(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each document with a text for its place."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            whole = msgspec.json.decode(text)
        except msgspec.DecodeError:
            whole = None  # flow style YAML begins like JSON
        if whole is not None:
            yield from _checked(whole, f"{name}: document 1")
            return
    for number, (document, _) in enumerate(yaml_text.load_all(text, letters_are_text=True), 1):
        if document is not None:
            yield from _checked(document, f"{name}: document {number}")


def _checked(document: Any, place: str) -> Iterator[tuple[str, Any]]:
    objects = enumerate(document) if isinstance(document, list) else [(None, document)]
    for index, obj in objects:
        where = place if index is None else f"{place}: [{index}]"
        if not isinstance(obj, dict):
            raise SnapshotError(where, "is not an object")
        for field in ("apiVersion", "kind"):
            if not isinstance(obj.get(field), str) or not obj[field]:
                raise SnapshotError(where, "is missing, so that the kind of the object is unknown", field)
        if not str(obj["kind"]).endswith("List") and not isinstance(obj.get("metadata"), dict):
            raise SnapshotError(
                f"{where} ({obj['apiVersion']}/{obj['kind']})", "is not a mapping", "metadata"
            )
        yield where, obj


def _line(text: str, name: str, error: SnapshotError) -> int:
    """Return the line of the error; 0 if unknown."""
    number = error.place.removeprefix(f"{name}: document ").partition(" ")[0].rstrip(":")
    try:
        documents = read.parse(text, name)
    except WindlassError:
        return 0
    if not number.isdigit() or not 0 < int(number) <= len(documents) or "items[" in error.place:
        return 0
    return documents[int(number) - 1].line_of(error.field)


def _text(name: str) -> str:
    return read_stdin(_CODES) if name == STDIN else read_text(name, _CODES)
