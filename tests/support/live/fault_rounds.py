"""Faults of a real cluster at random moments while gangs come and go, and what has to hold afterwards.

One etcd, API server and controller process serve all rounds; each round starts its own scheduler (or two with
leader election) behind a proxy, and is judged by the log of every version of every pod (:mod:`pod_log`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from base_load import HAS, LARGE, Kubelet, Load, Patient, group, make_nodes, node_amounts, pod
from fault_proxy import FaultProxy, Faults
from machine_speed import Pace
from overcommitment import FullBooks
from pod_log import PodLog, amounts
from provisioning_request_crd import install_requests
from realkube import RealKube
from scheduler_processes import WindlassPart
from timeshare_workloads import QUICK_SHARE
from workload_rounds import EXTRA, Company, Stage, make_lasting

from windlass.api.resources import LEASES, NAMESPACES, POD_GROUPS, PODS, QUEUES
from windlass.client import verbs
from windlass.client.blocking import BlockingClient
from windlass.model.devices.reserved_devices import NAMESPACE as RESERVATIONS

WHOLE_SECONDS = 60.0
LEASE_SECONDS, TAKE_OVER_SECONDS = 15.0, 5.0
"""A lease that is not renewed runs out; then the other takes over, later where everything takes longer."""
ELECTED = ("leader", "clock")
"""Faults of two schedulers."""
SLOW = 3.0
"""So many times as long as usual takes what is done where a process may get no processor for as long as a lease."""
SETTLE_SECONDS = 240.0
CLOCK_JUMP = Path(__file__).parent / "clockjump"
LOAD_SECONDS = 4.0
_LEASE = ("kube-system", "windlass-scheduler")


@dataclass
class Outcome:
    """What a round measured; times in seconds. ``problems`` empty: everything held."""

    seed: int
    fault: str
    detail: str = ""
    settled_seconds: float = 0.0
    """From the last fault until every gang for which there is room had been placed."""
    between_seconds: float = 0.0
    """The longest that a gang stood between, after the last fault."""
    fail_over_seconds: float = 0.0
    slowness: float = 1.0
    """How slow the machine was (:mod:`machine_speed`)."""
    binds: int = 0
    versions: int = 0
    evicted: int = 0
    injected: dict[str, int] = field(default_factory=dict)
    company: list[str] = field(default_factory=list)
    """What else happened."""
    guests_told: str = ""
    """What has become of some of it."""
    excesses: int = 0
    """So often a node held too much for a moment, since another scheduler bound there, too."""
    stalled: bool = False
    """Whether the machine stood still for so long that leases ran out without a fault."""
    problems: list[str] = field(default_factory=list)


class World:
    """``start()`` … ``stop()``: the server of all rounds."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.kube = RealKube(folder, controllers=False, audit=False, readable=True)
        self.settings = folder / "settings.yaml"
        self._seed = seed
        self._controller_options: list[str] = []
        self.rounds = 0

    def start(self) -> None:
        holding = {"reservationImage": "windlass:test", "reservationRuntimeClass": ""}
        self.settings.write_text(json.dumps({"scheduler": holding}))
        self.kube.start()
        try:
            self.kube.install_crds()
            install_requests(self.kube)
            with BlockingClient(self.kube.connection) as client:
                client.create(NAMESPACES, {"metadata": {"name": RESERVATIONS}})
                make_nodes(client)
                make_lasting(client)
            self.proxy = FaultProxy(self.kube, self._seed, "controllers")
            self.proxy.start()
            self.start_controllers()
            wait_for(self._there, "there is no default queue")
        except BaseException:
            self.kube.stop()
            raise

    def start_controllers(self) -> None:
        options = self._controller_options
        self.controllers = WindlassPart(self.kube, "controller", *options, through=self.proxy.kubeconfig)

    def use_controllers(self, options: Sequence[str]) -> None:
        """See that the controllers run with these options."""
        if list(options) != self._controller_options:
            self.controllers.stop()
            self._controller_options = list(options)
            self.start_controllers()

    def _there(self) -> bool:
        with BlockingClient(self.kube.connection) as client:
            return client.find(QUEUES, "default") is not None

    def stop(self) -> None:
        self.controllers.stop()
        self.proxy.stop()
        self.kube.stop()


def run_round(world: World, seed: int, fault: str, guests: Sequence[str] = ()) -> Outcome:
    """One round. ``guests``: who else is there, if not those that the seed draws. Raises what the harness itself cannot
    do."""
    world.rounds += 1
    return _Round(world, seed, fault, guests).run()


