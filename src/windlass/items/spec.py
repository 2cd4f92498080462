"""Specification of a batch: the fields of an AIGCJob that the driver and the workers read.

:func:`parse_batch` reads the document of the environment variable ``WINDLASS_BATCH``.
:func:`check` returns everything that is known to be wrong before a worker starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.api.fields.aigc import GROUP_SETTINGS
from windlass.items.context.spec import ContextSpec, parse_context
from windlass.items.fields import SpecFields

BATCH_FILE = "WINDLASS_BATCH"
"""Environment variable: path of the JSON document ``{"metadata": …, "spec": …}``."""
LISTEN = "WINDLASS_BATCH_LISTEN"
"""Environment variable of the driver: ``host:port``, port 0 for a free one."""
PORT_FILE = "WINDLASS_BATCH_PORT_FILE"
"""Environment variable: file that the driver writes its port to."""
TOKEN = "WINDLASS_BATCH_TOKEN"
"""Environment variable: bearer token of the driver's API."""
DRIVER = "WINDLASS_BATCH_DRIVER"
"""Environment variable of a worker: URL of the driver."""
DRIVER_FILE = "WINDLASS_BATCH_DRIVER_FILE"
"""Environment variable of a worker: file with the URL or port of the driver, read again
after a connection failed."""
WORKER = "WINDLASS_BATCH_WORKER"
"""Environment variable of a worker: its name. A worker that registers again under the
same name replaces the earlier one. Default: the host name and the process id."""
INPUT_MOUNT = "WINDLASS_BATCH_INPUT_MOUNT"
"""Environment variable of the driver: folder where the ConfigMap or the volume of the input
is mounted."""
OUTPUTS = "WINDLASS_BATCH_OUTPUTS"
"""Environment variable: default of ``spec.outputs.path``."""
RETRY_DEAD = "WINDLASS_BATCH_RETRY_DEAD"
"""Environment variable of the driver: a new value tries dead letters again at the start, once."""
ATTEMPT = "WINDLASS_BATCH_ATTEMPT"
"""Environment variable of the driver: number of the job's attempt, from 1 on."""
LINGER = "WINDLASS_BATCH_LINGER"
"""Environment variable of the driver: seconds that it serves its final status after the end
if no client has read it. Default 5."""

STAGE = "WINDLASS_BATCH_STAGE"
"""Environment variable of a worker: name of its stage, if the batch has stages."""

SHARD = "WINDLASS_BATCH_SHARD"
"""Environment variable of a worker of several pods: rank of this pod. Rank 0 processes the rows."""

