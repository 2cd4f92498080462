"""DAG and Steps templates: order, conditions, dependencies, outputs."""

from __future__ import annotations

from workflow_player import HEAD, Outcome, Player, dag, prints, steps


def test_diamond_runs_in_the_order_of_its_dependencies() -> None:
    played = dag(
        """
- {name: A, template: pass}
- {name: B, template: pass, dependencies: [A]}
- {name: C, template: pass, dependencies: [A]}
- {name: D, template: pass, dependencies: [B, C]}
"""
    )
    assert played.phase == "Succeeded"
    assert [start.node.display_name for start in played.started] == ["A", "B", "C", "D"]
    assert played.nodes[played.node("A").id].children == [played.node("B").id, played.node("C").id]
    assert played.node("B").boundary_id == "wf"
    assert played.workflow["status"]["progress"] == "4/4"


def test_enhanced_depends_follow_the_results() -> None:
    played = dag(
        """
- {name: A, template: pass}
- {name: B, depends: A, template: pass}
- {name: C, depends: A, template: fail}
- {name: should-execute-1, depends: "A && (C.Succeeded || C.Failed)", template: pass}
- {name: should-execute-2, depends: "B || C", template: pass}
- {name: should-not-execute, depends: "B && C", template: pass}
- {name: should-execute-3, depends: "should-execute-2.Succeeded || should-not-execute", template: pass}
"""
    )
    phases = played.phases()
    assert phases["should-not-execute"] == "Omitted"
    assert {phases[f"should-execute-{n}"] for n in (1, 2, 3)} == {"Succeeded"}
    assert played.phase == "Succeeded"


def test_failed_task_omits_what_depends_on_it_and_fails_the_dag() -> None:
    played = dag(
        """
- {name: A, template: fail}
- {name: B, template: pass, dependencies: [A]}
- {name: C, template: pass}
"""
    )
    assert played.phases() == {"A": "Failed", "B": "Omitted", "C": "Succeeded"}
    assert (played.phase, played.message) == ("Failed", "failed: A")


def test_continue_on_lets_dependants_and_the_dag_go_on() -> None:
    played = dag(
        """
- {name: A, template: fail, continueOn: {failed: true}}
- {name: B, template: pass, dependencies: [A]}
- {name: C, template: fail, continueOn: {failed: true}}
"""
    )
    assert (played.phase, played.phases()["B"]) == ("Succeeded", "Succeeded")


def test_without_fail_fast_all_targets_are_awaited() -> None:
    text = """
- {name: A, template: fail}
- {name: B, template: slow}
- {name: C, template: pass, dependencies: [B]}
"""
    extra = "  - {name: slow, container: {image: busybox}}\n"
    script = {"slow": Outcome(seconds=60)}
    for options in ("failFast: false", ""):
        played = dag(text, options=options, scripts=script, extra=extra)
        assert (played.phase, played.phases()["C"]) == ("Failed", "Succeeded")


def test_only_the_targets_and_their_dependencies_run() -> None:
    played = dag(
        """
- {name: A, template: pass}
- {name: B, template: pass, dependencies: [A]}
- {name: C, template: pass}
""",
        options="target: B",
    )
    assert played.phases() == {"A": "Succeeded", "B": "Succeeded"}


def test_steps_pass_results_to_later_groups() -> None:
    played = steps(
        """
- - {name: flip, template: coin}
- - {name: heads, template: pass, when: "{{steps.flip.outputs.result}} == heads"}
  - {name: tails, template: pass, when: "{{steps.flip.outputs.result}} == tails"}
- - name: last
    template: echo
    arguments: {parameters: [{name: text, value: "{{steps.flip.outputs.result}} {{steps.heads.status}}"}]}
""",
        scripts={"coin": prints("heads")},
        extra="  - {name: coin, script: {image: python, source: x}}\n",
    )
    assert played.phase == "Succeeded"
    assert played.node("tails").message == "when 'heads == tails' evaluated false"
    assert played.node("tails").type == "Skipped"
    assert played.command_of("last") == ["echo", "heads Succeeded"]


def test_failing_step_ends_its_steps_with_the_id_of_the_child() -> None:
    played = steps(
        "- - {name: a, template: fail}\n  - {name: b, template: pass}\n- - {name: c, template: pass}"
    )
    assert played.phase == "Failed"
    assert played.message == f"child '{played.node('a').id}' failed"
    assert played.phases() == {"a": "Failed", "b": "Succeeded"}
    played = steps("- - {name: a, template: fail, continueOn: {failed: true}}\n- - {name: c, template: pass}")
    assert (played.phase, played.phases()["c"]) == ("Succeeded", "Succeeded")


def test_outputs_rise_through_nested_templates() -> None:
    played = steps(
        """
- - {name: inner, template: nested}
- - name: last
    template: echo
    arguments: {parameters: [{name: text, value: "{{steps.inner.outputs.parameters.out}}"}]}
""",
        scripts={"make": Outcome(parameters={"p": "deep"})},
        extra="""
  - name: nested
    outputs: {parameters: [{name: out, valueFrom: {parameter: "{{tasks.make.outputs.parameters.p}}"}, globalName: g}]}
    dag: {tasks: [{name: make, template: make}]}
  - name: make
    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}]}
    container: {image: busybox}
""",
    )
    assert played.command_of("last") == ["echo", "deep"]
    assert played.workflow["status"]["outputs"]["parameters"] == [{"name": "g", "value": "deep"}]


