"""A guest of the live faults whose gangs share time: some are suspended for others, leave whole and come back whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from base_load import pod
from extra_workloads import Guest, Stage
from pod_log import GPU
from realkube import RealKube

from windlass.api.annotations import CHECKPOINT_EVERY, TIME_SHARE
from windlass.api.resources import QUEUES

Json = dict[str, Any]
QUICK_SHARE = Path(__file__).parent / "quickshare"
"""On the path of every scheduler of the live faults: minutes of time-sharing are seconds where it is named."""
MEMBERS = 4


class TimeShared(Guest):
    """A queue that is full of two gangs, of which one saves its work whenever it is stopped and the other says nothing,
    and gangs that come later and have to find their room there: they run on until those have run. Their owner makes
    the pods of a gang that was suspended anew, once all of them are gone."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "timeshared")
        self._running = {f"{self.name}-saves": 0, f"{self.name}-loses": 0}
        """Gang → how often it was made anew."""
        self._begun: set[str] = set()
        self._later = {f"{self.name}-{number}": stage.rng.randint(2, MEMBERS) for number in range(2)}
        for gang in self._running:
            self.minima[self._label(gang)] = MEMBERS
            stage.books.stays.add(self._label(gang))
        self.minima |= self._later
        self.acts = [
            (0.0, self._make_queue),
            *((stage.moment(0, 0.2), lambda g=gang: self._begin(g)) for gang in self._running),  # type: ignore[misc]
            *((stage.moment(0.5, 1.0), lambda g=gang: self._come(g)) for gang in self._later),  # type: ignore[misc]
        ]

    def scheduler_options(self, kube: RealKube) -> list[str]:
        config = kube.folder / "quickshare.json"
        config.write_text(json.dumps({"plugins": [{"name": "quickshare"}]}))
        return [f"--config={config}"]

    def _label(self, gang: str) -> str:
        """By which the books know the pods that it has now."""
        times = self._running[gang]
        return f"{gang}-again-{times}" if times else gang

    def _make_queue(self) -> None:
        spec = {"weight": 1, "capability": {GPU: str(MEMBERS * len(self._running))}}
        self.stage.client.make(QUEUES, {"metadata": {"name": self.name}, "spec": spec}, "")

    def _begin(self, gang: str) -> None:
        saves = {CHECKPOINT_EVERY: "0s"} if gang.endswith("saves") else {}
        pods = []
        for rank in range(MEMBERS):
            one = pod(gang, rank, 1)
            one["metadata"]["labels"]["gang"] = self._label(gang)
            pods.append(one)
        notes = {TIME_SHARE: "true", **saves}
        self.stage.gang(gang, pods, MEMBERS, notes=notes, queue=self.name)
        self._begun.add(gang)

    def _come(self, gang: str) -> None:
        pods = [pod(gang, rank, 1) for rank in range(self._later[gang])]
        notes = {TIME_SHARE: "true", CHECKPOINT_EVERY: "0s"}
        self.stage.gang(gang, pods, self._later[gang], notes=notes, queue=self.name)

    def keep(self) -> None:
        books = self.stage.books
        with self.stage.log.lock:
            if all(len(books.placed.get(gang, ())) >= least for gang, least in self._later.items()):
                books.stays -= {self._label(gang) for gang in self._running}
            gone = [gang for gang in self._begun if self._is_suspended(gang)]
            gone = [gang for gang in gone if not books.living.get(self._label(gang))]
        for gang in gone:
            self._again(gang)

    def _is_suspended(self, gang: str) -> bool:
        return self._label(gang) in self.stage.books.broken

    def _again(self, gang: str) -> None:
        before = self._label(gang)
        self.stage.take_back(before)
        self._running[gang] += 1
        books = self.stage.books
        with self.stage.log.lock:
            books.minima[self._label(gang)] = MEMBERS
            if before in books.stays:
                books.stays ^= {before, self._label(gang)}
        self._begin(gang)

    def problems(self) -> list[str]:
        with self.stage.log.lock:
            away = [gang for gang in self._running if self._is_suspended(gang)]
        return [f"{gang} was suspended and has not come back" for gang in away]

    def told(self) -> str:
        times = sum(self._running.values())
        return f"suspended {times} times" if times else ""

    def clear(self) -> None:
        self.stage.client.surely("delete", QUEUES, self.name)
