"""Conditions that hold for every graph: order, termination and independence of how events arrive."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_player import START, Outcome, Player, fails

from windlass.workflow.advance import ENDED, LeafReport
from windlass.workflow.node import decode_nodes, encode_nodes


@st.composite
def graphs(draw: st.DrawFn) -> dict:
    """A DAG with random dependencies, conditions, loops and failures."""
    size = draw(st.integers(1, 8))
    tasks = []
    for number in range(size):
        task: dict = {"name": f"t{number}", "template": draw(st.sampled_from(["ok", "bad"]))}
        before = draw(st.lists(st.integers(0, max(0, number - 1)), max_size=3, unique=True)) if number else []
        results = st.sampled_from(["", ".Succeeded", ".Failed", ".Skipped", ".Omitted"])
        terms = [f"t{other}{draw(results)}" for other in before]
        if terms:
            task["depends"] = draw(st.sampled_from([" && ", " || "])).join(terms)
        if draw(st.booleans()):
            task["when"] = draw(st.sampled_from(["1 == 1", "1 == 2"]))
        if draw(st.integers(0, 3)) == 0:
            task["withSequence"] = {"count": draw(st.integers(0, 3))}
        tasks.append(task)
    leaf = {"container": {"image": "x"}}
    return {
        "metadata": {"name": "wf"},
        "spec": {
            "entrypoint": "main",
            "templates": [
                {"name": "main", "dag": {"tasks": tasks, "failFast": draw(st.booleans())}},
                {"name": "ok", **leaf},
                {"name": "bad", **leaf, "retryStrategy": {"limit": draw(st.integers(0, 1))}},
            ],
        },
    }


SCRIPTS = {"bad": fails()}


@settings(max_examples=60, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_every_graph_ends_the_same_however_events_arrive(manifest: dict, random) -> None:
    import copy

    together = Player(copy.deepcopy(manifest), SCRIPTS).play()
    assert together.phase in ENDED
    one_by_one = Player(copy.deepcopy(manifest), SCRIPTS)
    one_by_one.step()
    for _ in range(200):
        if one_by_one.phase in ENDED:
            break
        one_by_one.nodes = decode_nodes(encode_nodes(one_by_one.nodes))  # as after a restart
        if one_by_one.running:
            key = random.choice(sorted(one_by_one.running))
            outcome: Outcome = one_by_one.running.pop(key)[1]
            report = LeafReport(
                key, outcome.phase, outcome.message, {"exitCode": str(outcome.code)}, START, START
            )
            one_by_one.step([report, report])
        else:
            one_by_one.step()
    assert one_by_one.phase == together.phase
    assert one_by_one.phases() == together.phases()


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_no_task_begins_before_its_dependencies_have_ended(manifest: dict) -> None:
    player = Player(manifest, SCRIPTS)
    tasks = {task["name"]: task for task in manifest["spec"]["templates"][0]["dag"]["tasks"]}
    reports: list[LeafReport] = []
    seen: set[str] = set()
    for _ in range(200):
        player.step(reports)
        for name in tasks:
            if player.has(name) and name not in seen:
                seen.add(name)
                for term in (tasks[name].get("depends") or "").replace("&&", " ").replace("||", " ").split():
                    assert player.node(term.split(".")[0]).fulfilled
        if player.phase in ENDED:
            return
        reports = [player._report(key, player.running.pop(key)[1]) for key in list(player.running)]
    raise AssertionError("the graph did not end")


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_advancing_without_an_event_changes_nothing(manifest: dict) -> None:
    player = Player(manifest, SCRIPTS)
    player.step()
    player.step()
    before, started = encode_nodes(player.nodes), len(player.started)
    player.step()
    assert encode_nodes(player.nodes) == before
    assert len(player.started) == started
