"""Guests of the live faults that bind pods themselves, in a cluster where that is agreed on: another scheduler of whose
binds Windlass is asked first, and Volcano, which hands a queue over."""

from __future__ import annotations

import time
from typing import Any

from base_load import pod
from bind_guard_webhook import GuardPost
from extra_workloads import Binds, Foreign, Stage
from realkube import RealKube

from windlass.api.annotations import ADOPTED, ADOPTED_SUFFIX
from windlass.api.resources import POD_GROUPS, QUEUES
from windlass.cli.install import objects
from windlass.client.transport import Request

Json = dict[str, Any]
VOLCANO = "volcano"
"""As ``schedulerName``, and as ``--beside``."""
UNASKED = "apiserver_admission_webhook_fail_open_count"
"""Metric of the API server: requests that went on since nobody answered in time who was to be asked."""
SESSION_SECONDS = 0.5
"""So long lies between two looks of Volcano's scheduler."""


class Guarded(Foreign):
    """Another scheduler, of whose binds the API server asks Windlass: as long as that lives, and answers in time, no
    node holds too much for a moment."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "guarded")
        self._posts: list[GuardPost] = []
        self._asked: list[str] = []
        """Configurations that are in force."""
        self._unasked = 0.0

    def scheduler_options(self, kube: RealKube) -> list[str]:
        self._posts.append(GuardPost(kube))
        return self._posts[-1].options

    def begin(self) -> None:
        self._unasked = self._so_often_unasked()
        self.keep()

    def keep(self) -> None:
        for number in range(len(self._asked), len(self._posts)):
            name = f"{self.name}-{number}"
            self.stage.client.make(objects.WEBHOOKS, self._posts[number].configuration(name), "")
            self._asked.append(name)
        super().keep()

    def _so_often_unasked(self) -> float:
        told = self.stage.eyes.surely("call", Request("GET", "/metrics")).decode()
        counts = (line.rsplit(" ", 1)[1] for line in told.splitlines() if line.startswith(f"{UNASKED}{{"))
        return sum(map(float, counts))

    def problems(self) -> list[str]:
        found = self.stage.books.excesses
        if not found or not self.stage.steady or self._so_often_unasked() != self._unasked:
            return []
        return [f"{one.node} held too much though everybody was asked: {one.what}" for one in found]

    def told(self) -> str:
        return f"{self.refused} binds refused" if self.refused else ""

    def clear(self) -> None:
        for name in self._asked:
            self.stage.client.surely("delete", objects.WEBHOOKS, name)


class HandedOver(Binds):
    """A queue of Volcano's that is handed over to Windlass while gangs come to it, and perhaps given back; the queue of
    all others was before. What Volcano's scheduler does is done here: it binds whole gangs of queues that it knows."""

    controller_options = (f"--beside={VOLCANO}",)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "handed")
        rng = stage.rng
        for number in range(6):
            self.minima[f"{self.name}-{number}"] = rng.randint(2, 5)
        self._looked_at = 0.0
        self._by_volcano = 0
        over = stage.moment(0.2, 0.6)
        self.acts = [
            (0.0, self._make_queue),
            *((stage.moment(), lambda g=gang: self._come(g)) for gang in self.minima),  # type: ignore[misc]
            (over, lambda: self._hand(self.name, "true")),
        ]
        if rng.random() < 0.5:
            self.acts.append((over + stage.moment(0.05, 0.4), lambda: self._hand(self.name, None)))

    def scheduler_options(self, kube: RealKube) -> list[str]:
        return [*self.controller_options, "--scheduler-name=windlass", f"--scheduler-name={VOLCANO}"]

    def begin(self) -> None:
        self._hand("default", "true")

    def _make_queue(self) -> None:
        self.stage.client.make(QUEUES, {"metadata": {"name": self.name}, "spec": {"weight": 1}}, "")

    def _hand(self, queue: str, adopted: str | None) -> None:
        notes = {"metadata": {"annotations": {ADOPTED: adopted}}}
        self.stage.client.surely("patch", QUEUES, queue, notes)

    def _come(self, gang: str) -> None:
        members = self.minima[gang]
        self.stage.gang(
            gang, [pod(gang, rank, 1, VOLCANO) for rank in range(members)], members, queue=self.name
        )

    def keep(self) -> None:
        super().keep()
        now = time.monotonic()
        if now - self._looked_at < SESSION_SECONDS:
            return
        self._looked_at = now
        found = self.stage.client.once("list", POD_GROUPS, self.stage.namespace)
        for one in found.items if found is not None else ():
            if one["spec"].get("queue") == self.name:  # else another's, or with ADOPTED_SUFFIX at its end
                self._place(one["metadata"]["name"], one["spec"]["minMember"])

    def _place(self, gang: str, least: int) -> None:
        with self.stage.log.lock:
            mine = {key: entry for key, entry in self.stage.books.pods.items() if entry.gang == gang}
        waiting = [key.partition("/")[2] for key, entry in mine.items() if not entry.node]
        node = self.room(len(waiting)) if len(mine) >= least else ""
        for name in waiting if node else ():
            self._by_volcano += self.bind(name, node)

    def problems(self) -> list[str]:
        """Whose the gangs are is written on them."""
        found = self.stage.eyes.once("list", POD_GROUPS, self.stage.namespace)
        queue = self.stage.eyes.once("get", QUEUES, self.name)
        if found is None or queue is None:
            return ["nobody tells whose the gangs are"]
        adopted = (queue["metadata"].get("annotations") or {}).get(ADOPTED) == "true"
        meant = self.name + (ADOPTED_SUFFIX if adopted else "")
        wrong = {
            one["metadata"]["name"]: one["spec"]["queue"]
            for one in found.items
            if one["metadata"]["name"] in self.minima and one["spec"]["queue"] != meant
        }
        return [f"gangs that should be in {meant}: {wrong}"] if wrong else []

    def told(self) -> str:
        return f"{self._by_volcano} bound by Volcano"

    def clear(self) -> None:
        self._hand("default", None)
        self.stage.client.surely("delete", QUEUES, self.name)
