"""Expansion of a step or task into the nodes that it stands for.

A condition is decided before anything else is looked up: the arguments of a task that
is skipped are never resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windlass.workflow.language.scope import Scope, condition, only_reference, references
from windlass.workflow.nodes import contexts, loops
from windlass.workflow.nodes.contexts import LoopContexts
from windlass.workflow.outputs import resolve_artifact
from windlass.workflow.templates import ConfigLookup, parameter_value

Json = dict[str, Any]
STRICT = ("tasks.", "steps.", "item", "inputs.")
"""Prefixes of references that must have a value where a task begins."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """Steps or tasks that one entry stands for.

    ``skipped``: why the whole entry is skipped. ``loop``: it is a loop of ``items``.
    """

    skipped: str = ""
    loop: bool = False
    items: tuple[Any, ...] = ()
    contexts: LoopContexts | None = None

    def suffixes(self) -> Iterable[tuple[str, Any]]:
        """Return the suffix of the name of each node, and its item."""
        if not self.loop:
            return (("", None),)
        if all(isinstance(item, str) for item in self.items):
            return zip(loops.text_suffixes(self.items), self.items, strict=True)
        return ((loops.node_suffix(index, item), item) for index, item in enumerate(self.items))


def expand(task: Json, scope: Scope) -> Expanded:
    """Return what a step or task stands for. Raises :class:`EvaluationError`."""
    when, loop = task.get("when") or "", loops.is_loop(task)
    if when and not (loop and _mentions_item(when)):
        text = scope.text(when, strict=STRICT)
        if not condition(text):
            return Expanded(skipped=f"when '{text}' evaluated false")
    if not loop:
        return Expanded()
    fields = {
        field: scope.apply(task[field], strict=STRICT)
        for field in loops.FIELDS
        if task.get(field) is not None
    }
    items = tuple(loops.items_of(fields))
    if not items:
        return Expanded(skipped="Skipped, empty params")
    found = contexts.contexts_of(task, items)
    if found is not None:
        items = tuple(contexts.SegmentItem(place, item) for place, item in enumerate(items))
    return Expanded(loop=True, items=items, contexts=found)


def _mentions_item(when: str) -> bool:
    return any("item" in name for name in references(when))


def item_scope(scope: Scope, expanded: Expanded, item: Any) -> Scope:
    if not expanded.loop:
        return scope
    values = loops.values_of(item)
    if expanded.contexts is not None:
        values |= expanded.contexts.values_of(item)
    return scope.child(values)


def skipped_item(task: Json, scope: Scope, expanded: Expanded) -> str:
    """Return why one item of a loop is skipped; empty if it runs."""
    when = task.get("when") or ""
    if not expanded.loop or not when or not _mentions_item(when):
        return ""
    text = scope.text(when, strict=STRICT)
    return "" if condition(text) else f"when '{text}' evaluated false"


def resolve(task: Json, scope: Scope, config: ConfigLookup) -> tuple[Json, Json]:
    """Return the reference to the template and the arguments. Raises :class:`EvaluationError`."""
    holder: Json = {"name": task.get("name", "")}
    for field in ("template", "templateRef"):
        if task.get(field):
            holder[field] = scope.apply(task[field], strict=STRICT)
    if task.get("inline"):
        holder["inline"] = scope.apply(task["inline"])
    return holder, resolve_arguments(task.get("arguments") or {}, scope, config)


def resolve_arguments(arguments: Json, scope: Scope, config: ConfigLookup) -> Json:
    """Replace the references of arguments. An output that does not exist becomes an absent one."""
    parameters: list[Json] = []
    for parameter in arguments.get("parameters") or ():
        name = only_reference(parameter.get("value"))
        if name is not None and scope.is_absent(name):
            parameters.append({"name": parameter["name"], "absent": True})
            continue
        source = dict(parameter)
        if isinstance(source.get("value"), str):
            source["value"] = scope.text(source["value"], strict=STRICT)
        value = parameter_value(source, scope, config)
        entry: Json = {"name": parameter.get("name")}
        if value is not None:
            entry["value"] = value
        parameters.append(entry)
    artifacts = []
    for artifact in arguments.get("artifacts") or ():
        found = resolve_artifact(artifact, scope)
        if found is not None:
            artifacts.append({**found, "name": artifact["name"]})
    return {"parameters": parameters, "artifacts": artifacts}
