"""Values that pass between the rules of the ledger and its storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class ItemState(IntEnum):
    """State of one item. ``LEASED`` exists in memory only: leases are stored apart.

    So does ``HELD``: the item has not left the stage before yet.
    """

    PENDING = 0
    LEASED = 1
    DONE = 2
    DEAD = 3
    HELD = 4


class Flag(IntEnum):
    """Judgement of a good output."""

    NONE = 0
    LOW = 1
    BRANCH = 2


PROGRAM, INFRASTRUCTURE, PERMANENT = "program", "infrastructure", "permanent"
"""Kinds of errors: of the program (retried), of the machine, and not worth a retry."""


@dataclass(slots=True)
class ItemResult:
    """Result of one item as a worker reports it.

    ``row``: the output as JSON, empty for an error. ``score``: NaN without a score.
    ``kept``: output that an error row keeps, since only its scorer failed.
    """

    number: int
    row: bytes = b""
    score: float = float("nan")
    seconds: float = 0.0
    kind: str = ""
    reason: str = ""
    message: str = ""
    kept: bytes = b""


@dataclass(slots=True)
class ItemChange:
    """New values of one item, to be stored.

    ``row`` is set for a new output, and for an item that was given up but keeps its output.

    ``group``: new group; ``None``: it stays.
    """

    number: int
    state: ItemState
    attempts: int
    losses: int
    score: float = float("nan")
    seconds: float = 0.0
    flag: Flag = Flag.NONE
    group: int | None = None
    reason: str = ""
    message: str = ""
    row: bytes = b""

    @property
    def has_row(self) -> bool:
        """Return whether a row is to be stored with the item."""
        return self.state == ItemState.DONE or bool(self.row)


@dataclass(slots=True)
class ItemLease:
    """Items that one worker processes until ``expires`` (monotonic seconds).

    ``items``: numbers without a result yet, in the order of processing. ``size``: number of
    items at the start. ``copy``: second copy of items that another lease has, too.
    ``alone``: no other item may be processed at the same time, since it may end its worker.
    """

    id: str
    worker: str
    instance: str
    group: int
    items: dict[int, None]
    started: float
    expires: float
    size: int
    copy: bool = False
    alone: bool = False
    revoked: set[int] = field(default_factory=set)


@dataclass(slots=True)
class WorkerRecord:
    """Worker as the ledger knows it. ``group``: group of its last lease, or -1."""

    instance: str
    seen: float
    group: int = -1


@dataclass(slots=True)
class LedgerEffects:
    """Changes to store after one call."""

    items: list[ItemChange] = field(default_factory=list)
    leases: list[ItemLease] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.items or self.leases or self.ended)


@dataclass(slots=True)
class ItemGroup:
    """Group of items, as it was admitted."""

    number: int
    name: str
    weight: float = 1.0
    priority: int = 0
    parallelism: int = 0
    deadline: float = 0.0
    model: str = ""
