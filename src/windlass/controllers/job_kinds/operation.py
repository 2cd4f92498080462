"""Windlass as the operator of job kinds in a cluster: where no other operator runs.

The reconcilers of a family run while all its kinds are served and the setting ``controllers.jobKinds`` gives the
family to Windlass: ``auto`` where no Deployment of the family's own operator has replicas. Another operator that is
installed later is recognised when its Deployment appears; the reconcilers of the family then end before it is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from windlass.api.resources import DEPLOYMENTS, Resource
from windlass.client.client import Client
from windlass.client.served import is_served
from windlass.controllers.job_kinds.families import FAMILIES, FamilyContext, KindFamily
from windlass.controllers.job_kinds.operators import OperatorDeployment, decode_operator, owner_of
from windlass.controllers.runner import Reconciler
from windlass.kits.clock import Clock
from windlass.kits.tasks import sleep_or_wake
from windlass.observe import logs

PROBE_SECONDS = 60.0
"""Interval in seconds between checks for kinds that the server did not serve."""
AUTO = "auto"

log = logs.get("controllers")


class FamilyRunner(Protocol):
    """One reconciler at work."""

    async def run(self) -> None: ...

    def set_workers(self, workers: int) -> None: ...


def decide(
    families: Iterable[KindFamily],
    served: frozenset[Resource],
    operators: Iterable[OperatorDeployment],
    setting: Collection[str],
) -> dict[str, str]:
    """Return for each family why Windlass does not operate it; ``""``: Windlass operates it."""
    found = tuple(operators)
    reasons: dict[str, str] = {}
    for family in families:
        missing = [kind.qualified for kind in family.kinds if kind not in served]
        if missing:
            reasons[family.name] = f"not served: {', '.join(missing)}"
        elif family.name in setting:
            reasons[family.name] = ""
        elif AUTO not in setting:
            reasons[family.name] = f"the setting controllers.jobKinds is [{', '.join(setting)}]"
        elif owner := owner_of(family, found):
            reasons[family.name] = f"Deployment {owner} operates it"
        else:
            reasons[family.name] = ""
    return reasons


class JobKindOperation:
    """Starts and ends the reconcilers of families as their operators come and go."""

    def __init__(
        self,
        client: Client,
        context: FamilyContext,
        clock: Clock,
        start: Callable[[Reconciler], FamilyRunner],
        *,
        setting: Collection[str] = (AUTO,),
        families: tuple[KindFamily, ...] = FAMILIES,
    ) -> None:
        """``start`` makes the runner of a reconciler. ``setting``: value of ``controllers.jobKinds``."""
        self._client, self._context, self._clock, self._start = client, context, clock, start
        self._setting, self._families = setting, families
        self._operators = context.informers.informer(DEPLOYMENTS, decode=decode_operator)
        self._changed = asyncio.Event()
        self._operators.add_handler(self._wake, lambda old, new: self._wake(new), self._wake)
        self._served: frozenset[Resource] = frozenset()
        self._running: dict[str, tuple[list[FamilyRunner], list[asyncio.Task[None]]]] = {}
        self._made: dict[str, list[FamilyRunner]] = {}
        self.reasons: Mapping[str, str] = {}
        """Family → why Windlass does not operate it; ``""``: it does."""

    def _wake(self, _: OperatorDeployment) -> None:
        self._changed.set()

    @property
    def running(self) -> list[FamilyRunner]:
        return [runner for runners, _ in self._running.values() for runner in runners]

    async def run(self) -> None:
        """Work until cancelled. Raises what a reconciler's runner raises."""
        await self._operators.wait_synced()
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                await self._probe()
                self._follow(group)
                await sleep_or_wake(self._clock, PROBE_SECONDS, self._changed)

    async def _probe(self) -> None:
        """Find out which kinds are served. A kind stays served once it was found."""
        asked = [kind for family in self._families for kind in family.kinds if kind not in self._served]
        answers = await asyncio.gather(*(is_served(self._client, kind) for kind in asked))
        self._served |= {kind for kind, served in zip(asked, answers, strict=True) if served}

    def _follow(self, group: asyncio.TaskGroup) -> None:
        reasons = decide(self._families, self._served, self._operators.items.values(), self._setting)
        for family in self._families:
            reason = reasons[family.name]
            if self.reasons.get(family.name) != reason:
                log.info(
                    "job kinds", family=family.name, operated=not reason, why=reason or "no other operator"
                )
            if not reason and family.name not in self._running:
                self._begin(family, group)
            elif reason and family.name in self._running:
                for task in self._running.pop(family.name)[1]:
                    task.cancel()
        self.reasons = reasons

    def _begin(self, family: KindFamily, group: asyncio.TaskGroup) -> None:
        if family.name not in self._made:  # the caches of a family that ended stay, and so do its runners
            self._made[family.name] = [self._start(one) for one in family.reconcilers(self._context)]
        runners = self._made[family.name]
        tasks = [group.create_task(runner.run(), name=f"job kinds {family.name}") for runner in runners]
        self._running[family.name] = (runners, tasks)
