"""The scheduler's configuration.

at the start, changed at run time, invalid, and as a ConfigMap.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeobjects import node, pod
from prometheus_client import CollectorRegistry
from scheduler_api import Running, SchedulerApi

from windlass.api.errors import WindlassError
from windlass.api.resources import CONFIG_MAPS
from windlass.kits.clock import FakeClock
from windlass.model.cluster.engine_factory import make_engine
from windlass.scheduler.configuration import ConfigFile
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig

GOOD = 'actions: "allocate"\n'
OTHER = 'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: predicates\n'


@pytest.fixture
def api() -> SchedulerApi:
    return SchedulerApi()


def _file(path: Path, text: str) -> ConfigFile:
    path.write_text(text)
    return ConfigFile(str(path), FakeClock())


def test_an_invalid_file_at_the_start_is_reported_with_line_field_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.conf"
    with pytest.raises(WindlassError) as caught:
        _file(
            path, 'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n    enableJobOder: true\n'
        ).start()
    assert caught.value.code == "WL-CONFIG-465"
    assert caught.value.message == f"{path}:5: tiers[0].plugins[0].enableJobOder: is not a switch of a plugin"
    assert caught.value.remedies == ("did you mean enableJobOrder?",)
    path.unlink()
    with pytest.raises(WindlassError, match="does not exist"):
        ConfigFile(str(path), FakeClock()).start()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("halfLife: soon", "halfLife 'soon' is not a duration"),
        ("kValue: -1", "kValue -1 is not a number of at least 0"),
    ],
)
def test_invalid_settings_of_past_usage_are_reported_with_their_field(
    tmp_path: Path, settings: str, word: str
) -> None:
    text = f"actions: allocate\nconfigurations:\n- name: usage\n  arguments: {{{settings}}}\n"
    with pytest.raises(WindlassError, match=word) as caught:
        _file(tmp_path / "scheduler.conf", text).start()
    assert ":2: configurations: " in caught.value.message


def test_a_changed_file_is_adopted_unless_it_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.conf"
    file = _file(path, GOOD)
    assert file.start().actions == ("allocate",)
    adopted: list[SchedulerConfig] = []
    file.check(adopted.append)
    path.write_text('actions: "alocate"\n')
    file.check(adopted.append)
    assert adopted == []
    assert file.fault is not None
    path.write_text(OTHER)
    file.check(adopted.append)
    file.check(adopted.append)
    assert [config.actions for config in adopted] == [("enqueue", "allocate")]
    assert file.fault is None
    path.unlink()
    file.check(adopted.append)
    assert len(adopted) == 1
    assert file.fault is not None
    path.write_text(OTHER)  # a mounted ConfigMap may be away for a moment
    file.check(adopted.append)
    assert file.fault is None


def test_an_invalid_file_is_logged_with_its_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, registry = tmp_path / "scheduler.conf", CollectorRegistry()
    path.write_text(GOOD)
    file = ConfigFile(str(path), FakeClock(), registry)
    file.start()
    in_force = "windlass_configuration_last_reload_successful"
    assert registry.get_sample_value(in_force) == 1
    path.write_text('actions: "alocate"\n')
    file.check(lambda _: None)
    assert registry.get_sample_value(in_force) == 0
    (told,) = caplog.records
    assert told.__dict__["fields"]["remedy"] == "did you mean allocate?"
    path.write_text(OTHER)
    file.check(lambda _: None)
    assert registry.get_sample_value(in_force) == 1


async def test_another_policy_takes_over_running_and_pending_groups(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), pod("runs", gpus=1), pod("waits", gpus=1))
    async with Running(api) as running:
        await running.settle(1.0)
        assert len(api.bound()) == 1
        running.service.use(SchedulerConfig(actions=("allocate",)))
        api.add(node("n2", gpus=1))
        await running.settle(1.0)
        assert api.bound() == ["runs", "waits"]


def _config_map(text: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "volcano-scheduler-config", "namespace": "volcano-system", "uid": "u"},
        "data": {"volcano-scheduler.conf": text},
    }


async def test_the_config_map_of_volcano_is_followed(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1))
    api.put(CONFIG_MAPS, _config_map(OTHER))
    async with Running(api, config_map=True) as running:
        await running.settle(1.0)
        used = running.service.engine.config.actions
        assert used[0] != "allocate"
        api.put(CONFIG_MAPS, _config_map('actions: "alocate"\n'))
        await running.settle(1.0)
        assert running.service.engine.config.actions == used
        assert "ConfigurationRefused" in running.reasons("volcano-scheduler-config")
        api.remove(CONFIG_MAPS, "volcano-system/volcano-scheduler-config")
        await running.settle(1.0)
        assert running.service.engine.config.actions[0] == "allocate"


@pytest.mark.parametrize("mode", ["easy", "conservative", "none"])
def test_backfill_is_as_configured(mode: str) -> None:
    policy = SchedulerConfig(configurations={"backfill": {"reservations": mode}})
    assert make_engine(policy).config.backfill == mode
    assert make_engine(SchedulerConfig()).config.backfill == "easy"


def test_aging_is_as_configured_and_off_with_tiers() -> None:
    tiers = (PluginTier((PluginOption("gang"),)),)
    asked = {"backfill": {"aging": "90m"}}
    assert make_engine(SchedulerConfig()).config.aging_seconds == 3600.0
    assert make_engine(SchedulerConfig(tiers=tiers)).config.aging_seconds == 0.0
    assert make_engine(SchedulerConfig(tiers=tiers, configurations=asked)).config.aging_seconds == 5400.0
