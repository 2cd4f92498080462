"""Extenders: servers outside the process that filter, score or vote.

The scheduler makes the connection; a policy only asks. There are two ways to ask:

* A :class:`NodeExtender` answers about nodes, in parallel to the decisions. An answer for
  one kind of pods and one node holds until a new one arrives, so no decision waits.
* An :class:`ExtenderClient` is asked in the middle of a decision, which waits for the
  answer. It answers, or reports that it cannot, within a time limit that holds for all
  requests of one round together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.spi import renamed
from windlass.spi.objects import Needs

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


@renamed.attributes
@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """Answer for one node: why it is rejected (empty: it is not), and its points."""

    rejection: str = ""
    points: float = 0.0


class NodeExtender(Protocol):
    """Known answers of an extender about nodes. It never blocks and asks in the background."""

    def verdicts(self, needs: Needs, nodes: Sequence[str]) -> Mapping[str, NodeVerdict]:
        """Return the known answers for such pods. Missing nodes are being asked about."""
        ...

    def has_news(self) -> bool:
        """Return whether there are new answers since the last call."""
        ...


class ExtenderCall(StrEnum):
    """Requests and notifications to an extender client."""

    OPEN = "onSessionOpen"
    """Notification before the first request of a round."""
    CLOSE = "onSessionClose"
    """Notification after the last request."""
    PREEMPTABLE = "preemptable"
    """Request: those of ``others`` that may be evicted for ``task``, in its own queue."""
    RECLAIMABLE = "reclaimable"
    """Request: the same, in other queues."""
    OVERUSED = "queueOverused"
    """Request: does ``queue`` hold so much that it is skipped."""
    ENQUEUEABLE = "jobEnqueueable"
    """Request: is ``group`` admitted."""
    ENQUEUED = "jobEnqueued"
    """Notification that ``group`` was admitted."""
    READY = "jobReady"
    """Request: may ``group`` start or grow with these ``placements``."""
    ALLOCATE = "allocateFunc"
    """Notification, which may be rejected, that ``task`` gets its node in ``placements``."""
    DEALLOCATE = "deallocateFunc"
    """Notification that ``task`` is evicted, or does not get the node announced before."""


@renamed.attributes
@dataclass(frozen=True, slots=True)
class ExtenderEndpoints:
    """Address of an extender and its endpoints.

    * ``predicate``, ``prioritize``, ``verbs``: last parts of the paths; empty or missing
      for calls that are not made.
    * ``timeout_seconds``: timeout of one request.
    * ``ignorable``: if it fails, it counts as not configured.
    * ``managed``: it applies only to pods that request one of these resources; empty for
      all pods.
    """

    url: str
    predicate: str = ""
    prioritize: str = ""
    timeout_seconds: float = 1.0
    ignorable: bool = False
    verbs: Mapping[ExtenderCall, str] = field(default_factory=dict)
    managed: frozenset[str] = frozenset()

    def applies_to(self, needs: Needs) -> bool:
        """Return whether it applies to such pods."""
        return not self.managed or any(name in self.managed for name, _ in needs.request)


@runtime_checkable
class TakesNodeExtender(Protocol):
    """A policy that asks a :class:`NodeExtender`."""

    endpoints: ExtenderEndpoints

    def take_node_extender(self, extender: NodeExtender) -> None:
        """Ask this one from now on. Without one, the policy does not apply."""
        ...


@renamed.attributes
@dataclass(frozen=True, slots=True)
class ExtenderRequest:
    """One request. Tasks, groups and queues are given by their keys.

    ``placements``: tasks with the nodes that they would get.
    """

    call: ExtenderCall
    task: str = ""
    others: tuple[str, ...] = ()
    group: str = ""
    queue: str = ""
    placements: tuple[tuple[str, str], ...] = ()


@renamed.attributes
@dataclass(frozen=True, slots=True)
class ExtenderReply:
    """Reply. The call determines which fields have a meaning.

    ``status``: above 0 for, below 0 against, 0 to abstain. ``named``: uids of tasks.
    ``rejection``: why not, as text.
    """

    status: int = 0
    yes: bool = False
    named: frozenset[str] = frozenset()
    rejection: str = ""


@dataclass(frozen=True, slots=True)
class ExtenderUnavailable:
    """Failure to get a reply. ``why``: its reason, as text.

    ``later``: the time of the round was used up, so the request was not sent. It can be
    sent in the next round.
    """

    why: str
    later: bool = False


class ExtenderClient(Protocol):
    """Client of an extender in the middle of a decision.

    Rounds do not nest. Requests are made inside rounds.
    """

    def open(self) -> None:
        """Begin a round."""
        ...

    def ask(self, request: ExtenderRequest) -> ExtenderReply | ExtenderUnavailable: ...

    def close(self) -> None:
        """End the round."""
        ...


@runtime_checkable
class TakesExtenderClient(Protocol):
    """A policy that asks an :class:`ExtenderClient`."""

    endpoints: ExtenderEndpoints

    def take_extender_client(self, client: ExtenderClient) -> None:
        """Ask this one from now on. Without one, the policy does not apply."""
        ...