class Part(Protocol):
    """Who may lead."""

    @property
    def alive(self) -> bool: ...

    @property
    def leads(self) -> bool: ...


Kind = TypeVar("Kind", bound=Part)


class _Round:
    def __init__(self, world: World, seed: int, fault: str, guests: Sequence[str] = ()) -> None:
        self.kube = world.kube
        self.rng = random.Random(f"{seed} {fault}")
        self.outcome = Outcome(seed, fault)
        self.proxies: list[FaultProxy] = []
        self.schedulers: list[WindlassPart] = []
        self.allowed_to_end: list[WindlassPart] = []
        self.world = world
        self._fault = fault
        self._elected = fault in ELECTED
        self._namespace = f"r{world.rounds}-{fault}"
        self._client = Patient(self.kube.connection)
        self._pace = Pace()
        self._books = FullBooks({**node_amounts(), EXTRA: amounts(HAS)})
        self._log = PodLog(self.kube.etcd_url, self._books)
        self._company = self._invite(guests)

    def run(self) -> Outcome:
        self._prepare()
        company = self._company
        load = Load(self.kube.connection, self._namespace, self.rng, LOAD_SECONDS)
        self._books.minima.update({name: members for name, (members, _) in load.gangs.items()})
        kubelet = Kubelet(self.kube.connection, self._log)
        for part in (self._log, kubelet, load, company, self._pace):
            part.start()
        last = 0.0
        try:
            time.sleep(self.rng.uniform(0.3, 2.5))
            last = STRIKES[self._fault](self)
            self._settle(load, company, kubelet, last)
        finally:
            load.join(100)
            company.stop()
            self.outcome.guests_told = company.told()
            self._log.stop()
            self._pace.stop()
            self.outcome.slowness = round(self._pace.slowness, 2)
            kubelet.stop()
            if last:
                self._judge(load, last)
                self._judge_kubelets(kubelet)
            company.clear()
            self._end()
        return self.outcome

    def _invite(self, guests: Sequence[str]) -> Company:
        """Who else is there is drawn by the seed, and does not change what the load draws."""
        rng = random.Random(f"{self.outcome.seed} {self._fault} company")
        steady = self._fault not in ("scheduler", *ELECTED)
        stage = Stage(self.kube.connection, self._namespace, rng, self._log, LOAD_SECONDS, steady=steady)
        company = Company(stage, guests)
        self.outcome.company = company.names
        return company

    # ------------------------------------------------------------------ before and after

    def _prepare(self) -> None:
        self._client.make(NAMESPACES, {"metadata": {"name": self._namespace}}, "")
        self.world.use_controllers(self._company.controller_options)
        if self._elected:
            self._client.once("delete", LEASES, _LEASE[1], _LEASE[0])
        for number in range(2 if self._elected else 1):
            name, account = f"{self._namespace}-proxy-{number}", self.kube.folder / "scheduler.kubeconfig"
            proxy = FaultProxy(self.kube, self.rng.randrange(1 << 30), name, account)
            proxy.start()
            self.proxies.append(proxy)
            self.start_scheduler(proxy)
        wait_for(self._ready, "the schedulers are not ready")
        if self._elected:
            wait_for(lambda: self.leader() is not None, "nobody leads")
        self._company.begin()

    def _ready(self) -> bool:
        for part in self.schedulers:
            if not part.alive:
                raise RuntimeError(f"a scheduler did not start: {part.text()[-3000:]}")
        return all(part.ready for part in self.schedulers)

    def start_scheduler(self, proxy: FaultProxy) -> None:
        name = f"{self._namespace}-{len(self.schedulers)}"
        clock = self.kube.folder / f"{name}.clock"
        clock.write_text("0")
        path = filter(None, (str(CLOCK_JUMP), str(QUICK_SHARE), os.environ.get("PYTHONPATH")))
        more = {"PYTHONPATH": os.pathsep.join(path)}
        if self._elected:
            more["WINDLASS_TEST_CLOCK"] = str(clock)
        option = f"--leader-elect={'true' if self._elected else 'false'}"
        part = WindlassPart(
            self.kube,
            "scheduler",
            option,
            f"--settings={self.world.settings}",
            *self._company.scheduler_options(self.kube),
            name=name,
            through=proxy.kubeconfig,
            more=more,
        )
        self.schedulers.append(part)

    def restart_who_lost_the_lease(self) -> None:
        """As their Deployment does: on a slow machine that may happen to anybody, and is no fault of his."""
        for part in [p for p in self.schedulers if not p.alive and p not in self.allowed_to_end]:
            if self._elected and "WL-LEADER-409" in part.text():
                self.allowed_to_end.append(part)
                self.outcome.detail += "; somebody else lost the lease and was started again"
                self.outcome.stalled = True
                open_ways = [p for p in self.proxies if not (p.faults.cut or p.faults.silent)]
                self.start_scheduler((open_ways or self.proxies)[-1])

    def set_clock(self, part: WindlassPart, seconds: float) -> None:
        (self.kube.folder / f"{self._namespace}-{self.schedulers.index(part)}.clock").write_text(str(seconds))

    def leaders(self) -> list[WindlassPart]:
        return who_leads(self.schedulers)

    def leader(self) -> WindlassPart | None:
        return next(iter(self.leaders()), None)

    def leader_for_sure(self) -> WindlassPart | None:
        """None where nobody leads for as long as a take-over takes, or somebody lost the lease on a machine that is not
        slow. (All are asked again, as the lease may change hands between two answers.)"""
        until = time.monotonic() + LEASE_SECONDS + TAKE_OVER_SECONDS
        while (found := self.leader()) is None and time.monotonic() < until:
            self.restart_who_lost_the_lease()
            time.sleep(0.1)
        return None if self.outcome.stalled and self._pace.slowness < SLOW else found

    def led_by_another(self, former: WindlassPart, begun: float) -> float | None:
        """A moment just before another led; None where none does within 60 s. (Of the former one some binds may be on
        their way for a while on a slow machine.)"""
        before = now = begun
        while now < begun + 60.0:
            self.restart_who_lost_the_lease()
            if who_leads([part for part in self.schedulers if part is not former]):
                return before
            time.sleep(0.05)
            before, now = now, time.monotonic()
        return None

    def ask_for_one(self) -> None:
        """A gang of one that takes no GPU."""
        name = f"{self._namespace}-one"
        self._client.make(POD_GROUPS, group(name, 1), self._namespace)
        self._client.make(PODS, pod(name, 0, 0), self._namespace)

    def next_bind(self, after: float, seconds: float) -> float | None:
        """The moment of Windlass' first bind after ``after``; None if there is none for ``seconds``."""
        while time.monotonic() < after + seconds:
            self.restart_who_lost_the_lease()
            with self._log.lock:
                found = [at for at, key in self._books.binds if at > after and self._books.is_ours(key)]
            if found:
                return found[0]
            time.sleep(0.05)
        return None

    def _settle(self, load: Load, company: Company, kubelet: Kubelet, last: float) -> None:
        """Wait until every gang for which there is room has been placed whole, and what was asked for is there."""
        while True:
            self.restart_who_lost_the_lease()
            for error in (load.error, company.error, kubelet.error):
                if error is not None:
                    raise error
            with self._log.lock:
                waiting = [
                    name for name in self._books.minima if name != load.large and not self._placed(name)
                ]
            lacking = [f"not placed: {self._states(waiting)}"] if waiting else []
            if not lacking and not load.is_alive() and not company.busy:
                lacking = [*company.problems(), *self._untold(load.large)]
                if not lacking:
                    break
            if time.monotonic() > last + SETTLE_SECONDS:
                text = self.schedulers[-1].text()[-3000:]
                self.outcome.problems += [f"not within {SETTLE_SECONDS:g} s: {each}" for each in lacking]
                self.outcome.problems.append(text)
                break
            time.sleep(0.1)
        self.outcome.settled_seconds = round(time.monotonic() - last, 2)

    def _untold(self, gang: str) -> list[str]:
        """A gang for which there is never room has to be told so."""
        found = self._client.once("get", POD_GROUPS, gang, self._namespace) or {}
        told = (found.get("status") or {}).get("conditions") or ()
        if any((one["type"], one["status"]) == ("Unschedulable", "True") and one["message"] for one in told):
            return []
        return [f"{gang} waits and is not told why: {told}"]

    def _placed(self, gang: str) -> bool:
        """Whether it is whole, or was given up as a whole: nobody who had not ended is left."""
        books = self._books
        whole = len(books.placed.get(gang, ())) >= books.minima[gang]
        return whole or (gang in books.broken and not books.living.get(gang))

    def _states(self, gangs: list[str]) -> str:
        told = []
        for gang in gangs[:3]:
            nodes = {key: e.node for key, e in self._books.pods.items() if e.gang == gang}
            told.append(f"{gang} ({self._books.minima[gang]}): {nodes}")
        return "; ".join(told)

    def _judge(self, load: Load, last: float) -> None:
        books, outcome = self._books, self.outcome
        outcome.problems += books.problems[:5]
        outcome.binds, outcome.versions, outcome.evicted = len(books.binds), books.events, len(books.evicted)
        outcome.between_seconds = round(books.longest_between(last), 2)
        if outcome.between_seconds > WHOLE_SECONDS:
            outcome.problems.append(f"a gang stood between for {outcome.between_seconds} s: {books.spells}")
        for gang, minimum in books.minima.items():
            there = len(books.placed.get(gang, ()))
            if books.living.get(gang) and there < minimum:
                outcome.problems.append(f"{gang} ended with {there} of {minimum}")
        most = LEASE_SECONDS + TAKE_OVER_SECONDS * outcome.slowness
        if outcome.fail_over_seconds > most and not outcome.stalled:
            outcome.problems.append(f"the other took over after {outcome.fail_over_seconds} s")
        outcome.excesses = len(books.excesses) + len(books.now_over)
        outcome.problems += [
            f"{one.node}: {one.what}, by {one.by}"
            for one in (*books.excesses, *books.now_over.values())
            if not one.shared or not one.end
        ]
        whole = {gang: least for gang, least in books.minima.items() if gang not in books.broken}
        if len(books.binds) < sum(whole.values()) - LARGE:
            outcome.problems.append(f"only {len(books.binds)} pods were ever bound")
        for part in [*self.schedulers, self.world.controllers]:
            if part.exit_status is not None and part not in self.allowed_to_end:
                outcome.problems.append(f"ended with {part.exit_status}: {part.text()[-2000:]}")

    def _judge_kubelets(self, kubelet: Kubelet) -> None:
        """No node has had more pods with cards than it has cards, unless another scheduler bound there, too."""
        if kubelet.refused and not self._company.others_bind:
            self.outcome.problems.append(f"refused by their kubelets: {kubelet.refused}")

    def _end(self) -> None:
        """Leave nothing for the next round."""
        for part in self.schedulers:
            part.stop()
        for proxy in self.proxies:
            for what, times in proxy.injected.items():
                self.outcome.injected[what] = self.outcome.injected.get(what, 0) + times
            proxy.stop()
        self.world.proxy.mend()

        def cleared() -> bool:
            places = ((PODS, self._namespace), (POD_GROUPS, self._namespace), (PODS, RESERVATIONS))
            for kind, namespace in places:
                self._client.once("call", verbs.delete_collection(kind, namespace, grace_seconds=0))
            left = self._client.once("list", PODS)
            return left is not None and not left.items

        wait_for(cleared, "the round's pods are not gone")
        self._client.close()


