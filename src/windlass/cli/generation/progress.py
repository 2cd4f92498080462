"""Progress of a generation job in one line, and its figures in ``windlass show``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from windlass.api.fields.stages import GPU_GATE
from windlass.api.resources import AIGC_JOBS
from windlass.cli.generation import scaling_rows
from windlass.cli.generation.letters import state_folder
from windlass.cli.generation.shards import shard_workers
from windlass.cli.text import condition, plural
from windlass.jobs.aigc.volumes import CONDITION as VOLUMES_READY
from windlass.kits import durations

Object = Mapping[str, Any]
_SHOWN_GROUPS = 3
ENDED = ("Succeeded", "Failed")


def line(obj: Object) -> str:
    """Return the progress in one line: ``Running  1200 of 100000 items  56/s  29m left``."""
    status = obj.get("status") or {}
    items = status.get("items") or {}
    parts = [str(status.get("phase") or "Pending")]
    if items.get("total"):
        parts.append(f"{items.get('done', 0)} of {items['total']} items")
    elif items.get("admitted"):
        parts.append(f"{items['admitted']} rows read")
    if items.get("perSecond") and status.get("phase") not in ENDED:
        parts.append(f"{_rate(items['perSecond'])}/s")
    if items.get("etaSeconds") and status.get("phase") not in ENDED:
        parts.append(f"{durations.write(items['etaSeconds'])} left")
    parts += _failures(items)
    if status.get("lastError") and status.get("phase") not in ENDED:
        parts.append(_error(status["lastError"]))
    if status.get("message") and status.get("phase") not in ENDED:
        parts.append(str(status["message"]))
    left = [group for group in status.get("groups") or () if group.get("remaining")]
    if len(status.get("groups") or ()) > 1 and left:
        named = [f"{group['name']} {group['done']}/{group['total']}" for group in left[:_SHOWN_GROUPS]]
        more = len(left) - len(named)
        parts.append(", ".join(named) + (f" and {plural(more, 'further group')}" if more > 0 else ""))
    return "  ".join(parts)


def _failures(items: Object) -> list[str]:
    """Return how many rows have failed for good, and how many are tried again."""
    dead, failed = int(items.get("deadLetter") or 0), int(items.get("failed") or 0)
    found = [f"{dead} failed"] if dead else []
    return [*found, f"{failed - dead} to be tried again"] if failed > dead else found


def left_of(status: Object) -> int:
    """Return the number of rows of an ended job that are neither done nor failed for good."""
    items = status.get("items") or {}
    return int(items.get("total") or 0) - int(items.get("done") or 0) - int(items.get("deadLetter") or 0)


def _error(record: Object) -> str:
    return f"{record.get('reason')}: {record.get('message')}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def taken_over(obj: Object) -> list[str]:
    """Return the lines about rows that an earlier job left; empty if there are none."""
    record = (obj.get("status") or {}).get("takenOver") or {}
    rows, changed, path = record.get("rows"), record.get("changedRows"), str(record.get("from"))
    lines = [f"{plural(rows, 'row')} of an earlier job taken over from {path}"] if rows else []
    if changed:
        one = changed == 1
        what = "it is processed again and its output" if one else "they are processed again and their outputs"
        row = plural(changed, "row")
        lines.append(
            f"{row} of the input {'has' if one else 'have'} changed since an earlier job: {what} replaced"
        )
    if others := record.get("otherRows"):
        one = others == 1
        lines.append(
            f"warning: {plural(others, 'row')} of {path} {'is' if one else 'are'} not in the input, "
            f"and {'stays' if one else 'stay'} in the outputs"
        )
    if rows and record.get("changed"):
        words = " and ".join(f"another {name}" for name in record["changed"])
        lines.append(f"warning: rows taken over were made with {words}")
    return lines


def remake(obj: Object) -> list[str]:
    """Return how all rows are made again, if outputs of an earlier job stay."""
    record = (obj.get("status") or {}).get("takenOver") or {}
    if not record.get("rows") and not record.get("otherRows"):
        return []
    path = str(record.get("from"))
    paths = shlex.join(["rm", "-rf", path, str(state_folder(path))])
    return [f"to make all rows again: give --output another file, or {paths}"]


def facts(obj: Object) -> list[tuple[str, str]]:
    """Return the figures of an AIGCJob for ``windlass show``; empty for other kinds."""
    if obj.get("kind") != AIGC_JOBS.kind:
        return []
    status = obj.get("status") or {}
    items, quality = status.get("items") or {}, status.get("quality") or {}
    workers = status.get("workers") or {}
    found = [
        ("Phase", str(status.get("phase") or "")),
        ("Message", str(status.get("message") or "")),
        ("Items", _items(items)),
        ("Last error", _error(status["lastError"]) if status.get("lastError") else ""),
        ("Taken over", "\n".join(taken_over(obj))),
        (
            "Quality",
            _quality(quality, obj),
        ),
        ("Latency", _latency(status.get("latency") or {})),
        ("Context", _context(status.get("contextCache") or {})),
        ("Workers", _workers(obj, workers)),
        ("Volumes", _volumes(status)),
        ("Model", _model(status)),
        *scaling_rows.facts(status),
        ("Reserved", reservation(status)),
        ("GPU time", gpu_time(status)),
        (
            "Retries",
            str(int(status.get("attempts") or 1) - 1) if int(status.get("attempts") or 1) > 1 else "",
        ),
        ("Outputs", str(status.get("outputs") or "")),
    ]
    return [(name, text) for name, text in found if text]


def _items(items: Object) -> str:
    if not items:
        return ""
    text = f"{items.get('done', 0)} of {items.get('total', 0)} done"
    text = ", ".join([text, *_failures(items)])
    if items.get("deadLetter"):
        text += f", {plural(items['deadLetter'], 'dead letter')}"
    if items.get("inFlight"):
        text += f", {items['inFlight']} in progress"
    if items.get("perSecond"):
        text += f", {_rate(items['perSecond'])}/s"
    if items.get("etaSeconds"):
        text += f", {durations.write(items['etaSeconds'])} left"
    return text


def _workers(obj: Object, workers: Object) -> str:
    if not workers:
        return ""
    count = shard_workers(obj) or f"{workers.get('running', 0)} of {workers.get('desired', 0)}"
    text = f"{count} run"
    peak = int(workers.get("peakNodes") or 0)
    return f"{text}, on at most {plural(peak, 'node')} at a time" if peak else text


def _volumes(status: Object) -> str:
    """Return which claims and ConfigMaps are missing; empty if none is."""
    found = condition({"status": status}, VOLUMES_READY) or {}
    return str(found.get("message") or "") if found.get("status") == "False" else ""


def _model(status: Object) -> str:
    """Return whether the model is there, and what the workers did for it."""
    conditions = [one for one in status.get("conditions") or () if one.get("type") == "ModelReady"]
    parts = [str(one.get("message") or "") for one in conditions]
    counts = status.get("model") or {}
    parts += [f"{count} {word}" for word, count in sorted(counts.items())]
    return ", ".join(parts)


def _quality(quality: Object, obj: Object) -> str:
    if not quality or "mean" not in quality:
        return unscored(obj)
    text = f"mean {quality['mean']}, {quality.get('below', 0)} below the minimum"
    if quality.get("unscored"):
        text += f", {plural(quality['unscored'], 'row')} without a score"
    again = quality.get("again")
    return f"{text}, {plural(again, 'row')} given to the other model" if again else text


def unscored(obj: Object) -> str:
    """Return the warning about finished rows of which none has a score; empty if one has."""
    quality = (obj.get("status") or {}).get("quality") or {}
    if not quality.get("unscored") or "mean" in quality:
        return ""
    given = (((obj.get("spec") or {}).get("outputs") or {}).get("quality") or {}).get("scorer")
    name = given.get("name") if isinstance(given, Mapping) else given
    none = f"warning: no finished row has a score ({plural(quality['unscored'], 'row')}), so quality is not checked"
    if name:
        return f"{none}: the scorer {name} returned no number"
    return f"{none}: name a scorer (--scorer), or let the outputs have a number in the field score"


def _latency(latency: Object) -> str:
    return ", ".join(f"{name} {_seconds(latency[name])}" for name in ("p50", "p95") if latency.get(name))


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _context(cache: Object) -> str:
    if not cache:
        return ""
    text = f"{cache['mode']}, {cache['windowSeconds']:g} s before each segment, {plural(cache['streams'], 'stream')}"
    if cache.get("waiting"):
        text += f", {plural(cache['waiting'], 'segment')} wait for results"
    return f"{text}, {plural(cache['entries'], 'entry', 'entries')} ({plural(cache['bytes'], 'byte')}) in the cache"


def reservation(status: Object) -> str:
    """Return for when GPUs of stages are reserved, or that a reservation expired; empty if neither holds."""
    found = []
    for stage in status.get("stages") or ():
        if stage.get("phase") == "Reserved":
            gate = f"its workers wait with the gate {GPU_GATE}"
            found.append(
                f"GPUs of {stage['name']} from {stage.get('expectedAt')} on, lent until then; {gate}"
            )
        elif stage.get("expiredAt") and stage.get("phase") in ("Released", "Waiting"):
            found.append(f"the reservation of {stage['name']} expired at {stage['expiredAt']}: it binds late")
    return "\n".join(found)


def gpu_time(status: Object) -> str:
    """Return the GPU seconds: allocated, used and idle, and what binding at once would have cost."""
    allocated, lent = status.get("gpuSeconds"), status.get("gpuReservedSeconds")
    reserved = f"{lent:.1f} s reserved, which others could borrow" if lent else ""
    if allocated is None:
        return reserved
    idle = float(status.get("gpuIdleSeconds") or 0)
    text = f"{allocated:.1f} s allocated, {allocated - idle:.1f} s used, {idle:.1f} s idle"
    eager = status.get("gpuSecondsEager")
    text = f"{text} ({eager:.1f} s if bound at once)" if eager is not None else text
    return f"{text}, {reserved}" if reserved else text


def group_rows(obj: Object) -> list[list[str]]:
    """Return the table of groups: name, total, done, failed, left."""
    groups = (obj.get("status") or {}).get("groups") or ()
    columns = ("name", "total", "done", "failed", "remaining")
    return [[str(group.get(column, "")) for column in columns] for group in groups]


GROUP_HEADER = ["GROUP", "TOTAL", "DONE", "FAILED", "LEFT"]
