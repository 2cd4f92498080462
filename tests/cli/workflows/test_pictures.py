"""Pictures of workflows: layers, lines and SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from workflow_player import dag, fails, steps

from windlass.cli.workflows.drawing import draw, svg
from windlass.cli.workflows.layout import graph_of, layers_of
from windlass.cli.workflows.show import tree
from windlass.controllers.workflow.capture import MARK, parse_log, without_marks


def plain(text: str, colour: str) -> str:
    return text


def test_diamond_is_drawn_with_lines_that_do_not_meet() -> None:
    played = dag(
        """
- {name: A, template: pass}
- {name: B, template: pass, depends: A}
- {name: C, template: fail, depends: A}
- {name: D, template: pass, depends: B && C.Failed}
""",
        scripts={"fail": fails()},
    )
    boxes = graph_of(played.nodes)
    layers = layers_of(boxes)
    assert [[boxes[key].label for key in layer] for layer in layers] == [["A"], ["B", "C"], ["D"]]
    assert draw(boxes, layers, plain) == [
        "   ✔ A",
        " ┌──┴──┐",
        " │     │",
        "✔ B   ✖ C",
        " └──┐  │",
        "    ├──┘",
        "    │",
        "   ✔ D",
    ]
    assert len(ElementTree.fromstring(svg(boxes, layers, "a < b"))) == 4 + 2 + 4


def test_items_of_a_loop_are_one_box_and_containers_of_nodes_none() -> None:
    played = steps(
        "- - {name: a, template: pass, withSequence: {count: 30}}\n- - {name: b, template: inner}",
        extra="  - name: inner\n    steps: [[{name: x, template: pass}]]\n",
    )
    boxes = graph_of(played.nodes)
    assert [[boxes[key].text for key in layer] for layer in layers_of(boxes)] == [["a 30/30"], ["x"]]
    names = [node.display_name for _, node in tree(played.nodes, "wf")]
    assert names[0] == "wf"
    assert len(names) == 33
    assert names.index("x") == names.index("b") + 1


def test_captured_outputs_are_not_part_of_the_log() -> None:
    text = f"one\n\n{MARK} result ok\nb25l\n::windlass-end\n\n{MARK} parameter/p missing\n::windlass-end\n"
    assert parse_log(text) == {"result": ("ok", "one"), "parameter/p": ("missing", "")}
    assert without_marks(text) == "one\n"


def test_nodes_that_ran_again_stay_before_those_that_follow_them() -> None:
    played = dag(
        """
- {name: z, template: pass}
- {name: m, template: pass, depends: z}
- {name: a, template: pass, depends: m}
"""
    )
    nodes = dict(played.nodes)
    for node in nodes.values():
        node.started_at = "2026-01-01T00:00:09Z" if node.display_name == "m" else "2026-01-01T00:00:00Z"
    assert [node.display_name for _, node in tree(nodes, "wf")] == ["wf", "z", "m", "a"]


def test_iterations_stand_below_their_loop_and_later_tasks_do_not() -> None:
    played = dag(
        """
- {name: each, template: pass, withItems: [a, b]}
- {name: end, template: pass, depends: each}
"""
    )
    assert [f"{indent}{node.display_name}" for indent, node in tree(played.nodes, "wf")] == [
        "wf",
        "├─ each",
        "│  ├─ each(0:a)",
        "│  └─ each(1:b)",
        "└─ end",
    ]