def who_leads(parts: Sequence[Kind]) -> list[Kind]:
    """Asked one after the other."""
    return [part for part in parts if part.alive and part.leads]


def two_lead(parts: Sequence[Part]) -> bool:
    """Whether two lead at one moment. The lease may change hands while they are asked; who led before another was seen
    to lead, and does so still, led at that moment, too."""
    seen = who_leads(parts)
    return len(seen) > 1 and who_leads(seen) == seen


def wait_for(check: Callable[[], bool], otherwise: str, seconds: float = 180.0) -> None:
    """Raises ``RuntimeError`` when it is not true in time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{otherwise} within {seconds:g} s")
        time.sleep(0.1)


# ------------------------------------------------------------------ the faults; each returns when it was over


def _scheduler(r: _Round) -> float:
    """Killed, twice perhaps, and started again; the controllers, too, half of the time."""
    if random.Random(f"{r.outcome.seed} controllers").random() < 0.5:
        r.world.controllers.kill()
        r.world.start_controllers()
        r.outcome.detail = "controllers killed and started again; "
    for _ in range(r.rng.randint(1, 2)):
        part = r.schedulers[-1]
        r.allowed_to_end.append(part)
        part.kill()
        pause = r.rng.uniform(0, 1.5)
        r.outcome.detail += f"killed, started again after {pause:.1f} s; "
        time.sleep(pause)
        r.start_scheduler(r.proxies[0])
        time.sleep(r.rng.uniform(0.5, 3.0))
    return time.monotonic()


def _leader(r: _Round) -> float:
    """The leader dies, or nobody hears it any more, or it stands still and comes back when another leads."""
    leader = r.leader()
    assert leader is not None
    r.allowed_to_end.append(leader)
    begun = time.monotonic()
    r.outcome.detail = r.rng.choice(("killed", "cut off", "cut off in silence", "frozen"))
    proxy = r.proxies[r.schedulers.index(leader)]
    if r.outcome.detail == "killed":
        leader.kill()
    elif r.outcome.detail == "cut off":
        proxy.cut()
    elif r.outcome.detail == "frozen":
        leader.signal(signal.SIGSTOP)
    else:
        proxy.faults = Faults(silent=True)
    _take_over(r, leader, begun)
    leader.signal(signal.SIGCONT)
    proxy.mend()
    return time.monotonic()


def _take_over(r: _Round, former: WindlassPart, begun: float) -> None:
    """Wait for the other's first bind; there is a pod for it, whatever the load does."""
    r.ask_for_one()
    led = r.led_by_another(former, begun)
    at = None if led is None else r.next_bind(led, 60.0)
    if at is None:
        r.outcome.problems.append("nobody took over within 60 s")
    else:
        r.outcome.fail_over_seconds = round(at - begun, 2)


