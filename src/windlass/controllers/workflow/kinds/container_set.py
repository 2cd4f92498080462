"""``containerSet`` templates: containers of one pod, in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.workflow.images import command_of
from windlass.workflow.nodes.retries import seconds_of

Json = dict[str, Any]
FOLDER = "/var/run/windlass/set"
VOLUME = "windlass-set"

ORDER = r"""
s=/var/run/windlass/set
for d in $WINDLASS_AFTER; do
  while [ ! -e "$s/$d" ]; do sleep 0.1; done
  read -r code <"$s/$d"
  if [ "$code" != 0 ]; then
    echo "windlass: container $d failed" >&2
    echo 64 >"$s/.$WINDLASS_NAME" && mv "$s/.$WINDLASS_NAME" "$s/$WINDLASS_NAME"
    exit 64
  fi
done
n=0
while :; do
  "$@" & c=$!
  trap 'kill -TERM $c 2>/dev/null' TERM INT
  wait $c; code=$?
  while kill -0 $c 2>/dev/null; do wait $c; code=$?; done
  [ $code = 0 ] || [ $n -ge "${WINDLASS_RETRIES:-0}" ] && break
  n=$((n + 1)); sleep "${WINDLASS_PAUSE:-0}"
done
echo $code >"$s/.$WINDLASS_NAME" && mv "$s/.$WINDLASS_NAME" "$s/$WINDLASS_NAME"
exit $code
"""


def main_of(template: Mapping[str, Any]) -> Json:
    """Return the container with the outputs: ``main``, else the first one."""
    containers = _containers(template)
    found = next((one for one in containers if one.get("name") == "main"), containers[0])
    mounts = template["containerSet"].get("volumeMounts") or ()
    return {**found, "volumeMounts": [*(found.get("volumeMounts") or ()), *mounts]}


def others_of(template: Mapping[str, Any]) -> list[Json]:
    """Return the containers next to the main one."""
    main = main_of(template)["name"]
    mounts = template["containerSet"].get("volumeMounts") or ()
    return [
        {**one, "volumeMounts": [*(one.get("volumeMounts") or ()), *mounts]}
        for one in _containers(template)
        if one["name"] != main
    ]


def _containers(template: Mapping[str, Any]) -> list[Json]:
    return template["containerSet"].get("containers") or []


def ended_before_outputs(template: Mapping[str, Any]) -> list[str]:
    """Return the containers that the main one waits for before its outputs are taken.

    Those that wait for the main one themselves are left out.
    """
    if not (template.get("outputs") or {}).get("parameters") and not (template.get("outputs") or {}).get(
        "artifacts"
    ):
        return []
    after = {main_of(template)["name"]}
    grown = True
    while grown:
        more = {
            one["name"] for one in _containers(template) if after & set(one.get("dependencies") or ())
        } - after
        grown, after = bool(more), after | more
    return [one["name"] for one in _containers(template) if one["name"] not in after]


def in_order(template: Mapping[str, Any], containers: list[Json]) -> list[Json]:
    """Return the containers, each with a shell around it that waits for others where that is needed."""
    strategy = template["containerSet"].get("retryStrategy") or {}
    awaited = {other for one in containers for other in one.get("dependencies") or ()}
    awaited |= set(ended_before_outputs(template))
    if awaited:
        awaited.add(main_of(template)["name"])
    found = []
    for one in containers:
        after = one.get("dependencies") or ()
        body = {key: value for key, value in one.items() if key != "dependencies"}
        if after or one["name"] in awaited or strategy:
            body = _wrapped(body, after, strategy)
        found.append(body)
    return found


def _wrapped(container: Json, after: Any, strategy: Mapping[str, Any]) -> Json:
    environment = [
        {"name": "WINDLASS_NAME", "value": container["name"]},
        {"name": "WINDLASS_AFTER", "value": " ".join(after)},
    ]
    if strategy:
        pause = seconds_of(strategy["duration"]) if strategy.get("duration") else 0
        environment += [
            {"name": "WINDLASS_RETRIES", "value": str(strategy.get("retries", 0))},
            {"name": "WINDLASS_PAUSE", "value": f"{pause:g}"},
        ]
    command = [*command_of(container), *(container.get("args") or ())]
    body = {key: value for key, value in container.items() if key != "args"}
    return {
        **body,
        "command": ["sh", "-c", ORDER, "windlass-order", *command],
        "env": [*(container.get("env") or ()), *environment],
        "volumeMounts": [*(container.get("volumeMounts") or ()), {"name": VOLUME, "mountPath": FOLDER}],
    }
