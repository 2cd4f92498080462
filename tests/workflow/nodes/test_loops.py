"""Loops: items, names of nodes, aggregated outputs."""

from __future__ import annotations

import json

from workflow_player import Outcome, dag, prints, steps

from windlass.workflow.nodes.loops import items_of, node_suffix


def test_items_and_sequences() -> None:
    table = [
        ({"withItems": [1, "a", {"k": "v"}]}, [1, "a", {"k": "v"}]),
        ({"withParam": '["a", {"b": 1}]'}, ["a", {"b": 1}]),
        ({"withSequence": {"count": "3"}}, ["0", "1", "2"]),
        ({"withSequence": {"start": "5", "end": "3"}}, ["5", "4", "3"]),
        ({"withSequence": {"count": 2, "start": 1, "format": "2020-%02X"}}, ["2020-01", "2020-02"]),
        ({"withSequence": {"count": 0}}, []),
    ]
    for task, expected in table:
        assert items_of(task) == expected
    assert node_suffix(1, {"b": 2, "a": "x"}) == "(1:a:x,b:2)"
    assert node_suffix(0, "a(b)") == "(0:ab)"
    assert node_suffix(2, True) == "(2:true)"


def test_loop_runs_each_item_with_its_values() -> None:
    played = steps(
        """
- - name: os
    template: echo
    withItems: [{image: debian, tag: "9"}, {image: alpine, tag: "3"}]
    arguments: {parameters: [{name: text, value: "{{item.image}}:{{item.tag}} {{item}}"}]}
"""
    )
    assert played.phase == "Succeeded"
    assert played.command_of("os(0:image:debian,tag:9)") == ["echo", 'debian:9 {"image":"debian","tag":"9"}']


def test_results_of_a_loop_are_a_list_in_the_order_of_the_items() -> None:
    played = dag(
        """
- {name: gen, template: gen}
- name: each
  template: each
  dependencies: [gen]
  withParam: "{{tasks.gen.outputs.result}}"
  arguments: {parameters: [{name: n, value: "{{item}}"}]}
- name: sum
  template: echo
  dependencies: [each]
  arguments: {parameters: [{name: text, value: "{{tasks.each.outputs.result}} {{tasks.each.outputs.parameters.p}}"}]}
""",
        scripts={
            "gen": prints("[1, 2, 3]"),
            "each": lambda start: Outcome(
                result=start.template["inputs"]["parameters"][0]["value"],
                parameters={"p": "x"},
                seconds=10 - int(start.template["inputs"]["parameters"][0]["value"]),
            ),
        },
        extra="  - {name: gen, script: {image: p}}\n"
        "  - {name: each, inputs: {parameters: [{name: n}]}, script: {image: p}}\n",
    )
    assert played.phase == "Succeeded"
    assert played.node("each").type == "TaskGroup"
    first, second = played.command_of("sum")[1].split(" ")
    assert json.loads(first) == ["1", "2", "3"]
    assert json.loads(second) == ["x", "x", "x"]


def test_empty_list_skips_the_loop() -> None:
    played = dag(
        '- {name: a, template: pass, withParam: "[]"}\n- {name: b, template: pass, dependencies: [a]}'
    )
    assert played.node("a").message == "Skipped, empty params"
    assert (played.phase, played.phases()["b"]) == ("Succeeded", "Succeeded")


def test_list_that_is_no_json_is_an_error_with_its_beginning() -> None:
    played = dag('- {name: a, template: pass, withParam: "not json"}')
    assert played.phase == "Error"
    assert "could not be parsed as a JSON list: 'not json'" in played.node("a").message


def test_parallelism_limits_the_active_nodes() -> None:
    loop = "- - {name: a, template: pass, withSequence: {count: 7}}"
    for options in ("parallelism: 2", ""):
        played = steps(loop, options=options)
        assert played.phase == "Succeeded"
        ends = sorted(node.finished_at for node in played.nodes.values() if node.type == "Pod")
        most = max(ends.count(end) for end in ends)
        assert most == (2 if options else 7)


def test_many_items_are_begun_in_batches() -> None:
    played = steps("- - {name: a, template: pass, withSequence: {count: 2000}}")
    assert played.phase == "Succeeded"
    assert played.workflow["status"]["progress"] == "2000/2000"
    assert len({node.id for node in played.nodes.values()}) == 2002


SCENES = [
    {"id": "c", "start": 60, "end": 90, "text": "third"},
    {"id": "a", "start": 0, "end": 30, "text": "first"},
    {"id": "e", "start": 120, "end": 125, "text": "fifth"},
    {"id": "d", "start": 90, "end": 120, "text": "fourth"},
    {"id": "b", "start": 30, "end": 60, "text": "second"},
]


def test_items_that_are_segments_get_the_media_time_before_them() -> None:
    played = dag(
        f"""
- {{name: split, template: gen}}
- name: subtitle
  template: echo
  depends: split
  withParam: "{{{{tasks.split.outputs.result}}}}"
  contextCache: {{mode: Overlap, window: 30s}}
  arguments:
    parameters:
    - name: text
      value: "{{{{item.id}}}} {{{{item.context.start}}}}-{{{{item.context.end}}}} {{{{item.context.text}}}}"
- name: whole
  template: echo
  withItems: {json.dumps(SCENES)}
  contextCache: {{window: 45s}}
  arguments: {{parameters: [{{name: text, value: "{{{{item.context}}}}"}}]}}
""",
        scripts={"gen": prints(json.dumps(SCENES))},
        extra="  - {name: gen, script: {image: p}}\n",
    )
    assert played.phase == "Succeeded"
    assert played.command_of("subtitle(2:end:125,id:e,start:120,text:fifth)") == ["echo", "e 90-120 fourth"]
    assert played.command_of("subtitle(1:end:30,id:a,start:0,text:first)") == ["echo", "a 0-0 "]
    context = json.loads(played.command_of("whole(2:end:125,id:e,start:120,text:fifth)")[1])
    assert (context["start"], context["end"], context["stream"]) == (75, 120, "default")
    assert [one["id"] for one in context["segments"]] == ["c", "d"]
    wrong = dag(
        """
- name: a
  template: echo
  withItems: [1]
  contextCache: {window: 1s}
  arguments: {parameters: [{name: text, value: x}]}
"""
    )
    assert wrong.phase == "Error"
    assert "each item must be an object with start and end" in wrong.node("a").message
