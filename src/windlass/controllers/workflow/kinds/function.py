"""``function`` templates: a Python function with the inputs as its arguments."""

from __future__ import annotations

import json
from typing import Any

from windlass.controllers.workflow.kinds.http import python_image
from windlass.workflow.checks.kinds import FUNCTION_FIELDS

Json = dict[str, Any]
_OUTPUTS = "/outputs/windlass"

SCRIPT = r"""
import contextlib, importlib, json, os, sys
want = json.loads(os.environ["WINDLASS_FUNCTION"])
sys.path[:0] = [want["path"] or os.getcwd()]
module, _, name = want["entryPoint"].partition(":")
arguments = {}
for key, text in want["arguments"].items():
    try:
        arguments[key] = json.loads(text)
    except ValueError:
        arguments[key] = text
with contextlib.redirect_stdout(sys.stderr):
    call = importlib.import_module(module)
    for part in name.split("."):
        call = getattr(call, part)
    found = call(**arguments)
write = lambda value: value if isinstance(value, str) else json.dumps(value)
if want["outputs"]:
    if not isinstance(found, dict):
        sys.exit(f"{want['entryPoint']} returned {type(found).__name__}: outputs need a dict with {want['outputs']}")
    os.makedirs(want["folder"], exist_ok=True)
    for key in want["outputs"]:
        if key in found:
            with open(os.path.join(want["folder"], key), "w") as stream:
                stream.write(write(found[key]))
if found is not None:
    print(write(found))
"""


def function_script(template: Json) -> Json:
    """Return a ``function`` template as a script.

    Its result is what the function returns, as JSON unless it is text. Output parameters
    without ``valueFrom`` are the values of the returned dictionary.
    """
    function = template["function"] or {}
    inputs = (template.get("inputs") or {}).get("parameters") or ()
    outputs = dict(template.get("outputs") or {})
    named = [one["name"] for one in outputs.get("parameters") or () if not one.get("valueFrom")]
    outputs["parameters"] = [
        one if one.get("valueFrom") else {**one, "valueFrom": {"path": f"{_OUTPUTS}/{one['name']}"}}
        for one in outputs.get("parameters") or ()
    ]
    want = {
        "entryPoint": function["entryPoint"],
        "path": function.get("path") or "",
        "arguments": {one["name"]: one.get("value", "") for one in inputs},
        "outputs": named,
        "folder": _OUTPUTS,
    }
    script = {
        "image": function.get("image") or python_image(),
        "command": function.get("command") or ["python3"],
        "source": SCRIPT,
        "env": [*(function.get("env") or ()), {"name": "WINDLASS_FUNCTION", "value": json.dumps(want)}],
        **{key: function[key] for key in FUNCTION_FIELDS[5:] if key in function},
    }
    body = {key: value for key, value in template.items() if key != "function"}
    return {**body, "script": script, "outputs": outputs}
