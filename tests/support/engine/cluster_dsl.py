"""A small language for clusters in tests of the engine.

::

    c = Cluster()
    c.nodes("n1 gpu=8 cpu=64", "n2 gpu=8 zone=a taint=dedicated=ml:NoSchedule cordoned")
    c.queues("research weight=2 limit.gpu=8", "default")
    c.gang("train", 4, "gpu=2", queue="research")
    c.cycle()
    assert c.where("train") == {"n1": 4}

Words of a node: ``gpu cpu mem pods`` are amounts (others too: ``fpga=2``), ``taint=KEY=VALUE:EFFECT``,
the flags ``cordoned`` and ``notready``; anything else is a label. CPU is in cores, memory in GiB.
After every cycle the engine's invariants are checked, and what topology spread counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace as altered
from spread_reference import check_spreads

from windlass.api.reasons import Explanation
from windlass.engine import invariants
from windlass.engine.actions.retry_backoff import LONGEST_PAUSE
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision, DeviceShare, GroupStatus
from windlass.engine.deltas import (
    BindFailed,
    GroupRemoved,
    GroupUpserted,
    NodeRemoved,
    NodeUpserted,
    QueueRemoved,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import (
    Device,
    Group,
    HeldSlice,
    Needs,
    Node,
    Queue,
    QueueState,
    SubGroup,
    Taint,
    Task,
    TaskState,
)

GPU = "nvidia.com/gpu"
GIB = 1 << 30
AMOUNTS = {"gpu": (GPU, 1000), "cpu": ("cpu", 1000), "mem": ("memory", GIB), "pods": ("pods", 1)}
EXTRA_AMOUNTS = {"fpga": ("example.com/fpga", 1), "npu": ("huawei.com/npu", 1000)}
NAMESPACE = "ns"


def amount(word: str, value: str) -> tuple[str, int]:
    name, unit = (AMOUNTS | EXTRA_AMOUNTS)[word]
    return name, round(float(value) * unit)


def is_amount(word: str) -> bool:
    return word in AMOUNTS or word in EXTRA_AMOUNTS


def resources(text: str) -> dict[str, int]:
    """``"gpu=2 cpu=4"`` in engine units."""
    return dict(amount(*word.split("=", 1)) for word in text.split())


def taint(text: str) -> Taint:
    label, effect = text.rsplit(":", 1)
    key, _, value = label.partition("=")
    return Taint(key, value, effect)


def node(text: str, devices: Iterable[Device] = ()) -> Node:
    """``"n1 gpu=8 zone=a taint=x=y:NoSchedule cordoned"``."""
    name, *words = text.split()
    allocatable: dict[str, int] = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
    labels = {"kubernetes.io/hostname": name}
    taints, flags = [], set()
    for word in words:
        key, _, value = word.partition("=")
        if not value:
            flags.add(key)
        elif key == "taint":
            taints.append(taint(value))
        elif is_amount(key):
            resource, units = amount(key, value)
            allocatable[resource] = units
        else:
            labels[key] = value
    assert flags <= {"cordoned", "notready"}, flags
    return Node(
        name,
        allocatable,
        labels,
        tuple(taints),
        unschedulable="cordoned" in flags,
        ready="notready" not in flags,
        devices=tuple(devices),
    )


def queue(text: str) -> Queue:
    """``"q parent=p weight=2 priority=1 deserved.gpu=4 limit.gpu=8 guarantee.cpu=1 closed"``."""
    name, *words = text.split()
    found: dict[str, Any] = {"name": name, "guarantee": {}, "deserved": {}, "capability": {}}
    for word in words:
        key, _, value = word.partition("=")
        kind, _, what = key.partition(".")
        if what:
            resource, units = amount(what, value)
            found["capability" if kind == "limit" else kind][resource] = units
        elif key in ("weight", "priority"):
            found[key] = int(value)
        elif key == "parent":
            found[key] = value
        elif key == "created":
            found[key] = float(value)
        else:
            found["state"] = QueueState(key.capitalize())
    return Queue(**found)


def needs(text: str = "", **rest: Any) -> Needs:
    """``needs("gpu=1 cpu=2", node_selector={"zone": "a"})``; mappings become sorted pairs."""
    for name in ("node_selector", "labels"):
        if isinstance(rest.get(name), dict):
            rest[name] = tuple(sorted(rest[name].items()))
    return Needs(request=tuple(sorted(resources(text).items())), namespace=NAMESPACE, **rest)


def slices_of(shares: Iterable[DeviceShare]) -> tuple[HeldSlice, ...]:
    """What the world reports of MIG instances."""
    return tuple(HeldSlice(one.index, one.profile, one.start) for one in shares if one.profile)


LONGEST_PAUSE_SECONDS = EngineConfig().claim_pause_seconds * LONGEST_PAUSE


def may_claim(decision: Decision, now: float) -> bool:
    """Whether somebody may pause who claimed in vain: what this cycle left undone he may yet do, though nothing
    happens."""
    return decision.wake_at is not None and decision.wake_at <= now + LONGEST_PAUSE_SECONDS


class Cluster:
    """An engine with a world round it that does what the engine decides."""

    def __init__(self, config: EngineConfig | None = None, plugins: list[object] | None = None) -> None:
        self.engine = Engine(config, default_plugins() if plugins is None else plugins)
        self.now = 1000.0
        self.tasks: dict[str, Task] = {}
        self.groups: dict[str, Group] = {}
        self.status: dict[str, GroupStatus] = {}
        self.node_specs: dict[str, Node] = {}
        self.overcommitted = False
        self._created = 0

    # ------------------------------------------------------------------ the world

    def nodes(self, *texts: str | Node) -> Cluster:
        for text in texts:
            spec = node(text) if isinstance(text, str) else text
            self.node_specs[spec.name] = spec
            self.engine.apply([NodeUpserted(spec)])
        return self

    def remove_node(self, name: str) -> None:
        del self.node_specs[name]
        self.engine.apply([NodeRemoved(name)])

    def queues(self, *texts: str) -> Cluster:
        self.engine.apply([QueueUpserted(queue(text)) for text in texts])
        return self

    def remove_queue(self, name: str) -> None:
        self.engine.apply([QueueRemoved(name)])

    def gang(
        self,
        name: str,
        n: int,
        request: str | Needs = "",
        *,
        min: int | None = None,
        queue: str = "default",
        roles: dict[str, int] | None = None,
        role: str = "",
        priority: int = 0,
        gated: bool = False,
        held: bool = False,
    ) -> Cluster:
        """A group with ``n`` tasks ``NAME-0`` … of one class, all pending."""
        self._created += 1
        key = f"{NAMESPACE}/{name}"
        self.group(
            Group(
                key,
                queue=queue,
                priority=priority,
                min_member=n if min is None else min,
                min_task_member=roles or {},
                created=float(self._created),
                uid=f"uid-{name}",
                held=held,
            )
        )
        return self.add_tasks(name, n, request, role=role, gated=gated)

    def parted(
        self,
        name: str,
        parts: str,
        request: str | Needs = "gpu=1",
        *,
        min: int = 0,
        needed: int | None = None,
    ) -> Cluster:
        """A gang of parts: ``"a:2=3 bc:0/1 b:1>bc=2"`` is name ``:`` minimum, ``/`` how many parts below it
        are needed, ``>`` the part above, ``=`` tasks, named ``NAME-PART-0`` …, all pending."""
        found, tasks = [], {}
        for word in parts.split():
            word, _, n = word.partition("=")
            word, _, parent = word.partition(">")
            part, _, least = word.partition(":")
            least, _, enough = least.partition("/")
            found.append(SubGroup(part, parent, int(least), int(enough) if enough else None))
            tasks[part] = int(n or 0)
        self._created += 1
        self.group(
            Group(
                f"{NAMESPACE}/{name}",
                min_member=min,
                created=float(self._created),
                uid=f"uid-{name}",
                subgroups=tuple(found),
                min_subgroups=needed,
            )
        )
        for part, n in tasks.items():
            self.add_tasks(name, n, request, role=part)
            for i in range(n):
                self.change_task(f"{name}-{part}-{i}", subgroup=part, role="")
        return self

    def group(self, group: Group) -> None:
        self.groups[group.key] = group
        self.engine.apply([GroupUpserted(group)])

    def change_group(self, name: str, **changes: Any) -> None:
        self.group(altered(self.groups[f"{NAMESPACE}/{name}"], **changes))

    def remove_group(self, name: str) -> None:
        del self.groups[f"{NAMESPACE}/{name}"]
        self.engine.apply([GroupRemoved(f"{NAMESPACE}/{name}")])

    def add_tasks(
        self, name: str, n: int, request: str | Needs = "", *, role: str = "", gated: bool = False
    ) -> Cluster:
        """``n`` more tasks, numbered on; a role is part of their names."""
        key = f"{NAMESPACE}/{name}"
        stem = f"{key}-{role}" if role else key
        first = sum(task.startswith(f"{stem}-") for task in self.tasks)
        wants = needs(request) if isinstance(request, str) else request
        for i in range(first, first + n):
            self._created += 1
            self.task(
                Task(
                    f"{stem}-{i}",
                    f"uid-{stem}-{i}",
                    key,
                    wants,
                    role=role,
                    index=i,
                    gated=gated,
                    created=float(self._created),
                )
            )
        return self

    def running(
        self, name: str, where: str, request: str = "", *, queue: str = "default", devices=()
    ) -> Cluster:
        """A group of one whose task already runs on a node."""
        key = f"{NAMESPACE}/{name}"
        self._created += 1
        self.group(Group(key, queue=queue, created=float(self._created), uid=f"uid-{name}"))
        self.task(
            Task(
                f"{key}-0",
                f"uid-{key}-0",
                key,
                needs(request),
                state=TaskState.RUNNING,
                node=where,
                devices=tuple(devices),
            )
        )
        return self

    def task(self, task: Task) -> None:
        self.tasks[task.key] = task
        self.engine.apply([TaskUpserted(task)])

    def change_task(self, name: str, **changes: Any) -> None:
        self.task(altered(self.tasks[f"{NAMESPACE}/{name}"], **changes))

    def remove_task(self, name: str) -> None:
        task = self.tasks.pop(f"{NAMESPACE}/{name}")
        self.engine.apply([TaskRemoved(task.key, task.uid)])

    def remove(self, name: str) -> None:
        """The whole group with its tasks."""
        key = f"{NAMESPACE}/{name}"
        for task in [t for t in self.tasks.values() if t.group == key]:
            self.remove_task(task.key.removeprefix(f"{NAMESPACE}/"))
        self.remove_group(name)

    def finish(self, name: str, state: TaskState = TaskState.SUCCEEDED) -> None:
        """All tasks of a group end."""
        for task in [t for t in self.tasks.values() if t.group == f"{NAMESPACE}/{name}"]:
            self.task(altered(task, state=state))

    def fail_bind(self, name: str, message: str = "no") -> None:
        """A decided bind could not be carried out."""
        task = self.tasks[f"{NAMESPACE}/{name}"]
        self.tasks[task.key] = altered(task, node="", state=TaskState.PENDING, devices=())
        self.engine.apply([BindFailed(task.key, task.uid, message)])

    # ------------------------------------------------------------------ the engine

    def cycle(self, seconds: float = 1.0, *, confirm: bool = True) -> Decision:
        """One cycle, checked. ``confirm``: the world reports the binds back as bound."""
        self.now += seconds
        decision = self.engine.cycle(self.now)
        invariants.check_decision(self.engine, decision)
        invariants.check(self.engine, overcommitted=self.overcommitted)
        for status in decision.groups:
            self.status[status.group] = status
        for bind in decision.binds:
            bound = altered(
                self.tasks[bind.task],
                node=bind.node,
                state=TaskState.BOUND,
                devices=tuple(share.index for share in bind.devices),
                slices=slices_of(bind.devices),
            )
            if confirm:
                self.task(bound)
        if confirm and decision.binds:
            invariants.check(self.engine, overcommitted=self.overcommitted)
        check_spreads(self.engine)
        return decision

    def confirm(self) -> None:
        """The world reports every assumed task as bound."""
        names = self.engine.state.table.names
        for key, entry in list(self.engine.state.tasks.items()):
            if entry.state is TaskState.ASSUMED:
                devices = tuple(share.index for share in entry.devices)
                slices = slices_of(entry.devices)
                bound = altered(self.tasks[key], node=names[entry.row], state=TaskState.BOUND)
                self.task(altered(bound, devices=devices, slices=slices))

    def settle(self, quiet: int = 5) -> None:
        """Cycle until nothing changes, then ``quiet`` cycles more in which nothing may change."""
        for _ in range(100):
            decision = self.cycle()
            if decision.binds == () and not may_claim(decision, self.now):
                break
        else:
            raise AssertionError("no rest after 100 cycles")
        for _ in range(quiet):
            decision = self.cycle()
            assert (decision.binds, decision.evictions, decision.groups) == ((), (), ()), decision

    # ------------------------------------------------------------------ questions

    def where(self, name: str) -> dict[str, int]:
        """Node → tasks of the group on it, as the engine has it."""
        state = self.engine.state
        group = state.groups[f"{NAMESPACE}/{name}"]
        counts = Counter(state.table.names[entry.row] for entry in group if entry.row >= 0)
        return dict(sorted(counts.items()))

    def node_of(self, task: str) -> str:
        entry = self.engine.state.tasks[f"{NAMESPACE}/{task}"]
        return self.engine.state.table.names[entry.row] if entry.row >= 0 else ""

    def devices_of(self, task: str) -> list[int]:
        entry = self.engine.state.tasks[f"{NAMESPACE}/{task}"]
        return [share.index for share in entry.devices]

    def placed(self, name: str) -> int:
        return sum(self.where(name).values())

    def explain(self, name: str) -> Explanation:
        explanation = self.engine.explain(f"{NAMESPACE}/{name}", self.now)
        assert explanation is not None, f"nothing of {name} waits"
        return explanation

    def code(self, name: str) -> str:
        """The reason code of a group, "" if nothing of it waits."""
        explanation = self.engine.explain(f"{NAMESPACE}/{name}", self.now)
        return str(explanation.code) if explanation is not None else ""
