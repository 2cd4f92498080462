"""Workflows with the structure of Argo's published examples, and the phases that Argo documents for them.

Each entry restates what an example shows: its graph, conditions, loops and failures. Images
are replaced by local commands. ``phases``: display names of nodes → phase.
"""

from __future__ import annotations

LEAVES = """
  - {name: pass, container: {image: busybox, command: [sh, -c, "exit 0"]}}
  - {name: fail, container: {image: busybox, command: [sh, -c, "exit 1"]}}
  - {name: heads, script: {image: python, command: [sh], source: echo heads}}
  - {name: list, script: {image: python, command: [sh], source: "echo '[20, 21, 22]'"}}
  - name: say
    inputs: {parameters: [{name: message, default: none}]}
    container: {image: busybox, command: [echo, "{{inputs.parameters.message}}"]}
  - name: write
    outputs: {parameters: [{name: text, valueFrom: {path: out.txt, default: none}}]}
    container: {image: busybox, command: [sh, -c, "echo hello > out.txt"]}
"""

# ruff: noqa: E501
EXAMPLES: dict[str, tuple[str, str, dict[str, str]]] = {
    "hello-world": ("  - {name: main, container: {image: busybox, command: [echo, hello]}}", "Succeeded", {}),
    "steps": (
        "  - {name: main, steps: [[{name: a, template: say}], [{name: b, template: say}, {name: c, template: say}]]}",
        "Succeeded",
        {"a": "Succeeded", "c": "Succeeded"},
    ),
    "dag-diamond": (
        "  - {name: main, dag: {tasks: [{name: A, template: say}, {name: B, template: say, depends: A},"
        " {name: C, template: say, depends: A}, {name: D, template: say, depends: B && C}]}}",
        "Succeeded",
        {"D": "Succeeded"},
    ),
    "dag-multiroot": (
        "  - {name: main, dag: {tasks: [{name: A, template: say}, {name: B, template: say},"
        " {name: C, depends: A, template: say}, {name: D, depends: A && B, template: say}]}}",
        "Succeeded",
        {},
    ),
    "dag-targets": (
        "  - {name: main, dag: {target: B E, tasks: [{name: A, template: say}, {name: B, template: say, depends: A},"
        " {name: C, template: say, depends: A}, {name: D, template: say, depends: B && C},"
        " {name: E, depends: A, template: say}]}}",
        "Succeeded",
        {"B": "Succeeded", "E": "Succeeded"},
    ),
    "dag-continue-on-fail": (
        "  - {name: main, dag: {tasks: [{name: A, template: pass}, {name: B, template: fail, dependencies: [A],"
        " continueOn: {failed: true}}, {name: C, template: pass, dependencies: [B]}]}}",
        "Succeeded",
        {"B": "Failed", "C": "Succeeded"},
    ),
    "dag-disable-failFast": (
        "  - {name: main, dag: {failFast: false, tasks: [{name: a, template: pass}, {name: b, template: fail,"
        " depends: a}, {name: c, template: pass, depends: a}, {name: d, template: pass, depends: c}]}}",
        "Failed",
        {"b": "Failed", "d": "Succeeded"},
    ),
    "dag-enhanced-depends": (
        "  - {name: main, dag: {tasks: [{name: A, template: pass}, {name: B, depends: A, template: pass},"
        " {name: C, depends: A, template: fail}, {name: one, depends: 'A && (C.Succeeded || C.Failed)', template: pass},"
        " {name: two, depends: B || C, template: pass}, {name: never, depends: B && C, template: pass},"
        " {name: three, depends: two.Succeeded || never, template: pass}]}}",
        "Succeeded",
        {"one": "Succeeded", "two": "Succeeded", "never": "Omitted", "three": "Succeeded"},
    ),
    "dag-task-level-timeout": (
        "  - {name: main, dag: {tasks: [{name: a, template: quick}, {name: b, template: quick, depends: a}]}}\n"
        "  - {name: quick, timeout: 10s, container: {image: busybox, command: [sh, -c, 'exit 0']}}",
        "Succeeded",
        {},
    ),
    "dag-conditional-parameters": (
        "  - name: main\n    outputs: {parameters: [{name: stepresult, valueFrom: {expression:"
        " \"tasks['flip-coin'].outputs.result == 'heads' ? tasks.heads.outputs.result : tasks.tails.outputs.result\"}}]}\n"
        "    dag: {tasks: [{name: flip-coin, template: heads}, {name: heads, depends: flip-coin, template: heads,"
        " when: '{{tasks.flip-coin.outputs.result}} == heads'}, {name: tails, depends: flip-coin, template: heads,"
        " when: '{{tasks.flip-coin.outputs.result}} == tails'}]}",
        "Succeeded",
        {"heads": "Succeeded", "tails": "Skipped"},
    ),
    "dag-inline-workflow": (
        "  - {name: main, dag: {tasks: [{name: a, inline: {container: {image: busybox, command: [echo]}}}]}}",
        "Succeeded",
        {"a": "Succeeded"},
    ),
    "coinflip": (
        "  - {name: main, steps: [[{name: flip, template: heads}],"
        " [{name: heads, template: say, when: '{{steps.flip.outputs.result}} == heads'},"
        " {name: tails, template: say, when: '{{steps.flip.outputs.result}} == tails'}]]}",
        "Succeeded",
        {"heads": "Succeeded", "tails": "Skipped"},
    ),
    "conditionals": (
        "  - name: main\n    steps:\n"
        "    - - {name: a, template: say, when: 'true == true'}\n"
        "      - {name: b, template: say, when: 'false == true'}\n"
        "      - {name: c, template: say, when: '1 < 3 && ( foo == foo || fail == pass )'}\n"
        "      - {name: d, template: say, when: '( 1 < 3 ) && !( foo != foo )'}\n"
        "      - {name: e, template: say, when: \"'foo bar' == 'foo bar'\"}",
        "Succeeded",
        {"a": "Succeeded", "b": "Skipped", "c": "Succeeded", "d": "Succeeded", "e": "Succeeded"},
    ),
    "conditionals-complex": (
        "  - {name: main, steps: [[{name: flip, template: heads}], [{name: again, template: heads}],"
        " [{name: both, template: say, when: '( {{steps.flip.outputs.result}} == heads &&"
        " {{steps.again.outputs.result}} == tails ) || {{steps.flip.outputs.result}} == tails'},"
        " {name: regex, template: say, when: '{{steps.flip.outputs.result}} =~ \"^he\"'}]]}",
        "Succeeded",
        {"both": "Skipped", "regex": "Succeeded"},
    ),
    "loops": (
        "  - {name: main, steps: [[{name: print, template: say, withItems: [hello world, goodbye world],"
        " arguments: {parameters: [{name: message, value: '{{item}}'}]}}]]}",
        "Succeeded",
        {"print(0:hello world)": "Succeeded", "print(1:goodbye world)": "Succeeded"},
    ),
    "loops-maps": (
        "  - {name: main, steps: [[{name: os, template: say, withItems: [{image: debian, tag: '9.1'},"
        " {image: alpine, tag: '3.6'}], arguments: {parameters: [{name: message, value: '{{item.image}}'}]}}]]}",
        "Succeeded",
        {"os(0:image:debian,tag:9.1)": "Succeeded"},
    ),
    "loops-dag": (
        "  - {name: main, dag: {tasks: [{name: A, template: say}, {name: B, depends: A, template: say,"
        " withItems: [foo, bar], arguments: {parameters: [{name: message, value: '{{item}}'}]}},"
        " {name: C, depends: B, template: say}]}}",
        "Succeeded",
        {"B": "Succeeded", "B(1:bar)": "Succeeded", "C": "Succeeded"},
    ),
    "loops-sequence": (
        "  - {name: main, steps: [[{name: count, template: say, withSequence: {count: 3},"
        " arguments: {parameters: [{name: message, value: '{{item}}'}]}},"
        " {name: down, template: say, withSequence: {start: 2, end: 1}},"
        " {name: hex, template: say, withSequence: {count: 2, format: testuser%02X}},"
        " {name: none, template: say, withSequence: {count: 0}}]]}",
        "Succeeded",
        {"count(2:2)": "Succeeded", "down(0:2)": "Succeeded", "hex(1:testuser01)": "Succeeded", "none": "Skipped"},
    ),
    "loops-param-result": (
        "  - {name: main, steps: [[{name: generate, template: list}], [{name: sleep, template: say,"
        " withParam: '{{steps.generate.outputs.result}}',"
        " arguments: {parameters: [{name: message, value: '{{item}}'}]}}]]}",
        "Succeeded",
        {"sleep(0:20)": "Succeeded", "sleep(2:22)": "Succeeded"},
    ),
    "output-parameter": (
        "  - {name: main, steps: [[{name: make, template: write}], [{name: use, template: say,"
        " arguments: {parameters: [{name: message, value: '{{steps.make.outputs.parameters.text}}'}]}}]]}",
        "Succeeded",
        {"use": "Succeeded"},
    ),
    "exit-code-output-variable": (
        "  - {name: main, steps: [[{name: failing, template: fail, continueOn: {failed: true}}],"
        " [{name: echo, template: say, arguments: {parameters: [{name: message, value:"
        " '{{steps.failing.exitCode}}'}]}}]]}",
        "Succeeded",
        {"failing": "Failed", "echo": "Succeeded"},
    ),
    "exit-handlers": (
        "  - {name: main, container: {image: alpine, command: [sh, -c, 'exit 1']}}\n"
        "  - {name: handler, steps: [[{name: notify, template: say},"
        " {name: celebrate, template: say, when: '{{workflow.status}} == Succeeded'},"
        " {name: cry, template: say, when: '{{workflow.status}} != Succeeded'}]]}",
        "Failed",
        {"notify": "Succeeded", "celebrate": "Skipped", "cry": "Succeeded"},
    ),
    "exit-handler-step-level": (
        "  - {name: main, steps: [[{name: one, template: pass, onExit: say}], [{name: two, template: fail, onExit: say}]]}",
        "Failed",
        {"one.onExit": "Succeeded", "two": "Failed", "two.onExit": "Succeeded"},
    ),
    "retry-container": (
        "  - {name: main, retryStrategy: {limit: 10}, container: {image: python,"
        " command: [sh, -c, 'test {{retries}} -ge 2']}}",
        "Succeeded",
        {"main(2)": "Succeeded"},
    ),
    "retry-on-error": (
        "  - {name: main, retryStrategy: {limit: 2, retryPolicy: Always}, container: {image: python,"
        " command: [sh, -c, 'exit 3']}}",
        "Failed",
        {"main(2)": "Failed"},
    ),
    "retry-with-steps": (
        "  - {name: main, steps: [[{name: hello1, template: tried}], [{name: hello2, template: tried}]]}\n"
        "  - {name: tried, retryStrategy: {limit: 10}, container: {image: python,"
        " command: [sh, -c, 'test {{retries}} = 1']}}",
        "Succeeded",
        {"hello1(0)": "Failed", "hello2(1)": "Succeeded"},
    ),
    "retry-conditional": (
        "  - {name: main, retryStrategy: {limit: 10, expression: \"asInt(lastRetry.exitCode) > 1\"},"
        " container: {image: python, command: [sh, -c, 'test {{retries}} = 0 && exit 2 || exit 1']}}",
        "Failed",
        {"main(0)": "Failed", "main(1)": "Failed"},
    ),
    "status-reference": (
        "  - {name: main, steps: [[{name: flaky, template: fail, continueOn: {failed: true}}],"
        " [{name: failed, template: say, when: '{{steps.flaky.status}} == Failed'},"
        " {name: succeeded, template: say, when: '{{steps.flaky.status}} == Succeeded'}]]}",
        "Succeeded",
        {"failed": "Succeeded", "succeeded": "Skipped"},
    ),
    "nested-workflow": (
        "  - {name: main, steps: [[{name: nested, template: inner}], [{name: last, template: say,"
        " arguments: {parameters: [{name: message, value: '{{steps.nested.outputs.parameters.out}}'}]}}]]}\n"
        "  - {name: inner, outputs: {parameters: [{name: out, valueFrom: {parameter:"
        " '{{steps.make.outputs.parameters.text}}'}}]}, steps: [[{name: make, template: write}]]}",
        "Succeeded",
        {"last": "Succeeded"},
    ),
    "steps-inline-workflow": (
        "  - {name: main, steps: [[{name: a, inline: {container: {image: busybox, command: [echo]}}}]]}",
        "Succeeded",
        {"a": "Succeeded"},
    ),
    "suspend-template": (
        "  - {name: main, steps: [[{name: build, template: pass}], [{name: delay, template: delay}],"
        " [{name: release, template: pass}]]}\n  - {name: delay, suspend: {duration: 20}}",
        "Succeeded",
        {"delay": "Succeeded", "release": "Succeeded"},
    ),
    "parallelism-nested": (
        "  - {name: main, parallelism: 1, steps: [[{name: a, template: inner}, {name: b, template: inner}]]}\n"
        "  - {name: inner, parallelism: 1, steps: [[{name: x, template: say, withSequence: {count: 3}}]]}",
        "Succeeded",
        {},
    ),
    "recursive-for-loop": (
        "  - {name: main, inputs: {parameters: [{name: n, value: '0'}]}, steps: [[{name: next, template: next,"
        " arguments: {parameters: [{name: n, value: '{{inputs.parameters.n}}'}]}}], [{name: loop, template: main,"
        " when: '{{steps.next.outputs.result}} < 3', arguments: {parameters:"
        " [{name: n, value: '{{steps.next.outputs.result}}'}]}}]]}\n"
        "  - {name: next, inputs: {parameters: [{name: n}]}, script: {image: python, command: [sh],"
        " source: 'echo $(({{inputs.parameters.n}} + 1))'}}",
        "Succeeded",
        {},
    ),
    "handle-large-output-results": (
        "  - {name: main, dag: {tasks: [{name: gen, template: list}, {name: each, depends: gen, template: echoed,"
        " withParam: '{{tasks.gen.outputs.result}}', arguments: {parameters: [{name: n, value: '{{item}}'}]}},"
        " {name: all, depends: each, template: say, arguments: {parameters: [{name: message, value:"
        " '{{tasks.each.outputs.result}}'}]}}]}}\n"
        "  - {name: echoed, inputs: {parameters: [{name: n}]}, script: {image: python, command: [sh],"
        " source: 'echo {{inputs.parameters.n}}'}}",
        "Succeeded",
        {"each": "Succeeded", "all": "Succeeded"},
    ),
}  # fmt: skip
"""Example → templates, phase of the workflow, phases of nodes."""


def manifest(name: str) -> str:
    """Return the workflow of an example."""
    handler = "  onExit: handler\n" if name == "exit-handlers" else ""
    return f"metadata: {{name: main}}\nspec:\n  entrypoint: main\n{handler}  templates:\n{EXAMPLES[name][0]}\n{LEAVES}"
