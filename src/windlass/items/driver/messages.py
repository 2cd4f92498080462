"""Requests and responses of the driver's API."""

from __future__ import annotations

import msgspec

from windlass.items.ledger.changes import ItemResult


class LeaseRequest(msgspec.Struct, frozen=True):
    """Body of all requests of a worker but commits. ``wait``: seconds to wait for items.

    ``busy``: the worker still processes items of other leases.
    ``model``: where the files of the model came from (:mod:`windlass.items.worker.model`).
    ``message``: what delays rows, for ``reason``, before any of them has failed.
    """

    worker: str
    instance: str
    wait: float = 0.0
    busy: bool = False
    lease: str = ""
    leases: list[str] = []
    leave: bool = False
    reason: str = ""
    message: str = ""
    model: str = ""


class ResultError(msgspec.Struct, frozen=True):
    """Error of one item. ``kind``: ``program``, ``infrastructure`` or ``permanent``."""

    message: str
    kind: str = "program"
    reason: str = "Error"


class ResultMessage(msgspec.Struct, frozen=True):
    """Result of one item: ``row`` is the output, or ``error`` is set.

    With both, the row is an error, and ``row`` is kept in it.
    """

    n: int
    row: msgspec.Raw = msgspec.Raw(b"")
    error: ResultError | None = None
    score: float | None = None
    seconds: float = 0.0

    def result(self) -> ItemResult:
        """Return the result as the ledger takes it."""
        score, row, error = float("nan") if self.score is None else self.score, bytes(self.row), self.error
        if row and error is None:
            return ItemResult(self.n, row, score, self.seconds)
        if error is None:
            return ItemResult(self.n, reason="NoOutput", message="the worker sent neither a row nor an error")
        told = {"kind": error.kind, "reason": error.reason, "message": error.message}
        return ItemResult(self.n, seconds=self.seconds, kept=row, **told)


class CommitRequest(msgspec.Struct, frozen=True):
    """Results of a part of a lease. ``seconds``: time that they took together."""

    worker: str
    instance: str
    lease: str
    results: list[ResultMessage]
    seconds: float = 0.0


class RetryRequest(msgspec.Struct, frozen=True):
    """Dead letters to try again: those with these ids, all of them without ids."""

    ids: list[str] = []


class LeasedItem(msgspec.Struct, frozen=True):
    """Item of a lease with its input row."""

    n: int
    attempt: int
    row: msgspec.Raw


class LeaseResponse(msgspec.Struct, frozen=True):
    """Answer to a request of items.

    ``finished``: the worker may end. ``alone``: nothing else may be processed at the same time.
    """

    lease: str = ""
    items: list[LeasedItem] = []
    group: str = ""
    model: str = ""
    finished: bool = False
    alone: bool = False


class CommitResponse(msgspec.Struct, frozen=True):
    """Answer to results. ``revoked``: items that the worker need not process any more."""

    accepted: int = 0
    lost: bool = False
    revoked: list[int] = []


class HeartbeatResponse(msgspec.Struct, frozen=True):
    """Answer to a heartbeat: leases that are lost, and items taken from the others."""

    lost: list[str] = []
    revoked: dict[str, list[int]] = {}


class EndRequest(msgspec.Struct, frozen=True):
    """Request to end with the rows that are done. ``message``: why the job has failed."""

    message: str = ""


class QueryRequest(msgspec.Struct, frozen=True):
    """Queries by the name of their metric. ``address``: URL of the server."""

    address: str
    queries: dict[str, str]
