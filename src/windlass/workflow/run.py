"""State of a workflow while it is advanced: its nodes, limits and the effects collected so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from windlass.kits.hashes import fnv32a
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.workflow import words
from windlass.workflow.language.scope import Scope
from windlass.workflow.locks import LockTable
from windlass.workflow.node import NodeStatus, node_id
from windlass.workflow.results import result_users, task_of
from windlass.workflow.templates import TemplateLibrary

Json = dict[str, Any]
_COUNTED = frozenset({words.POD, words.STEPS, words.DAG, words.SUSPEND})
"""Types of nodes that a template's ``parallelism`` counts."""


@dataclass(frozen=True, slots=True)
class Start:
    """Effect: begin a leaf. ``template``: its template with all references replaced.

    ``deadline``: Unix time by which it must have ended.
    ``avoid_hosts``: nodes on which earlier attempts failed.
    ``wants_result``: its standard output is referred to.
    """

    node: NodeStatus
    template: Json
    deadline: float | None = None
    avoid_hosts: tuple[str, ...] = ()
    wants_result: bool = False
    exit_handler: bool = False


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Memoized outputs. ``created``: Unix time."""

    outputs: Json
    created: float


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """Effect: store the outputs of a memoized node."""

    cache: str
    key: str
    node_id: str
    outputs: Json


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Objects and locks around a workflow.

    ``config(name, key)``: text of a ConfigMap. ``cache(name, key)``: memoized outputs.
    ``locks``: holders of semaphores and mutexes. ``budget``: maximum number of leaves
    that one step begins. ``held``: ids of nodes that do not begin now, because their
    pods exceed a quota.
    """

    config: Callable[[str, str], str | None] = lambda name, key: None
    cache: Callable[[str, str], CacheEntry | None] = lambda name, key: None
    locks: LockTable = field(default_factory=LockTable)
    budget: int = 500
    held: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Circumstances of one execution of a template.

    ``boundary``: id of the enclosing DAG or Steps node.
    ``hooked``: the node belongs to a hook. ``exit_handler``: it also runs after a stop.
    """

    boundary: str = ""
    hooked: bool = False
    retried: bool = False
    exit_handler: bool = False


class WorkflowNodes:
    """Nodes by id and by name, with counts of the active ones."""

    def __init__(self, nodes: dict[str, NodeStatus]) -> None:
        self.by_id = nodes
        self.by_name = {node.name: node for node in nodes.values()}
        self.active: Counter[str] = Counter()
        """Active nodes inside a boundary."""
        self.active_pods = 0
        self.daemons: dict[str, NodeStatus] = {}
        """Daemons that are ready, by id."""
        for node in nodes.values():
            if node.phase not in words.FULFILLED:
                self._count(node, 1)
            if node.daemoned:
                self.daemons[node.id] = node

    def add(self, node: NodeStatus) -> None:
        self.by_id[node.id] = node
        self.by_name[node.name] = node
        self._count(node, 1)

    def set_phase(self, node: NodeStatus, phase: str) -> None:
        self._count(node, -1)
        node.phase = phase
        self._count(node, 1)

    def set_daemoned(self, node: NodeStatus, ready: bool) -> None:
        self._count(node, -1)
        node.daemoned = ready
        self._count(node, 1)
        if ready:
            self.daemons[node.id] = node
        else:
            self.daemons.pop(node.id, None)

    def set_waiting(self, node: NodeStatus, lock: str) -> None:
        self._count(node, -1)
        node.synchronization_status = {"waiting": lock} if lock else None
        self._count(node, 1)

    def _count(self, node: NodeStatus, by: int) -> None:
        if node.fulfilled or node.type not in _COUNTED:
            return
        self.active[node.boundary_id] += by
        if node.type == words.POD and not (node.synchronization_status or {}).get("waiting"):
            self.active_pods += by

    def free_id(self, workflow: str, name: str) -> str:
        """Return the id for a new node. Where Argo's hash is taken, the name is hashed with an addition."""
        found = node_id(workflow, name)
        while found in self.by_id:
            name += "#"
            found = f"{workflow}-{fnv32a(name)}"
        return found


