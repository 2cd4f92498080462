"""Retries, timeouts, hooks, exit handlers, suspension and stops."""

from __future__ import annotations

import json

from workflow_player import HEAD, START, Outcome, Player, fails, steps

from windlass.kits.timestamps import parse_rfc3339


def single(options: str, scripts: dict, spec: str = "") -> Player:
    container = "{image: x, command: ['{{retries}}']}"
    text = f"{HEAD}{spec}  templates:\n  - name: main\n    {options}\n    container: {container}\n"
    return Player(text, scripts)


def test_limit_n_gives_n_plus_one_attempts() -> None:
    played = single("retryStrategy: {limit: '2'}", {"main": fails()}).play()
    assert (played.phase, played.message) == ("Failed", "No more retries left")
    assert [node.type for node in played.nodes.values()].count("Pod") == 3
    assert played.node("wf").type == "Retry"
    assert [start.template["container"]["command"] for start in played.started] == [["0"], ["1"], ["2"]]
    played = single("retryStrategy: {limit: 2}", {"main": [fails(), Outcome()]}).play()
    assert played.phase == "Succeeded"
    assert played.node("wf(0)").node_flag == {"retried": True}


def test_policy_decides_what_is_retried() -> None:
    error = Outcome("Error", message="pod deleted")
    table = [
        ("OnFailure", fails(), 2),
        ("OnFailure", error, 1),
        ("OnError", fails(), 1),
        ("OnError", error, 2),
        ("Always", error, 2),
        ("OnTransientError", error, 2),
        ("OnTransientError", fails(), 1),
    ]
    for policy, outcome, attempts in table:
        played = single(f"retryStrategy: {{limit: 1, retryPolicy: {policy}}}", {"main": outcome}).play()
        assert len(played.started) == attempts, (policy, outcome)


def test_expression_sees_the_last_attempt_and_makes_always_the_policy() -> None:
    text = "retryStrategy: {limit: 9, expression: \"asInt(lastRetry.exitCode) > 1 && lastRetry.status != 'Error'\"}"
    played = single(text, {"main": [fails(2), fails(3), fails(1)]}).play()
    assert len(played.started) == 3
    assert played.message == "retryStrategy.expression evaluated to false"


def test_backoff_grows_by_its_factor_up_to_its_cap() -> None:
    text = "retryStrategy: {limit: 9, backoff: {duration: '10', factor: '2', cap: '25', maxDuration: 2m}}"
    played = single(text, {"main": fails(seconds=1)}).play()
    starts = [
        round(parse_rfc3339(node.started_at) - START) for node in played.nodes.values() if node.type == "Pod"
    ]
    assert starts == [0, 11, 32, 58, 84, 110]
    assert played.message == "Backoff would exceed max duration limit"


def test_retried_steps_run_again_as_a_whole() -> None:
    played = steps(
        "- - {name: a, template: inner}",
        scripts={"flaky": [fails(), Outcome()]},
        extra="""
  - name: inner
    retryStrategy: {limit: 3}
    steps: [[{name: x, template: flaky}]]
  - {name: flaky, container: {image: x}}
""",
    )
    assert played.phase == "Succeeded"
    assert played.node("a(0)").phase == "Failed"
    assert played.node("a(1)").phase == "Succeeded"


def test_timeout_of_a_template_and_deadline_of_the_workflow() -> None:
    played = single("timeout: 5s", {"main": Outcome(seconds=60)}).play()
    assert (played.phase, played.message) == ("Failed", "Step exceeded its deadline")
    assert played.stopped == ["wf"]
    assert played.now == START + 5
    played = single("", {"main": Outcome(seconds=60)}, "  activeDeadlineSeconds: 7\n").play()
    assert (played.phase, played.now) == ("Failed", START + 7)
    assert played.started[0].deadline == START + 7


def test_exit_handler_knows_the_status_and_the_failures() -> None:
    text = f"""{HEAD}
  onExit: handler
  templates:
  - {{name: main, container: {{image: x}}}}
  - name: handler
    steps:
    - - {{name: good, template: report, when: "{{{{workflow.status}}}} == Succeeded"}}
      - {{name: bad, template: report, when: "{{{{workflow.status}}}} != Succeeded"}}
  - {{name: report, container: {{image: x, args: ["{{{{workflow.status}}}} {{{{workflow.failures}}}}"]}}}}
"""
    played = Player(text, {"main": fails()}).play()
    assert played.phase == "Failed"
    assert played.phases() == {"wf": "Failed", "good": "Skipped", "bad": "Succeeded"}
    status, _, failures = played.command_of("bad")[0].partition(" ")
    assert status == "Failed"
    assert json.loads(json.loads(failures))[0]["podName"] == "wf"
    played = Player(text, {"report": fails()}).play()
    assert (played.phase, played.phases()["good"]) == ("Failed", "Failed")


def test_hooks_begin_when_their_expressions_hold() -> None:
    played = steps(
        """
- - name: a
    template: pass
    hooks:
      running: {expression: "steps['a'].status == 'Running'", template: pass}
      succeeded: {expression: "steps['a'].status == 'Succeeded'", template: pass}
      exit: {template: echo, arguments: {parameters: [{name: text, value: "{{steps.a.status}}"}]}}
- - {name: b, template: pass}
"""
    )
    assert played.phase == "Succeeded"
    assert played.has("a.hooks.succeeded")
    assert not played.has("a.hooks.running")  # it was never reported as running
    assert played.command_of("a.onExit") == ["echo", "Succeeded"]
    order = [start.node.display_name for start in played.started]
    assert order.index("a.onExit") < order.index("b")


def test_suspended_node_ends_after_its_duration_or_waits() -> None:
    text = f"{HEAD}  templates:\n  - {{name: main, suspend: {{duration: 20}}}}\n"
    played = Player(text).play()
    assert (played.phase, played.now, played.node("wf").type) == ("Succeeded", START + 20, "Suspend")
    waiting = Player(f"{HEAD}  templates:\n  - {{name: main, suspend: {{}}}}\n").play()
    assert (waiting.phase, waiting.node("wf").phase) == ("Running", "Running")


def test_stop_runs_exit_handlers_and_terminate_does_not() -> None:
    for shutdown, ran in (("Stop", True), ("Terminate", False)):
        player = single("", {"main": Outcome(seconds=999)}, "  onExit: bye\n")
        player.workflow["spec"]["templates"].append({"name": "bye", "container": {"image": "x"}})
        player.step()
        player.workflow["spec"]["shutdown"] = shutdown
        player.play()
        assert (player.phase, player.message) == ("Failed", f"Stopped with strategy '{shutdown}'")
        assert player.stopped == ["wf"]
        assert player.has("wf.onExit") is ran


def test_suspended_workflow_begins_nothing() -> None:
    player = single("", {}, "  suspend: true\n")
    player.step()
    assert (player.phase, player.started) == ("Pending", [])
    assert player.message == "suspended, no further node begins: windlass workflow resume wf"
    player.workflow["spec"]["suspend"] = False
    assert (player.play().phase, player.message) == ("Succeeded", "")


def test_running_workflow_that_is_suspended_says_so_until_it_is_resumed() -> None:
    player = single("", {})
    player.step()
    assert (player.phase, player.message) == ("Running", "")
    player.workflow["metadata"]["namespace"] = "team"
    player.workflow["spec"]["suspend"] = True
    player.step()
    told = "suspended, no further node begins: windlass workflow resume wf -n team"
    assert (player.phase, player.message) == ("Running", told)
    player.workflow["spec"]["suspend"] = None
    player.step()
    assert (player.phase, player.message) == ("Running", "")
