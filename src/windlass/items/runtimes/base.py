"""Interface of a runtime: set up once, process batches, tear down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from windlass.items.spec import SHARD, BatchSpec

MODEL_PATH = "WINDLASS_MODEL_PATH"
"""Environment variable: folder with the files of the job's model."""
PEER_SECONDS = 5.0
"""Time that rank 0 with a failed program waits for the end of its worker (seconds).

A program that fails because another rank was lost does not count as a failure of its row.
"""
PROGRAM, INFRASTRUCTURE, PERMANENT = "program", "infrastructure", "permanent"
"""Kinds of errors, as :mod:`windlass.items.ledger.changes` has them."""


class SetupError(RuntimeError):
    """A runtime that cannot work at all: the worker ends with an error."""


class ReplicaEnded(RuntimeError):
    """End of the program of rank 0: all ranks of the worker have to start again."""


class WorkerStopped(BaseException):
    """Raised inside a runtime when the worker was told to end."""


@dataclass(slots=True)
class LeasedRow:
    """Item of a batch. ``prompt`` is empty if the job has no prompt and the row has none."""

    number: int
    row: dict[str, Any]
    attempt: int
    prompt: str = ""


@dataclass(slots=True)
class RowOutcome:
    """Result of one item: ``output``, or an error of ``kind``."""

    number: int
    output: dict[str, Any] | None = None
    seconds: float = 0.0
    kind: str = ""
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class WorkBatch:
    """Leased items. ``dropped``: numbers that need not be processed any more.

    ``dropped`` grows while the batch is processed: another worker has taken over these
    items. ``lost``: the whole lease has ended.
    """

    items: list[LeasedRow]
    group: str = ""
    model: str = ""
    dropped: set[int] = field(default_factory=set)
    lost: bool = False

    def left(self) -> Iterator[LeasedRow]:
        """Return the items that are still wanted, one after the other."""
        for item in self.items:
            if self.lost:
                return
            if item.number not in self.dropped:
                yield item


class Runtime(Protocol):
    """Runtime of a worker."""

    def setup(self) -> None:
        """Load what all batches need. Raises :class:`SetupError`."""
        ...

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        """Return outcomes as they come. Items without an outcome are leased again."""
        ...

    def teardown(self) -> None: ...


@runtime_checkable
class RequestRuntime(Runtime, Protocol):
    """Runtime that processes each row by a request of its own, several at the same time."""

    @property
    def concurrency(self) -> int:
        """Maximum number of rows that are processed at the same time."""
        ...

    def request(self, item: LeasedRow, model: str) -> RowOutcome:
        """Process one row. Called by several threads."""
        ...


_ENDING = frozenset({"ProcessExited", "Timeout"})
"""Reasons of failures after which the program of rank 0 is gone, or out of step with the other ranks."""
_BY_PEERS = frozenset(
    {"RuntimeError", "DistBackendError", "DistNetworkError", "ConnectionError", "EOFError", "OSError"}
    | {"ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "BrokenPipeError"}
    | {"TimeoutError"}
)
"""Exceptions of a Python function that the loss of another rank may have caused."""


@dataclass(frozen=True)
class RuntimeContext:
    """Settings of a runtime. ``monotonic`` and ``pause`` come from the worker's clock.

    ``tell``: reports reason and message of what delays rows, before any of them has failed.
    """

    batch: BatchSpec
    environment: Mapping[str, str]
    monotonic: Callable[[], float]
    pause: Callable[[float], None]
    tell: Callable[[str, str], None] = lambda reason, message: None


def output_row(row: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return the output row of what a function returned, with the ``id`` of the input row."""
    if isinstance(value, Mapping):
        found = {"id": row["id"], **value}
    elif isinstance(value, str):
        found = {"id": row["id"], "text": value}
    else:
        found = {"id": row["id"], "output": value}
    found["id"] = row["id"]
    return found


def create(context: RuntimeContext) -> Runtime:
    """Return the runtime of a batch."""
    runtime = _create(context)
    if SHARD in context.environment:
        runtime = _Leading(runtime, context)
    if not context.batch.carries:
        return runtime
    return _CarryingRequests(runtime) if isinstance(runtime, RequestRuntime) else _Carrying(runtime)


class _Leading:
    """Runtime of rank 0: its program does not start again alone, since other ranks belong to it."""

    def __init__(self, runtime: Runtime, context: RuntimeContext) -> None:
        self._runtime, self._context = runtime, context
        self.setup, self.teardown = runtime.setup, runtime.teardown

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        for outcome in self._runtime.process(batch):
            ended = outcome.reason in _ENDING
            if ended or outcome.reason in _BY_PEERS:
                self._context.pause(PEER_SECONDS)  # told to end meanwhile, the row goes back as it is
            yield outcome
            if ended:
                raise ReplicaEnded(f"{outcome.reason}: all ranks of the worker start again")


class _Carrying:
    """Runtime of a stage before the last: outputs keep the fields of their input rows."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.setup, self.teardown = runtime.setup, runtime.teardown

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        rows = {item.number: item.row for item in batch.items}
        for outcome in self._runtime.process(batch):
            if outcome.output is not None:
                outcome.output = {**rows[outcome.number], **outcome.output}
            yield outcome


class _CarryingRequests(_Carrying):
    """The same for a runtime that sends requests."""

    def __init__(self, runtime: RequestRuntime) -> None:
        super().__init__(runtime)
        self._requests, self.concurrency = runtime, runtime.concurrency

    def request(self, item: LeasedRow, model: str) -> RowOutcome:
        outcome = self._requests.request(item, model)
        if outcome.output is not None:
            outcome.output = {**item.row, **outcome.output}
        return outcome


def _create(context: RuntimeContext) -> Runtime:
    """Import the module of a runtime here, so that others cost nothing."""
    name = context.batch.runtime.name
    if name == "process":
        from windlass.items.runtimes.process import ProcessRuntime

        return ProcessRuntime(context)
    if name == "python":
        from windlass.items.runtimes.python_function import PythonRuntime

        return PythonRuntime(context)
    if name == "openai" and context.batch.server is not None:
        from windlass.items.runtimes.node_server import NodeServerRuntime

        return NodeServerRuntime(context)
    if name == "openai":
        from windlass.items.runtimes.openai_server import OpenAIRuntime

        return OpenAIRuntime(context)
    if name == "llama-cpp":
        from windlass.items.runtimes.llama_cpp import LlamaCppRuntime

        return LlamaCppRuntime(context)
    from windlass.items.runtimes.builtin_generate import GenerateRuntime, NoopRuntime

    if name == "noop":
        return NoopRuntime()
    if name == "builtin-generate":
        return GenerateRuntime(context)
    raise SetupError(f"the runtime {name!r} is not known")
