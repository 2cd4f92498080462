"""``plugin`` templates: a sidecar with Argo's executor plugin, and a script that asks it to run the template.

A plugin is a ConfigMap ``NAME-executor-plugin`` with its container, as Argo's command line makes it. It
answers ``POST /api/v1/template.execute``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml

from windlass.controllers.workflow.kinds.http import python_image
from windlass.workflow.language.errors import EvaluationError

Json = dict[str, Any]
Config = Callable[[str, str], str | None]
"""``config(name, key)``: text of a ConfigMap of the namespace."""
SUFFIX = "-executor-plugin"
"""End of the name of a plugin's ConfigMap."""
CONTAINER = "sidecar.container"
_FOLDER = "/tmp/windlass-plugin"

SCRIPT = r"""
import json, os, re, sys, time, urllib.error, urllib.request
want = json.loads(os.environ["WINDLASS_PLUGIN"])
folder, body = want["folder"], json.dumps(want["body"]).encode()
headers = {"Content-Type": "application/json"}
def end(text):
    if os.path.exists("/dev/termination-log"):
        with open("/dev/termination-log", "w") as stream:
            stream.write(text)
    sys.exit(text)
UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
def seconds(text):
    found = re.findall(r"([0-9.]+)(ms|h|m|s)", text)
    return sum(float(number) * UNITS[unit] for number, unit in found) or 1.0
def ask():
    failed = 0
    while True:
        try:
            request = urllib.request.Request(want["url"], data=body, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as problem:
            if problem.code != 503:
                end(f"the plugin answered {problem.code}: {problem.read().decode(errors='replace')[:500]}")
            why = problem
        except OSError as problem:
            why = problem
        failed += 1
        if failed > 120:
            end(f"the plugin does not answer at {want['url']}: {why}")
        time.sleep(min(0.2 * failed, 2.0))
while True:
    reply = ask()
    node = reply.get("node")
    if not node:
        end("the plugin does not run this template: it answered without a node")
    if node.get("phase") in ("Succeeded", "Failed", "Error", "Skipped"):
        break
    time.sleep(seconds(reply.get("requeue") or ""))
outputs = node.get("outputs") or {}
os.makedirs(folder, exist_ok=True)
for one in outputs.get("parameters") or ():
    if one["name"] in want["parameters"]:
        with open(os.path.join(folder, one["name"]), "w") as stream:
            stream.write(str(one.get("value", "")))
if node["phase"] in ("Failed", "Error"):
    end(node.get("message") or f"the plugin ended the template as {node['phase']}")
sys.stdout.write(str(outputs.get("result") or ""))
"""


def plugin_name(template: Json) -> str:
    """Return the name of the plugin of a template."""
    return next(iter(template["plugin"] or {}), "")


def with_plugin(template: Json, workflow: Json, config: Config) -> Json:
    """Return a ``plugin`` template as a script with a sidecar, others as they are.

    Raises :class:`EvaluationError`.
    """
    if "plugin" not in template:
        return template
    name = plugin_name(template)
    text = config(f"{name}{SUFFIX}", CONTAINER)
    if not text:
        raise EvaluationError(
            f"plugin {name!r} is not installed: apply its ConfigMap {name}{SUFFIX} with the key {CONTAINER} "
            f"in namespace {workflow['metadata'].get('namespace')}"
        )
    try:
        container = yaml.safe_load(text)
        port = container["ports"][0]["containerPort"]
    except (yaml.YAMLError, KeyError, IndexError, TypeError):
        raise EvaluationError(f"ConfigMap {name}{SUFFIX}: {CONTAINER} has no container with a port") from None
    metadata = workflow["metadata"]
    about = {field: metadata.get(field) for field in ("name", "namespace", "uid")}
    body = {field: template[field] for field in ("name", "inputs", "outputs", "plugin") if field in template}
    outputs = dict(template.get("outputs") or {})
    parameters = outputs.get("parameters") or ()
    want = {
        "url": f"http://localhost:{port}/api/v1/template.execute",
        "folder": _FOLDER,
        "parameters": [one["name"] for one in parameters],
        "body": {"workflow": {"metadata": about}, "template": body},
    }
    if parameters:
        outputs["parameters"] = [
            {**one, "valueFrom": {**(one.get("valueFrom") or {}), "path": f"{_FOLDER}/{one['name']}"}}
            for one in parameters
        ]
    script = {
        "image": python_image(),
        "command": ["python3"],
        "source": SCRIPT,
        "env": [{"name": "WINDLASS_PLUGIN", "value": json.dumps(want, separators=(",", ":"))}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    rest = {key: value for key, value in template.items() if key != "plugin"}
    sidecars = [*(template.get("sidecars") or ()), container]
    return {**rest, "script": script, "outputs": outputs, "sidecars": sidecars}