class Run:
    """One advance of a workflow. Used once."""

    def __init__(
        self,
        workflow: Json,
        spec: Json,
        library: TemplateLibrary,
        nodes: dict[str, NodeStatus],
        surroundings: Surroundings,
        now: float,
    ) -> None:
        """``spec``: the workflow's spec with that of its WorkflowTemplate merged in."""
        metadata = workflow["metadata"]
        self.name: str = metadata["name"]
        self.workflow, self.spec, self.library, self.now = workflow, spec, library, now
        self.nodes = WorkflowNodes(nodes)
        self.surroundings = surroundings
        self.globals = Scope()
        self.shutdown: str = spec.get("shutdown") or ""
        self.deadline: float | None = None
        self.starts: list[Start] = []
        self.stops: list[NodeStatus] = []
        """Nodes with pods or objects to end."""
        self.limits: dict[str, int] = {}
        """Boundary → maximum number of active nodes inside."""
        self._children: dict[str, set[str]] = {}
        self.due: float | None = None
        """Unix time of the next advance without an event."""
        self.depth = 0
        self.outputs: Json = dict((workflow.get("status") or {}).get("outputs") or {})
        """Outputs of the workflow, those with a ``globalName``."""

    @cached_property
    def _result_users(self) -> frozenset[str]:
        return result_users(self.spec, *self.library.specs())

    @cached_property
    def _own_outputs(self) -> dict[tuple[str, str], NodeStatus]:
        found = {}
        for node in self.nodes.by_id.values():
            memo = node.memoization_status
            if memo and not memo.get("hit") and node.phase == words.SUCCEEDED:
                found[memo["cacheName"], memo["key"]] = node
        return found

    def memoized(self, cache: str, key: str) -> CacheEntry | None:
        """Return memoized outputs. Those of this workflow count before the ConfigMap of the cache holds them."""
        if (entry := self.surroundings.cache(cache, key)) is not None:
            return entry
        node = self._own_outputs.get((cache, key))
        if node is None or not node.finished_at:
            return None
        return CacheEntry(node.outputs or {}, parse_rfc3339(node.finished_at))

    def wants_result(self, node: NodeStatus) -> bool:
        """Return whether the standard output of a node is referred to."""
        return task_of(node.display_name) in self._result_users

    def get(self, name: str) -> NodeStatus | None:
        return self.nodes.by_name.get(name)

    def wake_at(self, time: float) -> None:
        self.due = time if self.due is None else min(self.due, time)

    @property
    def over_deadline(self) -> bool:
        return self.deadline is not None and self.now >= self.deadline

    @property
    def ending(self) -> bool:
        """Return whether the workflow was stopped or exceeded its deadline."""
        return bool(self.shutdown) or self.over_deadline

    def may_begin(self, options: NodeOptions) -> bool:
        """Return whether new nodes may begin: after a stop only those of exit handlers."""
        if self.shutdown == words.TERMINATE:
            return False
        return options.exit_handler or not self.ending

    @property
    def end_message(self) -> str:
        if self.shutdown:
            return f"workflow shutdown with strategy:  {self.shutdown}"
        return "Step exceeded its deadline"

    def begin_node(
        self,
        name: str,
        type: str,
        holder: Mapping[str, Any],
        scope: str,
        options: NodeOptions,
        phase: str,
        message: str = "",
    ) -> NodeStatus:
        """Add a node. ``holder``: step, task or hook that refers to its template."""
        stamp = rfc3339(self.now)
        flag = {key: True for key, set_ in (("hooked", options.hooked), ("retried", options.retried)) if set_}
        node = NodeStatus(
            id=self.nodes.free_id(self.name, name),
            name=name,
            display_name=self._display_name(name, options),
            type=type,
            phase=phase,
            template_name=str(holder.get("template") or (holder.get("inline") or {}).get("name") or ""),
            template_scope=scope + self.name if scope.endswith("/") else scope,
            template_ref=holder.get("templateRef"),
            boundary_id=options.boundary,
            message=message,
            started_at=stamp,
            finished_at=stamp if phase in words.FULFILLED else None,
            node_flag=flag or None,
        )
        self.nodes.add(node)
        return node

    def _display_name(self, name: str, options: NodeOptions) -> str:
        boundary = self.nodes.by_id.get(options.boundary)
        if boundary is None or not name.startswith(boundary.name):
            return name
        rest = name[len(boundary.name) :]
        if rest.startswith("."):
            return rest[1:]
        group, bracket, step = rest.partition("].")
        return step if bracket else group

    def mark(self, node: NodeStatus, phase: str, message: str | None = None) -> NodeStatus:
        """Set the phase of a node, and the time of its end with it."""
        if node.phase != phase:
            self.nodes.set_phase(node, phase)
        if message is not None:
            node.message = message
        if node.ended and node.finished_at is None:
            node.finished_at = rfc3339(self.now)
        return node

    def set_waiting(self, node: NodeStatus, lock: str) -> None:
        """Note the lock that a node waits for; ``""``: it waits no more."""
        self.nodes.set_waiting(node, lock)

    def stop(self, node: NodeStatus) -> None:
        """End the pod of a node, or the pods of its attempts."""
        if node.type == words.RETRY:
            for child in (self.nodes.by_id[id_] for id_ in node.children):
                if child.type == words.POD and not child.fulfilled:
                    self.stop(child)
                    self.mark(child, words.FAILED, "Step exceeded its deadline")
        elif not (node.synchronization_status or {}).get("waiting"):
            self.stops.append(node)

    def stop_daemons(self, boundary: str = "") -> None:
        """End the daemons inside a DAG or Steps node that has ended; all of them without a boundary."""
        for node in list(self.nodes.daemons.values()):
            around = node.boundary_id
            while around and around != boundary:
                around = self.nodes.by_id[around].boundary_id if around in self.nodes.by_id else ""
            if not boundary or around:
                self.stops.append(node)
                self.nodes.set_daemoned(node, False)
                self.mark(node, words.SUCCEEDED, "")

    def add_child(self, parent: NodeStatus, child: NodeStatus) -> None:
        self.add_children(parent, (child,))

    def add_children(self, parent: NodeStatus, children: Iterable[NodeStatus]) -> None:
        known = self._children.get(parent.id)
        if known is None:
            known = self._children[parent.id] = set(parent.children)
        fresh = [id_ for child in children if (id_ := child.id) not in known]
        known.update(fresh)
        parent.children += dict.fromkeys(fresh)

    def in_exit_handler(self, node: NodeStatus | None) -> bool:
        """Return whether a node belongs to an exit handler."""
        while node is not None:
            if node.hooked and ".onExit" in node.name:
                return True
            node = self.nodes.by_id.get(node.boundary_id)
        return False

    def started(self, node: NodeStatus) -> float:
        return parse_rfc3339(node.started_at) if node.started_at else self.now

    def finished(self, node: NodeStatus) -> float:
        return parse_rfc3339(node.finished_at) if node.finished_at else self.now

    def outbound(self, node: NodeStatus) -> list[NodeStatus]:
        """Return the last nodes of a node, which the next ones are connected to."""
        if node.type in (words.POD, words.SKIPPED_NODE, words.SUSPEND):
            return [node]
        if node.type == words.RETRY:
            return [self.nodes.by_id[node.children[-1]]] if node.children else [node]
        inner = node.children if node.type == words.TASK_GROUP else node.outbound_nodes
        found = [last for child in inner for last in self.outbound(self.nodes.by_id[child])]
        return found or [node]
