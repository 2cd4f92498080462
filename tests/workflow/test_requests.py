"""Requests about workflows: what runs again, and what is kept."""

from __future__ import annotations

import pytest
from workflow_player import Outcome, Player, dag, fails, steps

from windlass.workflow import commands
from windlass.workflow.commands import RequestProblem

CHAIN = """
- {name: a, template: pass}
- {name: b, template: flaky, dependencies: [a]}
- {name: c, template: pass, dependencies: [b]}
- {name: d, template: pass, dependencies: [a]}
"""
FLAKY = "  - {name: flaky, container: {image: x}}\n"


def again(player: Player, **request: str) -> set[str]:
    """Carry a retry out and play on. Return the names of what ran again."""
    kept, _ = commands.retry(player.nodes, "wf", dict(request))
    player.nodes = kept
    status = player.workflow["status"]
    for name in ("finishedAt", "message"):
        status.pop(name, None)
    status["phase"] = "Running"
    before = len(player.started)
    player.play()
    return {start.node.display_name for start in player.started[before:]}


def test_retry_runs_what_failed_and_what_was_omitted() -> None:
    played = dag(CHAIN, scripts={"flaky": [fails(), Outcome()]}, extra=FLAKY)
    assert played.phase == "Failed"
    assert again(played) == {"b", "c"}
    assert (played.phase, set(played.phases().values())) == ("Succeeded", {"Succeeded"})


def test_retry_from_a_node_of_a_workflow_that_succeeded() -> None:
    played = dag(CHAIN, extra=FLAKY)
    assert played.phase == "Succeeded"
    assert again(played, node="b") == {"b", "c"}
    assert played.phase == "Succeeded"
    assert len({node.name for node in played.nodes.values()}) == len(played.nodes)


def test_retry_from_inside_runs_what_follows_outside() -> None:
    played = steps(
        """
- - {name: before, template: pass}
- - {name: inner, template: inner}
  - {name: beside, template: pass}
- - {name: after, template: pass}
""",
        extra="""
  - name: inner
    dag: {tasks: [{name: x, template: pass}, {name: y, template: pass, depends: x}, {name: z, template: pass}]}
""",
    )
    assert again(played, node="x") == {"x", "y", "after"}
    assert played.phase == "Succeeded"


def test_retry_of_attempts_and_loops() -> None:
    played = dag(
        "- {name: a, template: tried, withItems: [1, 2, 3]}\n- {name: b, template: pass, depends: a}",
        scripts={"tried": [fails(), Outcome(), Outcome(), fails(), fails(), Outcome()]},
        extra="  - {name: tried, retryStrategy: {limit: 1}, container: {image: x}}\n",
    )
    assert played.phase == "Failed"
    failed = {
        node.display_name for node in played.nodes.values() if node.type == "Retry" and node.unsuccessful
    }
    ran = again(played)
    assert {name[:6] for name in ran if name != "b"} == {name[:6] for name in failed}
    assert played.phase == "Succeeded"


def test_retry_runs_the_exit_handler_again() -> None:
    text = """
metadata: {name: wf}
spec:
  entrypoint: main
  onExit: bye
  templates:
  - {name: main, container: {image: x}}
  - {name: bye, container: {image: x}}
"""
    played = Player(text, {"main": [fails(), Outcome()]}).play()
    assert again(played) == {"wf", "wf.onExit"}
    assert played.phase == "Succeeded"


def test_requests_that_cannot_be_carried_out() -> None:
    played = dag(CHAIN, extra=FLAKY)
    with pytest.raises(RequestProblem, match="nothing of the workflow failed"):
        commands.retry(played.nodes, "wf", {})
    with pytest.raises(RequestProblem, match="there is no node 'zz': the nodes are a, b, c, d, wf"):
        commands.retry(played.nodes, "wf", {"node": "zz"})
    with pytest.raises(RequestProblem, match="is not suspended: its phase is Succeeded"):
        commands.resume(played.nodes, {"node": "a"}, 0.0)


def test_resume_ends_suspended_nodes_with_their_outputs() -> None:
    played = steps(
        "- - {name: wait, template: wait}",
        extra="  - name: wait\n    suspend: {}\n"
        "    outputs: {parameters: [{name: p, valueFrom: {supplied: {}}}, {name: q, valueFrom: {default: z}}]}\n",
    )
    assert played.phase == "Running"
    with pytest.raises(RequestProblem, match="add -p p=VALUE"):
        commands.resume(played.nodes, {}, 0.0)
    with pytest.raises(RequestProblem, match="node has the output 'r': the outputs are p, q"):
        commands.resume(played.nodes, {"parameters": {"p": "1", "r": "2"}}, 0.0)
    assert not any(node.fulfilled for node in played.nodes.values() if node.type == "Suspend")
    commands.resume(played.nodes, {"parameters": {"p": "1"}}, played.now)
    assert played.play().phase == "Succeeded"
    outputs = (played.node("wait").outputs or {})["parameters"]
    assert outputs == [{"name": "p", "value": "1"}, {"name": "q", "value": "z"}]