DEFAULT_SPOOL_ITEMS = 10_000
"""Default of the maximum number of rows that wait between two stages."""
SOURCES = ("inline", "configMap", "file", "pvc", "http", "s3")
FORMATS = ("jsonl", "csv", "parquet", "dir")
OUTPUT_FORMATS = ("jsonl", "csv", "parquet")
STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""Schemes of object stores (``source: s3``)."""
ORDERS = ("LargestFirst", "Priority", "Arrival")
RUNTIMES = ("builtin-generate", "process", "python", "openai", "llama-cpp", "noop")
ON_LOW = ("Flag", "Retry", "Branch")
SCORERS = ("length", "language", "regex", "judge")
PRIORITIES = {"urgent": 100_000, "high": 10_000, "medium": 1000, "low": 100}


@dataclass(frozen=True)
class InputSpec:
    """Source of the rows.

    ``source`` is empty for a job without input: it gets a few sample rows. ``prompt``:
    template of the prompt, with columns in braces. ``id_field`` is empty if ids come from a
    field ``id`` or from the content.
    """

    source: str = ""
    format: str = "jsonl"
    id_field: str = ""
    prompt: str = ""
    system_prompt: str = ""
    inline: str = ""
    path: str = ""
    url: str = ""
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    item_schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupSettings:
    """Settings of one group. ``parallelism`` 0: no maximum of batches in progress."""

    parallelism: int = 0
    model: str = ""
    priority: int = 0
    deadline_seconds: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class GroupingSpec:
    """Rule by which items form groups. ``per_group["*"]`` holds for groups without an entry."""

    by: str = ""
    max_groups: int = 1000
    other_bucket: str = "other"
    order: str = "LargestFirst"
    weight_field: str = ""
    per_group: Mapping[str, GroupSettings] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchingSpec:
    """Limits of one lease. ``max_tokens`` and ``max_bytes`` 0: no such limit."""

    mode: str = "Dynamic"
    size: int = 64
    max_items: int = 1024
    max_tokens: int = 0
    max_bytes: int = 0
    target_seconds: float = 60.0
    max_wait_seconds: float = 5.0
    pack_by: str = "none"


@dataclass(frozen=True)
class SpeculationSpec:
    """Rule of second copies of the slowest items at the end of a job."""

    enabled: bool = False
    slowest_percent: float = 5.0


@dataclass(frozen=True)
class ItemsSpec:
    """Budgets of one item.

    ``retries`` counts failures of the program, ``infrastructure_retries`` leases that were
    lost with their worker. ``timeout_seconds`` 0: no timeout.
    """

    retries: int = 2
    retry_backoff: float = 1.0
    infrastructure_retries: int = 10
    max_failed_percent: float = 1.0
    dead_letter_path: str = ""
    timeout_seconds: float = 0.0
    lease_seconds: float = 30.0
    speculative: SpeculationSpec = field(default_factory=SpeculationSpec)


@dataclass(frozen=True)
class QualitySpec:
    """Rule by which outputs are judged. ``scorer`` is empty for the row's own ``score``.

    ``branch_model``: model that processes rows below ``min`` once more; empty: none does.
    """

    scorer: str = ""
    min: float = 90.0
    on_low: str = "Flag"
    branch_model: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputsSpec:
    """Place and form of the outputs: a file, or a folder that gets the file ``outputs``."""

    path: str = ""
    format: str = "jsonl"
    atomic: bool = True
    retain: bool = True
    quality: QualitySpec | None = None


@dataclass(frozen=True)
class RuntimeSpec:
    """Runtime that processes the rows, and its arguments.

    ``command`` of ``process``: the command of the first container of the pod template.
    ``image``: its image; empty: that of the platform.
    """

    name: str = "builtin-generate"
    function: str = ""
    url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int = 8
    chunk: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    working_dir: str = ""
    image: str = ""


@dataclass(frozen=True)
class StageSpec:
    """Stage that all rows pass. ``max_items``: maximum number of rows that wait behind it."""

    name: str
    kind: str
    runtime: RuntimeSpec
    max_items: int = DEFAULT_SPOOL_ITEMS


@dataclass(frozen=True)
class ServerSpec:
    """Inference server that the workers of a node share (``model.sharing.mode: Server``).

    ``command``: program, with ``{path}``, ``{name}``, ``{host}`` and ``{port}``. ``ready_path``: path that
    answers 200 once the model is loaded. ``start_seconds``: time until then.
    """

    command: tuple[str, ...]
    ready_path: str = "/v1/models"
    start_seconds: float = 1800.0


@dataclass(frozen=True)
class BatchSpec:
    """A batch as driver and workers see it.

    ``model_source``: address of the model's files, such as ``file:///models/m.gguf``.
    ``stages``: empty for rows that pass the runtime alone. ``carries``: outputs are rows of a
    further stage and keep the fields of their input rows.
    """

    namespace: str
    name: str
    uid: str
    input: InputSpec
    grouping: GroupingSpec
    batching: BatchingSpec
    items: ItemsSpec
    outputs: OutputsSpec
    runtime: RuntimeSpec
    model: str = ""
    stages: tuple[StageSpec, ...] = ()
    carries: bool = False
    context: ContextSpec | None = None
    server: ServerSpec | None = None
    model_source: str = ""


class SpecError(ValueError):
    """A specification that cannot run. ``problems``: pairs of path and message."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in problems))
        self.problems = problems


def parse_batch(document: Mapping[str, Any]) -> BatchSpec:
    """Read ``{"metadata": …, "spec": …}``. Raises :class:`SpecError`."""
    found: list[tuple[str, str]] = []
    batch = _batch(document, found)
    if found:
        raise SpecError(found)
    return batch