def _clock(r: _Round) -> float:
    """Clocks that differ and jump; still one leads at a time, and the other takes over when it dies."""
    deadline = time.monotonic() + r.rng.uniform(3.0, 6.0)
    jumps = []
    while time.monotonic() < deadline:
        part = r.rng.choice(r.schedulers)
        seconds = r.rng.choice((-1, 1)) * r.rng.choice((5.0, 60.0, 3600.0, 86400.0))
        r.set_clock(part, seconds)
        jumps.append(f"{seconds:+g}")
        time.sleep(r.rng.uniform(0.3, 1.0))
        if two_lead(r.schedulers):
            r.outcome.problems.append("two lead")
    r.outcome.detail = f"clocks wrong by {', '.join(jumps)} s, then the leader killed"
    leader = r.leader_for_sure()
    if leader is None:
        r.outcome.problems.append("a wrong clock ended the leadership")
        return time.monotonic()
    r.allowed_to_end.append(leader)
    begun = time.monotonic()
    leader.kill()
    _take_over(r, leader, begun)
    return time.monotonic()


def _apiserver(r: _Round) -> float:
    """Killed and started again."""
    r.kube.stop_apiserver()
    pause = r.rng.uniform(0, 2.0)
    r.outcome.detail = f"down for {pause:.1f} s and its start"
    time.sleep(pause)
    r.kube.start_apiserver()
    return time.monotonic()


