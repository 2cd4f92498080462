"""What ``windlass plan`` reads, and how it runs: files → objects → dry run → document.

Whatever is wrong with an input ends in a :class:`WindlassError` with exit status 65, which names the file,
the document, the object and the field; nothing is planned then.
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
from windlass.model import scheduler_config
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, Counted, SnapshotError, load
from windlass.model.dryrun.dry_run import DryRun
from windlass.model.dryrun.plan_record import record
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.model.queues.dry_run_quota import NamespaceQuotas
from windlass.model.scheduler_config import CONFIG_MAP_NAME, Parsed
from windlass.scheduler import configuration

INPUT_ERROR = "WL-INPUT-465"
_CODES = FileCodes(no_text=INPUT_ERROR)
LIVE_SCHEDULERS = names.SCHEDULER_NAMES
"""Of a running cluster: the cluster's own scheduler keeps its pods."""
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """``files``: paths, or ``-``. ``config``: path, ``""`` for the default policy. ``now``: Unix seconds.
    ``scheduler_names``: whose pods are planned; empty: those of :data:`EVERY_SCHEDULER`, of a running cluster that is
    no box those of :data:`LIVE_SCHEDULERS`."""

    files: Sequence[str]
    config: str = ""
    now: float = 0.0
    cycles: int = 1
    until_stable: bool = False
    scheduler_names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A cluster that has been read, and the configuration that holds there."""

    model: ClusterModel
    parsed: Parsed
    counted: Counted


def loaded(request: PlanRequest, warn: Warn) -> Loaded:
    """From files. Raises :class:`WindlassError`. ``warn`` is told what is not used."""
    parsed = (
        read_config(request.config, warn) if request.config else Parsed(scheduler_config.SchedulerConfig())
    )
    model = _model(request.scheduler_names or EVERY_SCHEDULER, parsed)
    counted = Counted()
    for name in request.files:
        ignored = [f"{count} {kind}" for kind, count in enter(model, name, counted).items()]
        if ignored:
            warn(
                f"{words_of(name)}: left out, as the scheduler does not read these kinds: {', '.join(ignored)}"
            )
    return Loaded(model, parsed, counted)


def loaded_live(
    client: BlockingClient, request: PlanRequest, warn: Warn, *, embedded: bool = False
) -> Loaded:
    """From a running cluster, of which everything is only read. Without ``request.config`` the configuration of the
    Windlass that is installed there holds. ``embedded``: it is one that Windlass serves, and schedules alone.
    Raises :class:`WindlassError`, ``StatusError``, ``Unreachable``."""
    parsed = Parsed(scheduler_config.SchedulerConfig())
    if request.config:
        parsed = read_config(request.config, warn)
    elif text := live_cluster.policy(client, embedded):
        parsed = configuration.parse(
            text, f"ConfigMap {CONFIG_MAP_NAME if embedded else 'windlass-scheduler'}"
        )
    everybody = EVERY_SCHEDULER if embedded else LIVE_SCHEDULERS
    model = _model(request.scheduler_names or everybody, parsed)
    counted = Counted()
    read: set[Resource] = set()
    load(model, live_cluster.objects(client, warn, read), counted=counted)
    if {STORAGE_CLASSES, PERSISTENT_VOLUME_CLAIMS} <= read:
        model.storage_is_served()
    return Loaded(model, parsed, counted)


def plan(request: PlanRequest, warn: Warn) -> dict[str, Any]:
    """The plan as a document. Raises :class:`WindlassError`. ``warn`` is told what is not used."""
    found = loaded(request, warn)
    if not request.scheduler_names:
        _tell_of_others(found.counted, warn)
    return run(found.model, found.parsed, request, warn, found.counted)


def _tell_of_others(counted: Counted, warn: Warn) -> None:
    """A dump names the cluster's own scheduler on each of its pods: on a running cluster they would stay with it."""
    others = [
        pod
        for pod in counted.pods
        if (pod.get("spec") or {}).get("schedulerName") == DEFAULT_SCHEDULER and not _is_done(pod)
    ]
    if others:
        waiting = sum(not pod["spec"].get("nodeName") for pod in others)
        names = " ".join(f"--scheduler-name {name}" for name in LIVE_SCHEDULERS)
        warn(
            f"planned, too: {plural(len(others), 'pod')} of the cluster's own scheduler, of which {waiting} "
            f"wait{'s' if waiting == 1 else ''}; without them: {names}"
        )


