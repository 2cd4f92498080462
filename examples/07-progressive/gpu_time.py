"""GPU time that jobs held, and the part of it in which they trained.

``python gpu_time.py whole steps`` compares the jobs ``whole-…`` with the jobs ``steps-…``.
Held is the time from the binding of a pod with GPUs to its end, times its GPUs. Trained is
the time between the lines "train begins" and "train ends" of its log, times its GPUs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

GPU = "nvidia.com/gpu"


def windlass(*arguments: str) -> str:
    return subprocess.run(["windlass", *arguments], check=True, capture_output=True, text=True).stdout


def seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def gpus(pod: dict) -> int:
    return sum(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in pod["spec"]["containers"])


def held(pod: dict) -> tuple[float, float]:
    """Return when the pod was bound, and when its container ended."""
    conditions = {condition["type"]: condition for condition in pod["status"]["conditions"]}
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    return seconds(conditions["PodScheduled"]["lastTransitionTime"]), seconds(ended)


def trained(pod: dict) -> float:
    moments = {}
    for line in windlass("logs", pod["metadata"]["name"], "--timestamps").splitlines():
        moment, _, text = line.partition(" ")
        moments[text] = seconds(moment)
    return moments["train ends"] - moments["train begins"]


def times(prefix: str, pods: list[dict]) -> tuple[int, float, float]:
    """Return the number of pods with GPUs, the GPU time that they held, and that in which they trained."""
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{prefix}-") and gpus(pod)]
    if not mine:
        raise SystemExit(f"gpu_time.py: no pod with a GPU is named {prefix}-…")
    spans = [held(pod) for pod in mine]
    total = sum((end - begin) * gpus(pod) for pod, (begin, end) in zip(mine, spans, strict=True))
    return len(mine), total, sum(trained(pod) * gpus(pod) for pod in mine)


def main() -> None:
    pods = json.loads(windlass("get", "pods", "-o", "json"))["items"]
    table = [["JOBS", "PODS", "GPU HELD", "TRAINED", "GPU IDLE", "IDLE SAVED"]]
    first = None
    for prefix in sys.argv[1:]:
        count, total, useful = times(prefix, pods)
        idle = max(0.0, total - useful)
        saved = "-" if first is None else f"{first - idle:.0f}s"
        first = idle if first is None else first
        table.append([prefix, str(count), f"{total:.0f}s", f"{useful:.0f}s", f"{idle:.0f}s", saved])
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
