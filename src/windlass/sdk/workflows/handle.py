"""Run of a workflow: its phase, its end, and the outputs of its tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windlass.sdk.session import Target, session_of
from windlass.workflow import words

if TYPE_CHECKING:
    from windlass.cli.workflows.lookup import FoundWorkflow
    from windlass.sdk.session import Session
    from windlass.workflow.node import NodeStatus

_POLL_SECONDS = 0.2


class WorkflowFailed(RuntimeError):
    """A workflow ended without success. ``phase``: ``Failed`` or ``Error``."""

    def __init__(self, name: str, phase: str, message: str) -> None:
        super().__init__(f"workflow {name}: {phase}: {message}" if message else f"workflow {name}: {phase}")
        self.name, self.phase, self.message = name, phase, message

    def __reduce__(self) -> tuple[type[WorkflowFailed], tuple[str, str, str]]:
        return type(self), (self.name, self.phase, self.message)


class WorkflowRun:
    """Run of a workflow on a control plane."""

    def __init__(self, session: Session, name: str) -> None:
        self._session, self.name = session, name

    @classmethod
    def of(cls, name: str, target: Target | None = None) -> WorkflowRun:
        """Return the run of a workflow that is there."""
        return cls(session_of(target or Target()), name)

    def _found(self) -> FoundWorkflow:
        from windlass.cli.workflows.lookup import find

        return find(self._session.invocation, self.name)

    @property
    def phase(self) -> str:
        """Phase: Pending, Running, Succeeded, Failed or Error."""
        return self._found().phase

    def wait(self, timeout: float | None = None) -> WorkflowRun:
        """Wait for success. Raises :class:`WorkflowFailed` and ``TimeoutError``."""
        clock = self._session.invocation.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            found = self._found()
            if found.status.get("finishedAt"):
                break
            if deadline is not None and clock.monotonic() >= deadline:
                raise TimeoutError(f"workflow {self.name} is {found.phase} after {timeout:g} s")
            clock.pause(_POLL_SECONDS)
        if found.phase != "Succeeded":
            raise WorkflowFailed(self.name, found.phase, str(found.status.get("message") or ""))
        return self

    def phases(self) -> dict[str, str]:
        """Return the phase of each node by its name."""
        return {node.display_name: node.phase for node in self._found().nodes.values()}

    def result(self, task: str) -> Any:
        """Return the result of a task: the value of its JSON, or its text; for a loop, a list of them."""
        return _value(self._output(task, "result"))

    def parameter(self, task: str, name: str) -> Any:
        """Return an output parameter of a task; for a loop, a list of them."""
        return _value(self._output(task, name))

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the workflow itself (``globalName``)."""
        found = (self._found().status.get("outputs") or {}).get("parameters") or ()
        return {entry["name"]: _value(entry.get("value", "")) for entry in found}

    def logs(self, task: str = "") -> Iterator[str]:
        """Yield the lines of the pods of a task, or of all tasks."""
        from windlass.controllers.workflow.capture import without_marks
        from windlass.workflow.node import pod_name

        found, client = self._found(), self._session.invocation.client
        for node in found.nodes.values():
            if node.type == words.POD and (not task or node in _pods(found, task)):
                data = b"".join(client.logs(found.namespace, pod_name(found.name, node), container="main"))
                yield from without_marks(data.decode(errors="replace")).splitlines()

    def _output(self, task: str, name: str) -> Any:
        """Return the text of an output; a list of them for a loop. Raises :class:`KeyError`."""
        found = self._found()
        node = found.node(task)
        if node.type == words.TASK_GROUP:
            return [self._of(one, name) for one in _children(found, node)]
        return self._of(node, name)

    def _of(self, node: NodeStatus, name: str) -> str:
        outputs = node.outputs or {}
        given = {entry["name"]: entry.get("value", "") for entry in outputs.get("parameters") or ()}
        value = outputs.get("result") if name == "result" else given.get(name)
        if value is None:
            raise KeyError(f"{node.display_name} has no output {name}: its phase is {node.phase}")
        return value


def _children(found: FoundWorkflow, group: NodeStatus) -> list[NodeStatus]:
    """Return the nodes of the items of a loop, in their order."""
    return [found.nodes[one] for one in group.children if found.nodes[one].name.startswith(f"{group.name}(")]


def _pods(found: FoundWorkflow, task: str) -> list[NodeStatus]:
    """Return the pods of a task: those of the items of a loop, and those of all attempts."""
    node = found.node(task)
    return [one for one in found.nodes.values() if one is node or one.name.startswith(f"{node.name}(")]


def _value(text: Any) -> Any:
    if isinstance(text, list):
        return [_value(one) for one in text]
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
