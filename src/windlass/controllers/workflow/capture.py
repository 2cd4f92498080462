"""Outputs of containers: a small shell around the command copies them to the end of the log.

It runs in every image with ``sh``, ``base64`` and ``mkfifo``. The log is read after the
container has ended, so that no further container and no rights in the pod are needed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from windlass.controllers.workflow.kinds import archived_logs
from windlass.controllers.workflow.kinds.sending import form_of
from windlass.workflow.checks.artifacts import sent_to

Json = dict[str, Any]
MAX_BYTES = 256 * 1024
"""Maximum size (bytes) of a result and of a parameter, as in Argo."""
MARK = "::windlass-output"
_BLOCK = re.compile(r"^::windlass-output (\S+) (\S+)\n(.*?)^::windlass-end$", re.MULTILINE | re.DOTALL)

SCRIPT = r"""
d=$(mktemp -d) || exit 64
t=
if [ -n "$WINDLASS_IN" ]; then
  printf '%s\n' "$WINDLASS_IN" | while read -r hash path sub; do
    mkdir -p "$(dirname "$path")" &&
    if [ "${hash#raw:}" != "$hash" ]; then printf '%s' "${hash#raw:}" | base64 -d >"$path"
    elif [ "${hash#file:}" != "$hash" ]; then
      x="/var/run/windlass/inputs/${hash#file:}"
      [ ! -e "$x" ] || { rm -rf "$path"; cp -a "$x${sub:+/$sub}" "$path"; }
    else mkdir -p "$d/x" && tar -xzf "/var/run/windlass/artifacts/$hash" -C "$d/x" &&
      for x in "$d/x/"*; do mv "$x${sub:+/$sub}" "$path"; done && rm -rf "$d/x"
    fi || { echo "windlass: artifact $path cannot be placed" >&2; exit 64; }
  done || exit 64
fi
if [ -n "$WINDLASS_LOG" ]; then
  mkfifo "$d/p" "$d/e" && {
    tee -a "$d/main.log" ${WINDLASS_RESULT:+"$d/r"} <"$d/p" & t=$!
    tee -a "$d/main.log" <"$d/e" >&2 & t="$t $!"
  }
  "$@" >"$d/p" 2>"$d/e" &
elif [ -n "$WINDLASS_RESULT" ]; then
  mkfifo "$d/p" && { tee "$d/r" <"$d/p" & t=$!; }
  "$@" >"$d/p" &
else
  "$@" &
fi
c=$!
trap 'kill -TERM $c 2>/dev/null' TERM INT
wait $c; code=$?
while kill -0 $c 2>/dev/null; do wait $c; code=$?; done
[ -n "$t" ] && wait $t
for other in $WINDLASS_SET; do while [ ! -e "/var/run/windlass/set/$other" ]; do sleep 0.1; done; done
emit() {
  printf '\n::windlass-output %s %s\n' "$1" "$2"
  [ -n "$3" ] && head -c 262145 "$3" | base64
  echo ::windlass-end
}
[ -n "$WINDLASS_RESULT" ] && emit result ok "$d/r"
printf '%s\n' "$WINDLASS_OUT" | while read -r kind name path; do
  [ -n "$path" ] || continue
  [ "$path" = @log ] && path="$d/main.log"
  if [ ! -e "$path" ]; then emit "$kind/$name" missing ""
  elif [ "$kind" = artifact ]; then
    s=/var/run/windlass/artifacts; mkdir -p "$s" && tar -czf "$d/a" -C "$(dirname "$path")" "$(basename "$path")" &&
    h=$(sha256sum "$d/a" | cut -d' ' -f1) && cp "$d/a" "$s/.$h.$$" && mv "$s/.$h.$$" "$s/$h" &&
    printf %s "$h" >"$d/h" && emit "artifact/$name" ok "$d/h" || emit "artifact/$name" failed ""
  elif [ "${kind#send-}" != "$kind" ]; then
    o=/var/run/windlass/outbox
    if [ "$kind" = send-tar ]; then tar -czf "$o/.$name.new" -C "$(dirname "$path")" "$(basename "$path")"
    else cp -R "$path" "$o/.$name.new"; fi && chmod -R a+rX "$o/.$name.new" && mv "$o/.$name.new" "$o/$name" ||
      { emit "artifact/$name" failed ""; continue; }
    while [ ! -e "$o/.$name.told" ]; do sleep 0.1; done
    if [ -s "$o/.$name.told" ]; then emit "artifact/$name" refused "$o/.$name.told"
    else emit "artifact/$name" sent ""; fi
  else emit "$kind/$name" ok "$path"
  fi
