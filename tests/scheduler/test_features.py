"""Optional features are imported only when they are used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from windlass.scheduler import features
from windlass.scheduler.compat_metrics.registry import OPTIONAL, modules

PLAIN = """
import asyncio, sys

from kubeobjects import group, node, pod, queue
from prometheus_client import CollectorRegistry
from scheduler_api import Running, SchedulerApi

from windlass.kits.clock import FakeClock
import windlass.app.scheduler_extras
import windlass.scheduler.main
from windlass.scheduler.compat_metrics.registry import CompatMetrics


async def schedule():
    api = SchedulerApi(FakeClock())
    api.add(queue("root"), queue("default"), node("n1", gpus=4))
    api.add(group("g", 2), *[pod(f"g-{i}", group="g") for i in range(2)])
    registry = CollectorRegistry()
    async with Running(api, registry=registry) as running:
        await running.settle(2.0)
        assert sorted(api.bound()) == ["g-0", "g-1"], api.bound()
        CompatMetrics(registry, running.service.sources())
        assert list(registry.collect())


asyncio.run(schedule())
print(*sorted(sys.modules))
"""


def modules_of_a_plain_scheduler() -> set[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_plain_scheduler_imports_no_optional_feature() -> None:
    imported = modules_of_a_plain_scheduler()
    optional = {feature.module for feature in features.FEATURES if feature.enabled_by != "always"}
    packages = {"windlass.scheduler.extender", "windlass.scheduler.loads", "windlass.observe.otlp"}
    assert len(optional) == 7
    assert "windlass.scheduler.compat_metrics.volcano" in imported
    assert not imported & (optional | packages)


@pytest.mark.parametrize("feature", features.FEATURES, ids=lambda feature: feature.name)
def test_the_module_of_each_feature_is_there(feature: features.Feature) -> None:
    module = features.load(feature)
    if isinstance(feature, features.PolicyFeature):
        assert isinstance(getattr(module, feature.service), type)
        assert feature.serves


@pytest.mark.parametrize(
    ("names", "details", "added"),
    [
        ((), (), []),
        ((), ("jobs",), []),
        (("kueue",), (), ["kueue"]),
        (OPTIONAL, (), ["kueue", "yunikorn"]),
        ((), ("cards",), ["hami"]),
        ((), ("legacyCards",), ["hami"]),
    ],
)
def test_names_of_other_schedulers_are_exported_on_request(
    names: tuple[str, ...], details: tuple[str, ...], added: list[str]
) -> None:
    exported = [module.__name__.rpartition(".")[2] for module in modules(names, details)]
    assert sorted(exported) == sorted(["kube", "volcano", "kai", *added])
