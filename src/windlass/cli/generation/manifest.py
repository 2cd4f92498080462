"""AIGCJob of ``windlass generate``."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import AIGC_JOBS
from windlass.api.validation.jobs.aigc import INLINE_BYTES

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_HEAD_BYTES = 1 << 20
"""Number of bytes of a file that are read to learn its columns."""
_EXAMPLE = "windlass generate products.csv --prompt 'Describe {name}'"


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
    gpus: int
    retries: int | None
    min_quality: float | None
    scorer: str
    queue: str
    priority: str
    inline: bool


def build(request: GenerationRequest, name: str, namespace: str) -> dict[str, Any]:
    """Return the object. Raises :class:`WindlassError` for a file that cannot be the input."""
    spec: dict[str, Any] = {
        "input": _input(request),
        "runtimeRef": _runtime(request),
        "outputs": {"path": output_path(request)},
    }
    if request.priority:
        spec["priorityClass"] = request.priority
    if request.queue:
        spec["queue"] = request.queue
    if request.model:
        spec["model"] = {"name": request.model}
    if request.command:
        spec["template"] = {
            "spec": {"containers": [{"name": "worker", "command": list(request.command)}]},
        }
    if request.group_by:
        spec["grouping"] = {"by": request.group_by}
    spec |= _workers(request.workers)
    if request.gpus:
        spec["resources"] = {"limits": {"nvidia.com/gpu": request.gpus}}
    if request.retries is not None:
        spec["items"] = {"retries": request.retries}
    quality: dict[str, Any] = {}
    if request.min_quality is not None:
        quality["min"] = request.min_quality
    if request.scorer:
        quality["scorer"] = request.scorer
    if quality:
        spec["outputs"]["quality"] = quality
    metadata = {"name": name, "namespace": namespace or "default"}
    return {
        "apiVersion": AIGC_JOBS.api_version,
        "kind": AIGC_JOBS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _input(request: GenerationRequest) -> dict[str, Any]:
    path = os.path.abspath(request.file)
    form = format_of(path)
    found: dict[str, Any] = {"source": "file", "format": form, "path": path}
    if request.inline:
        found = {"source": "inline", "format": form, "inline": _text(path)}
    _check_columns(request, path, form)
    if request.id_field:
        found["idField"] = request.id_field
    if request.prompt:
        found["prompt"] = request.prompt
    return found


def _check_columns(request: GenerationRequest, path: str, form: str) -> None:
    """Raise :class:`WindlassError` for a column that the first row does not have."""
    if form not in ("csv", "jsonl") or path.endswith(".gz"):
        return
    from windlass.items.prompts import Prompt, PromptError
    from windlass.items.rows import InputError, read

    wanted: list[tuple[str, str]] = []
    try:
        with open(path, "rb") as stream:
            first = next(iter(read(form, io.BytesIO(stream.read(_HEAD_BYTES)))), None)
        columns = set(first.values) if first is not None else set()
        if request.prompt and columns:
            wanted += [("--prompt", name) for name in Prompt(request.prompt).missing(columns | {"id"})]
    except (InputError, PromptError, OSError) as error:
        raise WindlassError("WL-GENERATE-400", f"{path}: {error}", remedies=(_EXAMPLE,)) from None
    if request.id_field and columns and request.id_field not in columns:
        wanted.append(("--id", request.id_field))
    if wanted:
        flag, name = wanted[0]
        raise WindlassError(
            "WL-GENERATE-422",
            f"{flag} names the column {name}, and the rows of {path} do not have it",
            evidence=f"columns: {', '.join(sorted(map(str, columns)))}",
            remedies=(f"head -2 {path}", _EXAMPLE),
        )


def format_of(path: str) -> str:
    """Return the format of an input. Raises :class:`WindlassError` for a file of another one."""
    if os.path.isdir(path):
        return "dir"
    if not os.path.isfile(path):
        raise WindlassError(
            "WL-GENERATE-404",
            f"there is no file {path}",
            evidence="the rows are read from a file, or from a folder with one row for each file",
            remedies=(f"ls -l {os.path.dirname(path)}", _EXAMPLE),
        )
    ending = os.path.splitext(path.removesuffix(".gz"))[1].lower()
    if ending not in FORMATS:
        raise WindlassError(
            "WL-GENERATE-400",
            f"{path} is not a file of rows: its name ends with {ending or 'no known ending'}",
            evidence=f"files of rows end with {', '.join(FORMATS)}",
            remedies=(_EXAMPLE,),
        )
    return FORMATS[ending]


def _text(path: str) -> str:
    """Return the rows of a file that travels with the job."""
    size = os.path.getsize(path)
    if os.path.isdir(path) or size > INLINE_BYTES:
        raise WindlassError(
            "WL-GENERATE-413",
            f"{path} is on this machine, and the cluster does not see it",
            evidence=f"files of up to {INLINE_BYTES} bytes travel with the job; this one has {size}",
            remedies=(
                "kubectl explain aigcjob.spec.input   (source: pvc, http or s3)",
                f"{_EXAMPLE} --dry-run",
            ),
        )
    with open(path, encoding="utf-8", newline="") as stream:
        return stream.read()


def _runtime(request: GenerationRequest) -> dict[str, Any]:
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
            remedies=(f"{_EXAMPLE} --url http://127.0.0.1:8000/v1",),
        )
    name = request.runtime or (chosen[0] if chosen else "")
    if not name and request.model:
        raise WindlassError(
            "WL-USE-400",
            f"nothing is given that runs the model {request.model}",
            evidence="--url is an OpenAI-compatible server, --function a Python function, "
            "and everything after -- a command that reads and writes rows",
            remedies=(
                f"{_EXAMPLE} --model {request.model} --url http://127.0.0.1:8000/v1",
                f"{_EXAMPLE} --model {request.model} --runtime builtin-generate   (texts for trying)",
            ),
        )
    found: dict[str, Any] = {"name": name or "builtin-generate"}
    if request.url:
        found["url"] = request.url
    if request.function:
        found["function"] = request.function
    return found


def output_path(request: GenerationRequest) -> str:
    """Return the absolute path of the outputs: in the folder of the input if none is given."""
    if request.output:
        return os.path.abspath(request.output)
    path = os.path.abspath(request.file)
    stem = os.path.splitext(path.removesuffix(".gz"))[0]
    return f"{stem}.out.jsonl"


def _workers(text: str) -> dict[str, Any]:
    """Return the fields for ``N`` or ``MIN-MAX`` workers."""
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
