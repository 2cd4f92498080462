"""Checks of a batch that need no worker: what is wrong is told before a GPU is bound."""

from __future__ import annotations

import io
import os
import re

from windlass.items import expressions, object_store, prompts
from windlass.items.context.spec import FIELD
from windlass.items.quality import arguments as scorer_arguments
from windlass.items.rows import DUPLICATE_ID, Identities, InputError, read
from windlass.items.spec import RUNTIMES, SCORERS, BatchSpec, RuntimeSpec
from windlass.items.stages.batches import admitted_batch

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_MAX_LISTED = 5
"""Maximum number of bad rows that are listed."""
Found = list[tuple[str, str]]


def find(batch: BatchSpec) -> Found:
    """Return pairs of path and message."""
    found: Found = []
    _check_input(admitted_batch(batch), found)
    _check_expressions(batch, found)
    _check_outputs(batch, found)
    _check_runtime(batch, found)
    _check_quality(batch, found)
    if batch.context is not None and batch.stages:
        why = "rows of a job with stages get no context: run the stages before it as jobs of their own"
        found.append(("spec.contextCache", f"Forbidden: {why}"))
    return found


def _check_input(batch: BatchSpec, found: Found) -> None:
    given = batch.input
    needs = {
        "inline": ("inline", given.inline),
        "file": ("path", given.path),
        "http": ("url", given.url),
        "s3": ("url", given.url),
        "configMap": ("configMap.key", given.key),
    }
    name, value = needs.get(given.source, ("", "x"))
    if not value and not (given.source == "inline" and given.inline == ""):
        found.append((f"spec.input.{name}", f'Required value: source is "{given.source}"'))
    if given.source == "inline":
        if not given.inline.strip():
            found.append(("spec.input.inline", "Required value: there is no row"))
        else:
            _check_inline(batch, found)
    if given.source == "file" and given.path and not os.path.isabs(given.path):
        found.append(("spec.input.path", f"Invalid value: {given.path!r}: must be an absolute path"))
    if given.source == "inline" and given.format in ("dir", "parquet"):
        found.append(("spec.input.format", f'Invalid value: "{given.format}": inline rows are jsonl or csv'))
    if given.source == "http" and given.url and not given.url.startswith(("http://", "https://")):
        found.append(("spec.input.url", f"Invalid value: {given.url!r}: must begin with http:// or https://"))


def _prompt(batch: BatchSpec, found: Found) -> prompts.Prompt | None:
    try:
        return prompts.Prompt(batch.input.prompt) if batch.input.prompt else None
    except prompts.PromptError as error:
        found.append(("spec.input.prompt", f"Invalid value: {error}"))
        return None


def _check_inline(batch: BatchSpec, found: Found) -> None:
    prompt = _prompt(batch, found)
    identities = Identities(batch.input.id_field)
    duplicates: list[str] = []
    columns: set[str] = set()
    count = 0
    if batch.input.format not in ("jsonl", "csv"):
        return
    try:
        for row in read(batch.input.format, io.BytesIO(batch.input.inline.encode())):
            count += 1
            identities.assign(row)
            columns.update(row.values)
            if row.error.startswith(DUPLICATE_ID):
                duplicates.append(f"row {row.number}: {row.error}")
    except InputError as error:
        found.append(("spec.input.inline", f"Invalid value: {error}"))
        return
    for text in duplicates[:_MAX_LISTED]:
        found.append(("spec.input.inline", f"Duplicate value: {text}"))
    if len(duplicates) > _MAX_LISTED:
        found.append(("spec.input.inline", f"Duplicate value: {len(duplicates) - _MAX_LISTED} further rows"))
    if not count:
        found.append(("spec.input.inline", "Required value: there is no row"))
    elif prompt is not None and columns:
        given = {"id"} if batch.context is None else {"id", FIELD}
        for name in prompt.missing(columns | given):
            known = ", ".join(sorted(columns))
            text = f"Invalid value: no row has the column {name!r}: the rows have {known}"
            found.append(("spec.input.prompt", text))


def _check_expressions(batch: BatchSpec, found: Found) -> None:
    if batch.input.source != "inline" or admitted_batch(batch) is not batch:
        _prompt(batch, found)
    for path, text in (
        ("grouping.by", batch.grouping.by),
        ("grouping.weightField", batch.grouping.weight_field),
        ("contextCache.key", batch.context.key if batch.context is not None else ""),
    ):
        if not text:
            continue
        try:
            expressions.compile_expression(text)
        except expressions.ExpressionError as error:
            found.append((f"spec.{path}", f"Invalid value: {error}"))


def _check_outputs(batch: BatchSpec, found: Found) -> None:
    path = batch.outputs.path
    if object_store.is_url(path):
        bucket, _, key = path.partition("://")[2].partition("/")
        if not bucket or not key:
            scheme = path.partition("://")[0]
            text = f"Invalid value: {path!r}: names no object: write {scheme}://BUCKET/KEY"
            found.append(("spec.outputs.path", text))
    elif path and not os.path.isabs(path):
        text = f"Invalid value: {path!r}: must be an absolute path, or s3://BUCKET/KEY"
        found.append(("spec.outputs.path", text))
    if batch.items.dead_letter_path and not os.path.isabs(batch.items.dead_letter_path):
        path = batch.items.dead_letter_path
        found.append(("spec.items.deadLetter.path", f"Invalid value: {path!r}: must be an absolute path"))


def _check_runtime(batch: BatchSpec, found: Found) -> None:
    if not batch.stages:
        _check_one_runtime(batch.runtime, "spec", found, batch.server is not None)
    for index, stage in enumerate(batch.stages):
        _check_one_runtime(stage.runtime, f"spec.stages[{index}]", found, batch.server is not None)


def _check_one_runtime(runtime: RuntimeSpec, path: str, found: Found, served: bool) -> None:
    """Find problems of a runtime. ``served``: the workers of a node start the server themselves."""
    if runtime.name not in RUNTIMES:
        options = ", ".join(f'"{name}"' for name in sorted(RUNTIMES))
        message = f'Unsupported value: "{runtime.name}": supported values: {options}'
        found.append((f"{path}.runtimeRef.name", message))
    if runtime.name == "process" and not runtime.command:
        message = "Required value: the runtime process runs the command of the first container"
        found.append((f"{path}.template.spec.containers[0].command", message))
    if runtime.name == "python" and not _FUNCTION.fullmatch(runtime.function):
        message = f"Invalid value: {runtime.function!r}: must be module:function"
        found.append((f"{path}.runtimeRef.function", message))
    if runtime.name == "openai" and not served and not runtime.url.startswith(("http://", "https://")):
        message = f"Invalid value: {runtime.url!r}: must be the base URL of the server"
        found.append((f"{path}.runtimeRef.url", f"{message}, for example http://llm:8000/v1"))


def _check_quality(batch: BatchSpec, found: Found) -> None:
    quality = batch.outputs.quality
    if quality is None or not quality.scorer:
        return
    if quality.scorer not in SCORERS and not _FUNCTION.fullmatch(quality.scorer):
        options = ", ".join(f'"{name}"' for name in sorted(SCORERS))
        message = f'Unsupported value: "{quality.scorer}": supported values: {options}, or module:function'
        found.append(("spec.outputs.quality.scorer", message))
        return
    runtime = batch.stages[-1].runtime if batch.stages else batch.runtime
    try:
        scorer_arguments.check(quality, runtime.url)
    except ValueError as error:
        found.append(("spec.outputs.quality.scorer", f"Invalid value: {error}"))
