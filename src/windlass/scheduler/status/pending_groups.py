"""The groups that wait, and what is shown of why. A reason is told once a group has waited for ``quiet_seconds``, with
other words at most every ``rewrite_seconds``; the gang whose pods still come, or should in a rush, is not told to lack
some for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api.reasons import Explanation, Reason
from windlass.scheduler.status.writer_context import StatusWriterContext

GROWING_SECONDS = 5.0
"""For so long a gang whose pods keep coming is not told to lack some."""
NEAR = 50
"""Of so many first of a queue the position is kept up to date."""
HOPELESS = 100
"""Of so many without one, of all queues, the figures are."""


@dataclass(slots=True)
class PendingGroup:
    """A waiting group. ``told`` is what is shown, with all details; ``basis`` the short form that it was
    made for; ``at`` the (monotonic) moment of its writing."""

    current: Explanation
    since: float
    due: float
    queue: str = ""
    basis: Explanation | None = None
    told: Explanation | None = None
    at: float = 0.0
    pods_code: Reason | None = None
    pods_reason: str = ""
    pods_number: int = 0
    """Of so many pods that wait it was told."""
    pods_message: str = ""
    lacks_nodes: bool = False
    """By what it is told, more nodes would help, and nothing else is in the way."""
    whole: bool = False
    """Its nodes are asked for as a whole."""
    pods_at: float = 0.0


class PendingGroups:
    """What writes it wishes are of keys ``group NS/NAME``."""

    def __init__(self, context: StatusWriterContext) -> None:
        self._context = context
        self._waits: dict[str, PendingGroup] = {}
        self._near: dict[str, set[str]] = {}
        self._hopeless: set[str] = set()
        """Some of those that have no place in a queue, as nothing that ends would help them."""
        self._reasons: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._waits

    def of(self, key: str) -> PendingGroup | None:
        """A group that waits."""
        return self._waits.get(key)

    def lacks_nodes(self, key: str) -> bool | None:
        """Whether a group is told to lack nodes and nothing else; ``None``: it waits, and is not told why yet."""
        wait = self._waits.get(key)
        if wait is None:
            return False
        return None if wait.told is None else wait.lacks_nodes

    def items(self) -> Iterable[tuple[str, PendingGroup]]:
        """All that wait, by group."""
        return self._waits.items()

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many groups wait, by reason; a reason that nothing waits for any more stays with 0."""
        return self._reasons

    def explain(self, key: str, explanation: Explanation | None) -> None:
        """Why a group waits; ``None``: it does not."""
        wait = self._waits.get(key)
        if explanation is None:
            if wait is not None:
                self.end(key)
                if wait.told is not None:
                    self._context.wish(f"group {key}")
        elif wait is None:
            quiet, now = self._context.options.quiet_seconds, self._context.clock.monotonic()
            self._waits[key] = PendingGroup(explanation, now, now + quiet)
            self._count(explanation, 1)
            self._context.wish(f"group {key}", quiet)
        elif explanation != wait.current:
            self._count(wait.current, -1)
            self._count(explanation, 1)
            wait.current = explanation
            if wait.told is not None:
                self.renew(key)
            elif explanation.code is Reason.WAITING_FOR_MEMBERS:
                quiet = self._context.clock.monotonic() + self._context.options.quiet_seconds
                wait.due = max(wait.due, min(quiet, wait.since + GROWING_SECONDS))

    def put_off(self, key: str) -> None:
        """In a rush pods come slowly because they are many: a gang that still gets its own is not told yet."""
        wait, now = self._waits.get(key), self._context.clock.monotonic()
        if wait is None or wait.told is not None or wait.current.code is not Reason.WAITING_FOR_MEMBERS:
            return
        if wait.due <= now and self._context.rush():
            wait.due = min(now + self._context.options.quiet_seconds, wait.since + GROWING_SECONDS)

    def renew_near(self, queue: str) -> None:
        """The figures of a queue changed: and so, perhaps, who is how near to the front."""
        for key in self._near.get(queue, ()):
            self.renew(key)

    def renew_all_near(self) -> None:
        """Nodes came, left or changed: whom that does not help has other figures now."""
        for keys in (*self._near.values(), self._hopeless):
            for key in keys:
                self.renew(key, self._context.options.pod_rewrite_seconds)

    def renew(self, key: str, calm: float = 0.0) -> None:
        """Look again at what is shown of a group, when its time has come: ``calm`` seconds after it was told last, or
        as the options say."""
        wait = self._waits[key]
        now = self._context.clock.monotonic()
        if not calm:
            same = wait.told is not None and wait.told.code is wait.current.code
            calm = self._context.options.rewrite_seconds if same else self._context.options.quiet_seconds
        due = max(now, wait.at + calm)
        wait.due = due if wait.basis is not None else max(now, min(due, wait.due))
        wait.basis = None
        self._context.wish(f"group {key}", wait.due - now)

    def end(self, key: str) -> None:
        """The group waits no more."""
        wait = self._waits.pop(key, None)
        if wait is not None:
            self._count(wait.current, -1)
            self._near.get(wait.queue, set()).discard(key)
            self._hopeless.discard(key)

    def _count(self, explanation: Explanation, change: int) -> None:
        code = str(explanation.code)
        self._reasons[code] = self._reasons.get(code, 0) + change

    def tell(self, key: str) -> Explanation | None:
        """What may be shown of a group's waiting now."""
        wait = self._waits.get(key)
        if wait is None:
            return None
        now = self._context.clock.monotonic()
        if wait.basis is wait.current:
            return wait.told
        if now < wait.due:
            self._context.wish(f"group {key}", wait.due - now)
            return wait.told
        wait.basis, wait.told, wait.at = wait.current, self._context.explain(key) or wait.current, now
        self._near.get(wait.queue, set()).discard(key)
        self._hopeless.discard(key)
        if not wait.told.position and len(self._hopeless) < HOPELESS:
            self._hopeless.add(key)
        if wait.told.position and wait.told.position <= NEAR:
            wait.queue = self._context.model.queue_of(key)
            self._near.setdefault(wait.queue, set()).add(key)
        return wait.told
