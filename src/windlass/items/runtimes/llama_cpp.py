"""Runtime ``llama-cpp``: a GGUF model in the process of the worker, by the package ``xllamacpp``.

The engine loads the model once and answers OpenAI's chat completions on a port of the
loopback interface; rows are sent as those of the runtime ``openai`` are.

Parameters: ``file`` (path of the model; default: the ``.gguf`` file of ``spec.model``),
``threads``, ``contextTokens`` (2048 for each concurrent request), ``gpuLayers`` (default:
as many as fit). All others are parameters of a request: ``max_tokens``, ``temperature`` …
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.api.fields.aigc import LLAMA_CPP_PACKAGE
from windlass.items.runtimes.base import (
    MODEL_PATH,
    LeasedRow,
    RowOutcome,
    RuntimeContext,
    SetupError,
    WorkBatch,
)
from windlass.items.runtimes.openai_server import OpenAIRuntime

CONTEXT_TOKENS = 2048
"""Default of ``parameters.contextTokens``: prompt and answer of one request together."""
_OWN = ("file", "threads", "contextTokens", "gpuLayers")


class LlamaCppRuntime:
    """Runtime ``llama-cpp``."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._engine: Any = None
        self._requests: OpenAIRuntime | None = None

    def setup(self) -> None:
        """Load the model. Raises :class:`SetupError` without the engine, or for a file that is no model."""
        runtime = self._context.batch.runtime
        path = model_file(runtime.parameters.get("file"), self._context.environment.get(MODEL_PATH, ""))
        try:
            import xllamacpp  # type: ignore[import-not-found]
        except ImportError as error:
            raise SetupError(
                f"the runtime llama-cpp needs the package {LLAMA_CPP_PACKAGE} where the worker runs: "
                f"pip install {LLAMA_CPP_PACKAGE}"
            ) from error
        engine: Any = xllamacpp
        settings = engine.CommonParams()
        settings.model.path = str(path)
        settings.verbosity = -1
        settings.n_parallel = runtime.concurrency
        tokens = int(runtime.parameters.get("contextTokens", CONTEXT_TOKENS))
        settings.n_ctx = tokens * runtime.concurrency
        settings.cpuparams.n_threads = int(runtime.parameters.get("threads", _cpus()))
        if "gpuLayers" in runtime.parameters:
            settings.n_gpu_layers = int(runtime.parameters["gpuLayers"])
        try:
            self._engine = engine.Server(settings)
        except RuntimeError as error:
            raise SetupError(f"{path} cannot be loaded as a GGUF model: {error}") from error
        rest = {name: value for name, value in runtime.parameters.items() if name not in _OWN}
        server = replace(runtime, url=f"{self._engine.listening_address}/v1", parameters=rest)
        batch = replace(self._context.batch, runtime=server)
        self._requests = OpenAIRuntime(replace(self._context, batch=batch))

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        assert self._requests is not None, "setup comes first"
        yield from self._requests.process(batch)

    @property
    def concurrency(self) -> int:
        """Maximum number of requests at the same time."""
        return self._context.batch.runtime.concurrency

    def request(self, item: LeasedRow, model: str) -> RowOutcome:
        """Send one row to the model."""
        assert self._requests is not None, "setup comes first"
        return self._requests.request(item, model)

    def teardown(self) -> None:
        if self._requests is not None:
            self._requests.teardown()
        self._engine = None


def model_file(named: object, folder: str) -> Path:
    """Return the file of the model. Raises :class:`SetupError` if there is none, or more than one."""
    if named:
        path = Path(str(named))
        if not path.is_file():
            raise SetupError(f"runtimeRef.parameters.file: there is no file {path}")
        return path
    if not folder:
        raise SetupError("the runtime llama-cpp needs spec.model.source or runtimeRef.parameters.file")
    found = sorted(Path(folder).rglob("*.gguf"))
    # A model in parts is loaded by its first part.
    heads = [path for path in found if "-of-" not in path.name or "-00001-of-" in path.name]
    if len(heads) != 1:
        names = ", ".join(path.name for path in heads) or "none"
        raise SetupError(
            f"the model must have one .gguf file, and has {names}: name one by runtimeRef.parameters.file"
        )
    return heads[0]


def _cpus() -> int:
    return len(os.sched_getaffinity(0))
