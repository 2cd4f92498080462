"""What else happens on the cluster of the live faults: each round has some of :data:`GUESTS`, by its seed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from binding_workloads import Guarded, HandedOver
from claim_workloads import Claims, Requests, make_devices
from extra_workloads import (
    EXTRA,
    URGENT,
    Binds,
    Capped,
    Comings,
    Elastic,
    Foreign,
    Guest,
    Restarted,
    Shared,
    Stage,
    Urgent,
)
from job_workloads import Jobs
from kubeobjects import priority_class
from realkube import RealKube
from timeshare_workloads import TimeShared

from windlass.api.resources import PRIORITY_CLASSES
from windlass.client.blocking import BlockingClient

__all__ = ["EXTRA", "Company", "Stage", "make_lasting"]
GUESTS: dict[str, Callable[[Stage], Guest]] = {
    "elastic": Elastic,
    "restarted": Restarted,
    "urgent": Urgent,
    "capped": Capped,
    "comings": Comings,
    "foreign": Foreign,
    "shared": Shared,
    "claims": Claims,
    "requests": Requests,
    "jobs": Jobs,
    "timeshared": TimeShared,
    "guarded": Guarded,
    "handed": HandedOver,
}
NOT_HANDED = {"capped", "jobs", "requests", "timeshared"}
"""Those whose queues nobody hands over: as long as Volcano is there Windlass has nothing to do with them."""
MOST = 4
"""Guests of a round."""


def make_lasting(client: BlockingClient) -> None:
    """What guests of all rounds need."""
    client.create(PRIORITY_CLASSES, priority_class(URGENT, 1000))
    make_devices(client)


class Company(threading.Thread):
    """The guests of a round: each does what it does at its moments, one after the other, until :meth:`stop`."""

    def __init__(self, stage: Stage, names: Sequence[str] = ()) -> None:
        """``names``: who comes; drawn where nobody is named."""
        super().__init__(name="company", daemon=True)
        found = set(names or stage.rng.sample(list(GUESTS), MOST))
        if "handed" in found:
            found -= NOT_HANDED
        self.names = sorted(found)
        self.error: BaseException | None = None
        self.busy = True
        """Whether something is still to happen."""
        self._stage = stage
        self._guests = [GUESTS[name](stage) for name in self.names]
        self._stopped = threading.Event()
        for guest in self._guests:
            stage.books.minima.update(guest.minima)
            stage.books.judges += guest.judges

    def scheduler_options(self, kube: RealKube) -> list[str]:
        """What a scheduler of the round is started with, asked for each."""
        return [option for guest in self._guests for option in guest.scheduler_options(kube)]

    @property
    def controller_options(self) -> list[str]:
        return [option for guest in self._guests for option in guest.controller_options]

    @property
    def others_bind(self) -> bool:
        """Whether pods come to nodes that Windlass did not bind."""
        return any(isinstance(guest, Binds) for guest in self._guests)

    def begin(self) -> None:
        """Call it when the schedulers are ready, before :meth:`start`."""
        for guest in self._guests:
            guest.begin()

    def told(self) -> str:
        """What has become of them, in a few words."""
        return "; ".join(filter(None, (guest.told() for guest in self._guests)))

    def run(self) -> None:
        acts = sorted((act for guest in self._guests for act in guest.acts), key=lambda act: act[0])
        begun = time.monotonic()
        try:
            while not self._stopped.wait(0.1):
                while acts and acts[0][0] <= time.monotonic() - begun:
                    acts.pop(0)[1]()
                for guest in self._guests:
                    guest.keep()
                self.busy = bool(acts)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.busy = False

    def problems(self) -> list[str]:
        """What does not hold (yet). Call it when nothing is :attr:`busy` any more."""
        return [problem for guest in self._guests for problem in guest.problems()]

    def stop(self) -> None:
        self._stopped.set()
        self.join(100)

    def clear(self) -> None:
        """Leave nothing but pods and groups in the round's namespace. Call it after :meth:`stop`."""
        for guest in self._guests:
            guest.clear()
        self._stage.close()