done
rm -rf "$d"
exit $code
"""


def parse_log(text: str) -> dict[str, tuple[str, str]]:
    """Return the captured outputs: ``parameter/NAME`` or ``result`` → state and content.

    Output of the container that looks like a mark does not count: the last mark of each name does.
    """
    found: dict[str, tuple[str, str]] = {}
    for name, state, content in _BLOCK.findall(text):
        try:
            data = base64.b64decode("".join(content.split()), validate=True)
        except binascii.Error:
            continue
        found[name] = (state, data.decode(errors="replace"))
    return found


def without_marks(text: str) -> str:
    """Return a log without the captured outputs."""
    return re.sub(
        r"\n?^::windlass-output \S+ \S+\n.*?^::windlass-end\n?", "", text, flags=re.MULTILINE | re.DOTALL
    )


def wanted(template: Mapping[str, Any], wants_result: bool) -> bool:
    """Return whether a template needs the shell around its command."""
    return wants_result or bool(out_lines(template)) or bool((template.get("inputs") or {}).get("artifacts"))


def out_lines(template: Mapping[str, Any]) -> list[str]:
    """Return the lines that tell the shell what to copy: kind, name, path."""
    outputs = template.get("outputs") or {}
    lines = [
        f"parameter {parameter['name']} {parameter['valueFrom']['path']}"
        for parameter in outputs.get("parameters") or ()
        if (parameter.get("valueFrom") or {}).get("path")
    ]
    lines += [
        f"{_kind(item)} {item['name']} {item['path']}"
        for item in outputs.get("artifacts") or ()
        if item.get("path")
    ]
    return lines


def _kind(artifact: Mapping[str, Any]) -> str:
    if not sent_to(artifact):
        return "artifact"
    return "send-tar" if form_of(artifact) == "tar" else "send-files"


def outputs_of(
    template: Mapping[str, Any], log: Mapping[str, tuple[str, str]], *, strict: bool
) -> tuple[Json, str]:
    """Return the outputs of a container from its log, and what is wrong with them.

    ``strict``: an output that is missing and has no default is an error.
    """
    found: Json = {}
    problem = ""
    if "result" in log:
        found["result"] = log["result"][1].rstrip("\n")
        if len(log["result"][1].encode()) > MAX_BYTES:
            problem = f"the standard output is larger than {MAX_BYTES} bytes: write it to a file and output an artifact"
    declared = template.get("outputs") or {}
    parameters = []
    for parameter in declared.get("parameters") or ():
        source = parameter.get("valueFrom") or {}
        if "path" not in source:
            continue
        state, content = log.get(f"parameter/{parameter['name']}", ("missing", ""))
        if state == "ok" and len(content.encode()) > MAX_BYTES:
            problem = (
                f"output parameter {parameter['name']!r} is larger than {MAX_BYTES} bytes: output an artifact"
            )
        elif state == "ok":
            parameters.append(_entry(parameter, content.removesuffix("\n")))
        elif source.get("default") is not None:
            parameters.append(_entry(parameter, str(source["default"])))
        elif strict:
            problem = (
                f"output parameter {parameter['name']!r}: {source['path']} does not exist after the container"
            )
    artifacts, wrong = _artifacts(declared, log, strict)
    problem = wrong or problem
    if parameters:
        found["parameters"] = parameters
    if artifacts:
        found["artifacts"] = artifacts
    return found, problem


def _artifacts(
    declared: Mapping[str, Any], log: Mapping[str, tuple[str, str]], strict: bool
) -> tuple[list[Json], str]:
    """Return the output artifacts, and what is wrong with the last one that is not there."""
    found: list[Json] = []
    problem = ""
    for artifact in declared.get("artifacts") or ():
        state, content = log.get(f"artifact/{artifact['name']}", ("missing", ""))
        entry = {
            key: value for key, value in artifact.items() if (key, value) != ("path", archived_logs.PATH)
        }
        if state == "ok":
            found.append({**entry, "store": {"sha256": content}})
        elif state == "sent":
            found.append(entry)
        elif state == "refused":
            place = artifact.get("s3") or artifact.get("http") or {}
            where = f"s3://{place.get('bucket')}/{place.get('key')}" if "s3" in artifact else place.get("url")
            problem = f"output artifact {artifact['name']!r} cannot be stored at {where}: {content}"
        elif not artifact.get("optional") and artifact.get("path") and strict:
            problem = (
                f"output artifact {artifact['name']!r}: {artifact['path']} is {state} after the container"
            )
    return found, problem


def _entry(parameter: Mapping[str, Any], value: str) -> Json:
    entry = {"name": parameter["name"], "value": value}
    if parameter.get("globalName"):
        entry["globalName"] = parameter["globalName"]
    return entry