def check(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return pairs of path and message for all that is known before a worker starts."""
    found: list[tuple[str, str]] = []
    batch = _batch(document, found)
    return found or problems(batch)


def problems(spec: BatchSpec) -> list[tuple[str, str]]:
    """Return what is wrong with a specification that has fields of the right types.

    Rows are only looked at where they stand in the specification (``input.inline``).
    """
    # Imported here: workers parse specifications, and never check them.
    from windlass.items import problems as checks

    return checks.find(spec)


def _batch(document: Mapping[str, Any], found: list[tuple[str, str]]) -> BatchSpec:
    metadata = SpecFields(document.get("metadata"), "metadata", found)
    spec = SpecFields(document.get("spec"), "spec", found)
    return BatchSpec(
        namespace=metadata.text("namespace", "default"),
        name=metadata.text("name"),
        uid=metadata.text("uid"),
        input=_input(spec.inner("input")),
        grouping=_grouping(spec.inner("grouping")),
        batching=_batching(spec.inner("batching")),
        items=_items(spec.inner("items")),
        outputs=_outputs(spec.inner("outputs")),
        runtime=_runtime(spec),
        model=spec.inner("model").text("name"),
        model_source=spec.inner("model").text("source"),
        stages=_stages(spec, found),
        context=parse_context(spec.inner("contextCache")),
        server=_server(spec.inner("model").inner("sharing")),
    )


def _server(sharing: SpecFields) -> ServerSpec | None:
    if sharing.values.get("mode") != "Server":
        return None
    default = ServerSpec(())
    command = sharing.values.get("command")
    valid = isinstance(command, list | tuple) and command and all(isinstance(one, str) for one in command)
    if not valid:
        sharing.bad(
            "command",
            "Required value: mode Server needs the command of a server with OpenAI's interface, such as "
            '["vllm", "serve", "{path}", "--host", "{host}", "--port", "{port}"]',
        )
        return None
    return ServerSpec(
        tuple(command or ()),
        sharing.text("readyPath", default.ready_path),
        sharing.seconds("startSeconds", default.start_seconds),
    )


def _stages(spec: SpecFields, found: list[tuple[str, str]]) -> tuple[StageSpec, ...]:
    """Read stages in their normal form (:func:`windlass.api.fields.stages.normal_stages`)."""
    stages = spec.values.get("stages")
    if not isinstance(stages, list | tuple):
        return ()
    read = []
    for index, values in enumerate(stages):
        one = SpecFields(values, f"{spec.path}.stages[{index}]", found)
        waiting = one.inner("output").integer("maxItems", DEFAULT_SPOOL_ITEMS, 1)
        read.append(StageSpec(one.text("name"), one.text("kind", "cpu"), _runtime(one), waiting))
    return tuple(read)


def _input(one: SpecFields) -> InputSpec:
    source = one.text("source") or _source(one)
    if source and source not in SOURCES:
        source = one.choice("source", "inline", SOURCES)
    config_map, claim = one.inner("configMap"), one.inner("pvc")
    path = one.text("path") or claim.text("path")
    key = one.text("key") or config_map.text("key")
    url = one.text("url") or (one.text("uri") if source == "s3" else "")
    headers = {name: str(value) for name, value in one.mapping("headers").items()}
    return InputSpec(
        source=source,
        format=one.choice("format", format_of(path or url or key), FORMATS),
        id_field=one.text("idField"),
        prompt=one.text("prompt"),
        system_prompt=one.text("systemPrompt"),
        inline=one.text("inline"),
        path=path,
        url=url,
        key=key,
        headers=headers,
        item_schema=one.mapping("itemSchema"),
    )


def _source(one: SpecFields) -> str:
    for name, source in (("inline", "inline"), ("configMap", "configMap"), ("pvc", "pvc"), ("path", "file")):
        if one.has(name):
            return source
    url = one.text("url")
    return ("s3" if url.partition("://")[0] in STORES else "http") if url else ""


def format_of(path: str) -> str:
    """Return the format that the name of a file tells; ``jsonl`` if it tells none."""
    name = path.lower().split("?", 1)[0].removesuffix(".gz")
    ending = name.rsplit(".", 1)[-1] if "." in name.rsplit("/", 1)[-1] else ""
    return {"csv": "csv", "parquet": "parquet", "pq": "parquet"}.get(ending, "jsonl")


def _grouping(one: SpecFields) -> GroupingSpec:
    given = one.inner("perGroup")
    if given.values and set(given.values) <= set(GROUP_SETTINGS):
        per_group = {"*": _group(given)}
    else:
        per_group = {str(name): _group(given.inner(name)) for name in given.values}
    return GroupingSpec(
        by=one.text("by"),
        max_groups=one.integer("maxGroups", 1000, 1),
        other_bucket=one.text("otherBucket", "other"),
        order=one.choice("order", "LargestFirst", ORDERS),
        weight_field=one.text("weightField"),
        per_group=per_group,
    )


def _group(one: SpecFields) -> GroupSettings:
    priority = one.values.get("priority")
    if isinstance(priority, str):
        number = PRIORITIES.get(priority)
        if number is None:
            one.choice("priority", "medium", tuple(PRIORITIES))
    else:
        number = one.integer("priority", 0, -(2**31))
    return GroupSettings(
        parallelism=one.integer("parallelism", 0),
        model=one.text("model"),
        priority=number or 0,
        deadline_seconds=one.seconds("deadline", 0.0),
        weight=one.number("weight", 1.0, 1e-6),
    )


def _batching(one: SpecFields) -> BatchingSpec:
    default = BatchingSpec()
    return BatchingSpec(
        mode=one.choice("mode", "Dynamic", ("Dynamic", "Fixed")),
        size=one.integer("size", default.size, 1),
        max_items=one.integer("maxItems", default.max_items, 1),
        max_tokens=one.integer("maxTokens", 0),
        max_bytes=one.size("maxBytes", 0),
        target_seconds=one.seconds("targetSeconds", default.target_seconds),
        max_wait_seconds=one.seconds("maxWaitSeconds", default.max_wait_seconds),
        pack_by=one.choice("packBy", "none", ("none", "length")),
    )


def _items(one: SpecFields) -> ItemsSpec:
    default = ItemsSpec()
    speculative = one.inner("speculative")
    dead = one.values.get("deadLetter")
    return ItemsSpec(
        retries=one.integer("retries", default.retries),
        retry_backoff=one.seconds("retryBackoff", default.retry_backoff),
        infrastructure_retries=one.integer("infrastructureRetries", default.infrastructure_retries),
        max_failed_percent=one.number("maxFailedPercent", default.max_failed_percent, 0, 100),
        dead_letter_path=one.inner("deadLetter").text("path") if isinstance(dead, Mapping) else "",
        timeout_seconds=one.seconds("timeoutSeconds", 0.0),
        lease_seconds=max(1.0, one.seconds("leaseSeconds", default.lease_seconds)),
        speculative=SpeculationSpec(
            speculative.flag("enabled", False), speculative.number("slowestPercent", 5.0, 0, 100)
        ),
    )


def _outputs(one: SpecFields) -> OutputsSpec:
    path = one.text("path")
    return OutputsSpec(
        path=path,
        format=one.choice("format", format_of(path), OUTPUT_FORMATS),
        atomic=one.flag("atomic", True),
        retain=one.flag("retain", True),
        quality=_quality(one.inner("quality")) if one.has("quality") else None,
    )


def _quality(one: SpecFields) -> QualitySpec:
    scorer, arguments = one.values.get("scorer"), {}
    if isinstance(scorer, Mapping):
        arguments = dict(scorer)
        name = one.inner("scorer").text("name")
    else:
        name = one.text("scorer")
        head, colon, rest = name.partition(":")
        if colon and head in SCORERS:
            name, arguments = head, {_ARGUMENT[head]: rest}
    on_low, branch = one.choice("onLow", "Flag", ON_LOW), one.inner("branch").text("model")
    if branch and on_low != "Branch":
        one.bad("branch", f"Invalid value: it is for onLow: Branch, and onLow is {on_low}")
    return QualitySpec(
        scorer=name,
        min=one.number("min", 90.0, 0, 100),
        on_low=on_low,
        branch_model=branch,
        arguments=arguments,
    )


_ARGUMENT = {"length": "range", "language": "language", "regex": "pattern", "judge": "prompt"}
"""Argument that the text after the colon of a scorer stands for."""


def _runtime(spec: SpecFields) -> RuntimeSpec:
    one = spec.inner("runtimeRef")
    pod = spec.inner("template").inner("spec")
    containers = pod.values.get("containers")
    first: Mapping[str, Any] = {}
    if isinstance(containers, list) and containers and isinstance(containers[0], Mapping):
        first = containers[0]
    command = [str(part) for part in (*(first.get("command") or ()), *(first.get("args") or ()))]
    name = one.text("name") or ("process" if command else "builtin-generate")
    return RuntimeSpec(
        name=name,
        function=one.text("function"),
        url=one.text("url"),
        api_key_env=one.text("apiKeyEnv", "OPENAI_API_KEY"),
        concurrency=one.integer("concurrency", 8, 1),
        chunk=one.integer("chunk", 0),
        parameters=one.mapping("parameters"),
        command=tuple(command),
        working_dir=str(first.get("workingDir") or ""),
        image=str(first.get("image") or ""),
    )