def _etcd(r: _Round) -> float:
    """Killed and started again under a running API server."""
    r.kube.stop_etcd()
    pause = r.rng.uniform(0.2, 3.0)
    r.outcome.detail = f"down for {pause:.1f} s"
    time.sleep(pause)
    r.kube.start_etcd()
    return time.monotonic()


def _network(r: _Round) -> float:
    """Connections drop and answers are lost, then nothing passes at all, by a reset or in silence."""
    for proxy in (*r.proxies, r.world.proxy):
        proxy.faults = Faults(dropped=0.1, unanswered=0.1)
    time.sleep(r.rng.uniform(1.0, 3.0))
    silent, pause = r.rng.random() < 0.5, r.rng.uniform(0.5, 6.0)
    r.outcome.detail = f"lossy, then {'silent' if silent else 'cut'} for {pause:.1f} s"
    for proxy in (*r.proxies, r.world.proxy):
        if silent:
            proxy.faults = Faults(silent=True)
        else:
            proxy.cut()
    time.sleep(pause)
    for proxy in (*r.proxies, r.world.proxy):
        proxy.mend()
    return time.monotonic()


def _storm(r: _Round) -> float:
    """Of all requests three in ten are refused, by turns of all statuses, and some answers are lost."""
    for proxy in (*r.proxies, r.world.proxy):
        proxy.faults = Faults(refused=0.3, unanswered=0.05)
    seconds = r.rng.uniform(3.0, 6.0)
    r.outcome.detail = f"for {seconds:.1f} s"
    time.sleep(seconds)
    for proxy in (*r.proxies, r.world.proxy):
        proxy.mend()
    return time.monotonic()


def _watch(r: _Round) -> float:
    """Watch events come late, twice and in another order."""
    for proxy in (*r.proxies, r.world.proxy):
        proxy.faults = Faults(late_seconds=1.5, doubled=0.3, swapped=0.3)
    seconds = r.rng.uniform(4.0, 8.0)
    r.outcome.detail = f"for {seconds:.1f} s"
    time.sleep(seconds)
    for proxy in (*r.proxies, r.world.proxy):
        proxy.mend()
    return time.monotonic()


STRIKES: dict[str, Callable[[_Round], float]] = {
    "scheduler": _scheduler,
    "leader": _leader,
    "apiserver": _apiserver,
    "etcd": _etcd,
    "network": _network,
    "storm": _storm,
    "watch": _watch,
    "clock": _clock,
}
FAULTS = tuple(STRIKES)