def test_recursion_ends_by_its_condition_or_as_an_error() -> None:
    flip = "  - {name: coin, script: {image: python, source: x}}\n"
    again = """
- - {name: flip, template: coin}
- - {name: heads, template: pass, when: "{{steps.flip.outputs.result}} == heads"}
  - {name: tails, template: main, when: "{{steps.flip.outputs.result}} == tails"}
"""
    played = steps(again, scripts={"coin": [prints("tails"), prints("tails"), prints("heads")]}, extra=flip)
    assert played.phase == "Succeeded"
    assert sum(start.template["name"] == "coin" for start in played.started) == 3
    played = steps("- - {name: again, template: main}")
    assert played.phase == "Failed"
    assert any("nested more than 100 levels" in node.message for node in played.nodes.values())


def test_missing_argument_and_unknown_template_make_the_node_an_error() -> None:
    played = steps("- - {name: a, template: echo}")
    assert played.node("a").phase == "Error"
    assert played.node("a").message == "inputs.parameters.text was not supplied"
    played = steps("- - {name: a, template: nothing}")
    assert "template 'nothing' is not found in the workflow" in played.node("a").message


def test_inline_templates_and_references_to_workflow_templates() -> None:
    manifest = f"""{HEAD}
  templates:
  - name: main
    dag:
      tasks:
      - name: a
        inline: {{container: {{image: busybox, command: [inline]}}}}
      - name: b
        templateRef: {{name: shared, template: outer}}
        arguments: {{parameters: [{{name: text, value: hi}}]}}
"""
    shared = {
        "templates": [
            {
                "name": "outer",
                "inputs": {"parameters": [{"name": "text"}]},
                "steps": [
                    [
                        {
                            "name": "leaf",
                            "template": "leaf",
                            "arguments": {
                                "parameters": [{"name": "t", "value": "{{inputs.parameters.text}}!"}]
                            },
                        }
                    ]
                ],
            },
            {
                "name": "leaf",
                "inputs": {"parameters": [{"name": "t"}]},
                "container": {"image": "x", "command": ["{{inputs.parameters.t}}"]},
            },
        ]
    }
    played = Player(manifest, templates={"namespaced/shared": shared}).play()
    assert played.phase == "Succeeded"
    assert played.command_of("leaf") == ["hi!"]
    played = Player(manifest).play()
    assert "WorkflowTemplate 'shared' is not found" in played.node("b").message


def test_workflow_of_a_template_keeps_the_spec_it_began_with() -> None:
    base = {
        "entrypoint": "main",
        "arguments": {"parameters": [{"name": "m", "value": "base"}, {"name": "n", "value": "2"}]},
        "templates": [
            {
                "name": "main",
                "container": {
                    "image": "x",
                    "command": ["{{workflow.parameters.m}}", "{{workflow.parameters.n}}"],
                },
            }
        ],
    }
    manifest = {
        "kind": "Workflow",
        "metadata": {"name": "wf"},
        "spec": {
            "workflowTemplateRef": {"name": "base"},
            "arguments": {"parameters": [{"name": "m", "value": "mine"}]},
        },
    }
    player = Player(manifest, templates={"namespaced/base": base})
    player.step()
    assert player.started[0].template["container"]["command"] == ["mine", "2"]
    player.templates = {}
    assert player.play().phase == "Succeeded"
    assert player.workflow["status"]["storedWorkflowTemplateSpec"]["entrypoint"] == "main"


DAEMON = """
  - {name: server, daemon: true, container: {image: x, command: [x]}}
"""


def test_daemon_runs_until_its_graph_has_ended() -> None:
    ready = {"server": Outcome(daemoned=True)}
    for kind, tasks in (
        (dag, "- {name: s, template: server}\n- {name: use, template: echo, depends: s,"
              " arguments: {parameters: [{name: text, value: '{{tasks.s.ip}}'}]}}\n"
              "- {name: strict, template: pass, depends: s.Daemoned}"),
        (steps, "- [{name: s, template: server}]\n- [{name: use, template: echo,"
                " arguments: {parameters: [{name: text, value: '{{steps.s.ip}}'}]}}, {name: strict, template: pass}]"),
    ):  # fmt: skip
        played = kind(tasks, scripts=ready, extra=DAEMON)
        assert played.phase == "Succeeded"
        assert played.command_of("use") == ["echo", "10.0.0.9"]
        server = played.node("s")
        assert (server.phase, server.daemoned, played.stopped) == ("Succeeded", False, [server.id])
        assert played.node("strict").phase == "Succeeded"


def test_daemon_is_stopped_with_a_graph_that_failed() -> None:
    played = dag(
        "- {name: s, template: server}\n- {name: use, template: fail, depends: s}",
        scripts={"server": Outcome(daemoned=True)},
        extra=DAEMON,
    )
    assert played.phase == "Failed"
    assert played.stopped == [played.node("s").id]
