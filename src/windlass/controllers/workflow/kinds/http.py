"""``http`` templates: a request that a small script in a pod makes."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

from windlass.api.fields.aigc import IMAGE_VARIABLE
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.expressions import boolean
from windlass.workflow.language.scope import Scope

Json = dict[str, Any]
TIMEOUT_SECONDS = 30
"""Timeout (seconds) of a request, unless the template states one."""
PYTHON_IMAGE = "python:3-alpine"
STATUS = "windlass-http-status"
"""Output parameter with the status code and the headers, for ``successCondition``."""
_STATUS_PATH = "/tmp/windlass-http-status"

SCRIPT = r"""
import base64, json, os, ssl, sys, urllib.error, urllib.request
want = json.loads(os.environ["WINDLASS_HTTP"])
headers = {h["name"]: os.environ[h["env"]] if "env" in h else h["value"] for h in want["headers"]}
body = base64.b64decode(want["body"]) if want["body"] else None
request = urllib.request.Request(want["url"], data=body, headers=headers, method=want["method"])
context = ssl._create_unverified_context() if want["insecure"] else None
try:
    answer = urllib.request.urlopen(request, timeout=want["timeout"], context=context)
except urllib.error.HTTPError as problem:
    answer = problem
except (OSError, ValueError) as problem:
    sys.exit(f"{want['method']} {want['url']}: {problem}")
text = answer.read().decode(errors="replace")
sys.stdout.write(text)
found = {"statusCode": answer.status, "headers": {}}
for name in answer.headers.keys():
    found["headers"][name.title()] = answer.headers.get_all(name)
with open(want["status"], "w") as stream:
    json.dump(found, stream)
if not want["judged"] and not 200 <= answer.status < 300:
    sys.exit(f"{want['method']} {want['url']}: received non-2xx response code: {answer.status}")
"""


def python_image() -> str:
    """Return an image with Python: that of the controllers in a cluster."""
    return os.environ.get(IMAGE_VARIABLE) or PYTHON_IMAGE


def http_script(template: Json) -> Json:
    """Return an ``http`` template as a script. Its result is the body of the answer."""
    http = template["http"] or {}
    headers: list[Json] = []
    environment: list[Json] = []
    for at, header in enumerate(http.get("headers") or ()):
        source = (header.get("valueFrom") or {}).get("secretKeyRef")
        if source:
            environment.append({"name": f"WINDLASS_HEADER_{at}", "valueFrom": {"secretKeyRef": source}})
            headers.append({"name": header["name"], "env": f"WINDLASS_HEADER_{at}"})
        else:
            headers.append({"name": header["name"], "value": str(header.get("value", ""))})
    want = {
        "url": http["url"],
        "method": http.get("method") or "GET",
        "headers": headers,
        "body": _body(http),
        "timeout": float(http.get("timeoutSeconds") or TIMEOUT_SECONDS),
        "insecure": bool(http.get("insecureSkipVerify")),
        "judged": bool(http.get("successCondition")),
        "status": _STATUS_PATH,
    }
    environment.append({"name": "WINDLASS_HTTP", "value": json.dumps(want, separators=(",", ":"))})
    outputs = dict(template.get("outputs") or {})
    if http.get("successCondition"):
        status = {"name": STATUS, "valueFrom": {"path": _STATUS_PATH}}
        outputs |= {
            "parameters": [*(outputs.get("parameters") or ()), status],
            "successCondition": http["successCondition"],
        }
    script = {"image": python_image(), "command": ["python3"], "source": SCRIPT, "env": environment}
    body = {key: value for key, value in template.items() if key != "http"}
    return {**body, "script": script, "outputs": outputs}


def _body(http: Json) -> str:
    """Return the body of the request in base64, as ``bodyFrom.bytes`` has it."""
    if http.get("body"):
        return base64.b64encode(str(http["body"]).encode()).decode()
    return str((http.get("bodyFrom") or {}).get("bytes") or "")


def judged(declared: Json, outputs: Json) -> tuple[Json, str]:
    """Return the outputs of a request without its status, and why its answer is no success."""
    if not declared.get("successCondition"):
        return outputs, ""
    parameters = outputs.get("parameters") or []
    status = next((one["value"] for one in parameters if one["name"] == STATUS), None)
    found = {key: value for key, value in outputs.items() if key != "parameters"}
    if kept := [one for one in parameters if one["name"] != STATUS]:
        found["parameters"] = kept
    if status is None:
        return found, ""
    response = {**json.loads(status), "body": outputs.get("result", "")}
    condition = declared["successCondition"]
    try:
        holds = boolean(Scope({"response": response}).evaluate(condition))
    except EvaluationError as problem:
        return found, f"successCondition '{condition}': {problem}"
    code = response["statusCode"]
    return found, "" if holds else f"successCondition '{condition}' evaluated false (response code: {code})"
