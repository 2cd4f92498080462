"""The road of a plain gang: every call from two pods and their PodGroup to the binds of both.

The gang is the third of its kind, on four nodes, with an engine as it is configured by default. So all
caches are warm, no queue, device share or topology is involved, and no optional feature is in use.
Counted are calls of Python functions of ``windlass`` as ``sys.setprofile`` reports them; a generator
counts once per item, and a comprehension counts where the interpreter makes a function of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from windlass.api import annotations as names
from windlass.api import views
from windlass.engine.engine import Engine
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import default_engine

SOURCE = Path(sys.modules["windlass"].__file__ or "").parent
START = 1_767_225_600.0
"""Time of the first cycle, in Unix seconds."""
PAUSE_SECONDS = 10.0
"""Interval between two gangs."""
WARM = 2
"""Number of gangs that are placed before the one that is measured."""


class Call(NamedTuple):
    """One call. ``line``: where the function begins. ``depth``: the number of calls of the road around it."""

    file: str
    line: int
    function: str
    depth: int


class Road(NamedTuple):
    """All calls, in order."""

    calls: Sequence[Call]

    @property
    def functions(self) -> Counter[tuple[str, int, str]]:
        """Number of calls by file, line and function."""
        return Counter((call.file, call.line, call.function) for call in self.calls)

    @property
    def files(self) -> Counter[str]:
        """Number of calls by file."""
        return Counter(call.file for call in self.calls)

    @property
    def packages(self) -> dict[str, tuple[int, int]]:
        """Top-level package → its calls, and its files."""
        calls = Counter(call.file.partition("/")[0] for call in self.calls)
        files = Counter(file.partition("/")[0] for file in self.files)
        return {package: (calls[package], files[package]) for package in sorted(calls)}

    def record(self) -> dict[str, Any]:
        """The road as ``--json`` prints it."""
        return {
            "calls": len(self.calls),
            "functions": len(self.functions),
            "files": len(self.files),
            "packages": {name: {"calls": n, "files": m} for name, (n, m) in self.packages.items()},
            "road": [call._asdict() for call in self.calls],
        }


def measure() -> Road:
    """Return the road of a gang. Raises ``RuntimeError`` if its two pods are not bound."""
    model, engine = ClusterModel(names.SCHEDULER_NAMES), default_engine()
    model.read_labels(engine.reads, images=engine.reads_images)
    for number in range(4):
        model.objects.upsert_node(views.decode_node(views.encode(_node(f"node-{number}"))))
    now = START
    for number in range(WARM):
        _place(model, engine, f"warm-{number}", now)()
        now += PAUSE_SECONDS
    place = _place(model, engine, "plain", now)
    calls: list[Call] = []
    with _recorded(calls):
        place()
    return Road(calls)


def _place(model: ClusterModel, engine: Engine, gang: str, now: float) -> Callable[[], None]:
    """Return what carries a gang from its objects to its binds."""
    group = views.decode_pod_group(views.encode(_pod_group(gang)))
    pods = [views.decode_pod(views.encode(_pod(gang, number))) for number in range(2)]

    def place() -> None:
        model.objects.upsert_group(group)
        for pod in pods:
            model.objects.upsert_pod(pod)
        engine.apply(model.take(now))
        decision = engine.cycle(now)
        for bind in decision.binds:
            model.binds.assume(bind, now)
        if len(decision.binds) != len(pods):
            raise RuntimeError(f"{len(decision.binds)} of {len(pods)} pods were bound: {decision}")

    return place


@contextmanager
def _recorded(calls: list[Call]) -> Iterator[None]:
    """Record into ``calls`` the calls that are made inside."""
    root = f"{SOURCE}/"
    depths: list[bool] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code: CodeType = frame.f_code
            ours = code.co_filename.startswith(root)
            if ours:
                file = code.co_filename.removeprefix(root)
                calls.append(Call(file, code.co_firstlineno, code.co_qualname, sum(depths)))
            depths.append(ours)
        elif event == "return" and depths:
            depths.pop()

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "status": {"allocatable": amounts, "conditions": conditions},
    }


def _metadata(name: str, **more: object) -> dict[str, object]:
    created = "2026-01-01T00:00:00Z"
    return {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created, **more}


def _pod_group(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": _metadata(name),
        "spec": {"minMember": 2, "queue": "default"},
        "status": {"phase": "Inqueue"},
    }


def _pod(gang: str, number: int) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": "1"}
    resources = {"requests": {"cpu": "1", "memory": "1Gi", **gpus}, "limits": gpus}
    container = {"name": "main", "image": "busybox", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(f"{gang}-{number}", annotations={names.GROUP_NAME: gang}),
        "spec": {"schedulerName": "volcano", "containers": [container]},
        "status": {"phase": "Pending"},
    }


def _print(road: Road) -> None:
    print(f"{len(road.calls)} calls of {len(road.functions)} functions in {len(road.files)} files")
    for package, (calls, files) in road.packages.items():
        print(f"  {package:<12}{calls:>5} calls {files:>4} files")
    for file, calls in sorted(road.files.items()):
        print(f"{calls:>4}  {file}")
    for call in road.calls:
        print(f"{'  ' * call.depth}{call.function}  {call.file}:{call.line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    road = measure()
    if parser.parse_args().json:
        print(json.dumps(road.record(), indent=1))
    else:
        _print(road)


if __name__ == "__main__":
    main()