def _is_done(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def plan_live(
    client: BlockingClient, request: PlanRequest, warn: Warn, *, embedded: bool = False
) -> dict[str, Any]:
    """The plan for a running cluster: see :func:`loaded_live`. A field that cannot be read is told by what waits
    because of it."""
    found = loaded_live(client, request, warn, embedded=embedded)
    return run(found.model, found.parsed, request, warn, found.counted)


def _model(scheduler_names: Sequence[str], parsed: Parsed) -> ClusterModel:
    return ClusterModel(
        scheduler_names, tiers=bool(parsed.config.tiers), exclusive=exclusive_rules(parsed.config)
    )


def run(
    model: ClusterModel, parsed: Parsed, request: PlanRequest, warn: Warn, counted: Counted | None = None
) -> dict[str, Any]:
    """The plan for a cluster that has been read. Raises :class:`WindlassError`."""
    quotas = quotas_of(counted) if counted is not None else None
    still = EngineConfig(claim_pause_seconds=0.0)  # time stands still: nobody would ever end a pause
    engine = make_engine(parsed.config, lambda text: warn(f"{request.config}: {text}"), base=still)
    model.read_labels(engine.reads, images=engine.reads_images)
    dry = DryRun(model, engine, request.now, quotas)
    found = record(dry.run(request.cycles, until_stable=request.until_stable))
    for problem in model.topology.problems:
        warn(problem)
    return found


def quotas_of(counted: Counted) -> NamespaceQuotas:
    """Raises :class:`WindlassError`."""
    try:
        return NamespaceQuotas(counted.quotas, counted.pods)
    except QuantityError as error:
        raise WindlassError(INPUT_ERROR, f"a ResourceQuota or a pod of its namespace: {error}") from error


def read_config(path: str, warn: Warn) -> Parsed:
    """A scheduler configuration. Raises :class:`WindlassError` with file, line, field and remedy."""
    parsed = configuration.parse(configuration.read_text(path), path)
    for note in parsed.notes:
        warn(f"{path}: {note}")
    return parsed


def enter(model: ClusterModel, name: str, counted: Counted) -> dict[str, int]:
    """Enter the objects of a file into the model; returns the kinds that were ignored."""
    text = _text(name)
    shown = words_of(name)
    if not text.strip():
        raise WindlassError(
            INPUT_ERROR,
            f"{shown} is empty",
            evidence="kubectl get prints nothing at all where the cluster lacks one of the kinds that are asked for",
            remedies=("leave out what kubectl api-resources does not list", "windlass --context NAME plan"),
        )
    try:
        return load(model, _objects(text, shown), strict=True, counted=counted)
    except yaml_text.YamlError as error:
        raise WindlassError(
            INPUT_ERROR,
            f"{shown}: is no YAML: {error}",
            remedies=("kubectl get nodes,pods -A -o json, with the kinds that count",),
        ) from error
    except SnapshotError as error:
        line = _line(text, shown, error)
        raise WindlassError(
            INPUT_ERROR,
            str(error),
            evidence=f"{shown}:{line}" if line else "",
            remedies=("correct the field, or leave the object out",),
        ) from error


def _objects(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Each document with the words for its place."""
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
    for at, obj in objects:
        where = place if at is None else f"{place}: [{at}]"
        if not isinstance(obj, dict):
            raise SnapshotError(where, "is not an object")
        for field in ("apiVersion", "kind"):
            if not isinstance(obj.get(field), str) or not obj[field]:
                raise SnapshotError(where, "is missing, so that nobody can say what the object is", field)
        if not str(obj["kind"]).endswith("List") and not isinstance(obj.get("metadata"), dict):
            raise SnapshotError(f"{where} ({obj['apiVersion']}/{obj['kind']})", "is no mapping", "metadata")
        yield where, obj


def _line(text: str, name: str, error: SnapshotError) -> int:
    """The line of what is wrong; 0 where it cannot be told."""
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
