"""PodDisruptionBudgets: protected pods, and deltas for the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kubeobjects import group, node, pod, priority_class

from windlass.api import views
from windlass.cli.simulate.plan import make_engine
from windlass.engine.deltas import BudgetRemoved, BudgetUpserted, TaskUpserted
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.model.dryrun.dry_run import DryRun
from windlass.model.scheduler_config import parse

NOW = 1_767_268_800.0
CURRENT = {"observedGeneration": 3, "disruptionsAllowed": 2}


def budget(name: str = "b", *, selector: Any = None, status: Any = None, space: str = "default") -> Any:
    spec = {"minAvailable": 1} if selector is None else {"minAvailable": 1, "selector": selector}
    meta = {"name": name, "namespace": space, "generation": 3}
    obj = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
    return obj if status is None else {**obj, "status": status}


def view(**fields: Any) -> views.PodDisruptionBudget:
    return views.decode_disruption_budget(msgspec.json.encode(budget(**fields)))


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        (CURRENT, 2),
        ({**CURRENT, "observedGeneration": 2}, 0),
        ({"disruptionsAllowed": 2}, 0),
        ({"observedGeneration": 4}, 0),
        ({**CURRENT, "disruptionsAllowed": -1}, 0),
        (None, 0),
    ],
)
def test_an_old_status_allows_nothing(status: Any, allowed: int) -> None:
    assert view(status=status).allowed == allowed


def budgets_of(model: ClusterModel) -> dict[str, tuple[str, ...]]:
    return {d.task.key: d.task.budgets for d in model.take() if isinstance(d, TaskUpserted)}


def running(name: str, **labels: str) -> Any:
    return pod(name, scheduler="volcano", node="n", phase="Running", labels=labels)


def enter(*objects: Any) -> ClusterModel:
    model = ClusterModel(EVERY_SCHEDULER)
    load(model, ((str(at), obj) for at, obj in enumerate(objects)), strict=True)
    return model


def test_selectors_follow_the_api() -> None:
    model = enter(
        node("n"),
        running("plain"),
        running("web", app="web", tier="a"),
        pod("waits", scheduler="volcano", labels={"app": "web"}),
        budget("all", selector={}),
        budget("nobody"),
        budget("elsewhere", selector={}, space="other"),
        budget("web", selector={"matchLabels": {"app": "web"}}),
        budget(
            "not-a", selector={"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}
        ),
    )
    assert budgets_of(model) == {
        "default/plain": ("default/all", "default/not-a"),
        "default/web": ("default/all", "default/web"),
        "default/waits": (),
    }


def test_changes_reach_the_engine() -> None:
    model = enter(node("n"), running("web", app="web"))
    assert budgets_of(model) == {"default/web": ()}
    model.features.budgets.upsert(view(selector={}, status=CURRENT))
    told = model.take()
    assert BudgetUpserted("default/b", 2) in told
    assert [d.task.budgets for d in told if isinstance(d, TaskUpserted)] == [("default/b",)]
    model.features.budgets.upsert(view(selector={}))
    assert model.take() == [BudgetUpserted("default/b", 0)]
    model.features.budgets.upsert(view(selector={"matchLabels": {"app": "db"}}))
    assert budgets_of(model) == {"default/web": ()}
    model.resend()
    assert BudgetUpserted("default/b", 0) in model.take()
    model.features.budgets.remove(view())
    assert model.take() == [BudgetRemoved("default/b")]
    model.features.budgets.remove(view())
    assert model.take() == []


TIERS = 'actions: "allocate, preempt"\ntiers:\n- plugins:\n  - name: priority\n  - name: {}\n'


@pytest.mark.parametrize(("plugin", "gone"), [("pdb", 1), ("conformance", 3)])
def test_a_plan_keeps_within_the_budget_over_all_its_cycles(plugin: str, gone: int) -> None:
    objects = [node("n", gpus=3), priority_class("high", 10), group("low", 1, phase="Running")]
    objects += [
        pod(f"low-{at}", scheduler="volcano", group="low", node="n", labels={"app": "web"}) for at in range(3)
    ]
    for name in "xyz":
        objects.append(group(name, 1, phase="Inqueue", priorityClassName="high"))
        objects.append(pod(name, scheduler="volcano", group=name, priorityClassName="high"))
    status = {"observedGeneration": 3, "disruptionsAllowed": 1}
    model = enter(*objects, budget(selector={"matchLabels": {"app": "web"}}, status=status))
    plan = DryRun(model, make_engine(parse(TIERS.format(plugin)).config), NOW).run(until_stable=True)
    assert plan.stable
    assert len(plan.evictions) == gone


def test_deleted_budgets_leave_no_state() -> None:
    from windlass.model.cluster.disruption_budgets import BudgetIndex

    book = BudgetIndex()
    for i in range(9):
        selector = {"matchLabels": {"app": f"a{i}"}} if i else {}
        one = view(name=f"b{i}", selector=selector, space=f"s{i % 3}")
        book.upsert(one)
        book.remove(one)
    assert (book._selectors, book._views) == ({}, {})
