"""Known surprises of other workflow engines, which end as their users expected."""

from __future__ import annotations

from workflow_player import Outcome, dag, prints, steps

GEN = "  - {name: gen, script: {image: p}}\n"


def test_inputs_of_a_false_condition_are_never_resolved() -> None:
    """argo#1807, #1900, #2167, #872: the output does not exist, as the producer did not run."""
    played = dag(
        """
- {name: a, template: pass, when: "false"}
- name: b
  template: echo
  dependencies: [a]
  when: "1 == 2"
  arguments: {parameters: [{name: text, value: "{{tasks.a.outputs.parameters.missing}}"}]}
"""
    )
    assert (played.phase, played.phases()) == ("Succeeded", {"a": "Skipped", "b": "Skipped"})
    played = steps(
        """
- - {name: a, template: pass}
- - name: b
    template: echo
    when: "{{steps.a.status}} == Failed"
    withParam: "{{steps.a.outputs.parameters.missing}}"
    arguments: {parameters: [{name: text, value: "{{steps.a.outputs.result}}"}]}
"""
    )
    assert (played.phase, played.phases()["b"]) == ("Succeeded", "Skipped")


def test_output_of_a_skipped_task_is_empty_or_the_default_of_the_input() -> None:
    """argo#10173."""
    played = dag(
        """
- {name: a, template: pass, when: "false"}
- name: b
  template: two
  dependencies: [a]
  arguments:
    parameters:
    - {name: x, value: "{{tasks.a.outputs.parameters.missing}}"}
    - {name: y, value: "{{tasks.a.outputs.result}}"}
    - {name: z, value: "[{{tasks.a.outputs.result}}]"}
""",
        extra="""
  - name: two
    inputs: {parameters: [{name: x, default: fallback}, {name: y}, {name: z}]}
    container: {image: x, command: ["{{inputs.parameters.x}}", "{{inputs.parameters.y}}", "{{inputs.parameters.z}}"]}
""",
    )
    assert played.phase == "Succeeded"
    assert played.command_of("b") == ["fallback", "", "[]"]


def test_skipped_input_of_a_skipped_task_leaves_the_workflow_successful() -> None:
    """W14."""
    played = dag(
        """
- {name: score, template: gen}
- {name: redo, template: gen, dependencies: [score], when: "{{tasks.score.outputs.result}} < 90"}
- name: check
  template: echo
  dependencies: [redo]
  when: "{{tasks.redo.status}} == Succeeded"
  arguments: {parameters: [{name: text, value: "{{tasks.redo.outputs.result}}"}]}
""",
        scripts={"gen": prints("95")},
        extra=GEN,
    )
    assert played.phase == "Succeeded"
    assert played.phases() == {"score": "Succeeded", "redo": "Skipped", "check": "Skipped"}


def test_loop_whose_items_are_all_skipped_is_skipped() -> None:
    """W15, argo#14774, #3378: `.Succeeded` does not hold, a bare name does."""
    played = dag(
        """
- {name: a, template: pass, withItems: [1, 2], when: "{{item}} > 5"}
- {name: strict, depends: a.Succeeded, template: pass}
- {name: bare, depends: a, template: pass}
- {name: any, depends: a.AnySucceeded, template: pass}
"""
    )
    phases = played.phases()
    assert phases["a"] == "Skipped"
    assert (phases["strict"], phases["bare"], phases["any"]) == ("Omitted", "Succeeded", "Omitted")
    assert played.phase == "Succeeded"


def test_join_after_a_branch_runs_once() -> None:
    """argo#1386, #8654: one of two branches runs, and the join after it."""
    for depends, expected in (
        ("b || c", "Succeeded"),
        ("b.Succeeded || c.Succeeded", "Succeeded"),
        ("b && c", "Succeeded"),
    ):
        played = dag(
            f"""
- {{name: a, template: gen}}
- {{name: b, depends: a, template: pass, when: "{{{{tasks.a.outputs.result}}}} == yes"}}
- {{name: c, depends: a, template: pass, when: "{{{{tasks.a.outputs.result}}}} == no"}}
- {{name: d, depends: "{depends}", template: pass}}
""",
            scripts={"gen": prints("yes")},
            extra=GEN,
        )
        assert (played.phase, played.phases()["c"], played.phases()["d"]) == (
            "Succeeded",
            "Skipped",
            expected,
        )


def test_join_of_branches_that_were_both_skipped() -> None:
    text = """
- {{name: b, template: pass, when: "false"}}
- {{name: c, template: pass, when: "false"}}
- {{name: d, depends: "{depends}", template: pass}}
"""
    assert dag(text.format(depends="b || c")).phases()["d"] == "Succeeded"
    assert dag(text.format(depends="b.Succeeded || c.Succeeded")).phases()["d"] == "Omitted"


def test_items_some_of_which_are_skipped_give_the_outputs_of_the_others() -> None:
    """argo#3378."""
    played = dag(
        """
- {name: a, template: gen, withItems: [1, 2, 3], when: "{{item}} != 2"}
- name: b
  template: echo
  depends: a.Succeeded
  arguments: {parameters: [{name: text, value: "{{tasks.a.outputs.result}}"}]}
""",
        scripts={"gen": Outcome(result="r")},
        extra=GEN,
    )
    assert played.phase == "Succeeded"
    assert played.command_of("b") == ["echo", '["r","r"]']


def test_output_that_a_finished_task_does_not_have_is_told_instead_of_awaited() -> None:
    played = dag(
        """
- {name: a, template: pass}
- name: b
  template: echo
  dependencies: [a]
  arguments: {parameters: [{name: text, value: "{{tasks.a.outputs.parameters.typo}}"}]}
"""
    )
    assert played.phase == "Error"
    assert "{{tasks.a.outputs.parameters.typo}} has no value here" in played.node("b").message


def test_join_may_be_a_switch_with_several_targets() -> None:
    """Metaflow#2597, #3328, #3331: the join after a branch decides which two of three tasks begin."""
    played = dag(
        """
- {name: a, template: gen}
- {name: b, depends: a, template: pass, when: "{{tasks.a.outputs.result}} == yes"}
- {name: c, depends: a, template: pass, when: "{{tasks.a.outputs.result}} != yes"}
- {name: join, depends: "b || c", template: gen}
- {name: x, depends: join, template: pass, when: "{{tasks.join.outputs.result}} in ('yes', 'both')"}
- {name: y, depends: join, template: pass, when: "{{tasks.join.outputs.result}} == yes && {{tasks.c.status}} != Failed"}
- {name: z, depends: join, template: pass, when: "{{tasks.join.outputs.result}} == no"}
- {name: end, depends: "(x || y) && z", template: pass}
""",
        scripts={"gen": prints("yes")},
        extra=GEN,
    )
    assert played.phase == "Succeeded"
    phases = played.phases()
    assert {name for name, phase in phases.items() if phase == "Skipped"} == {"c", "z"}
    assert phases["end"] == "Succeeded"
