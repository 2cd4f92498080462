"""The settings file: read, refused with place and remedy, beaten by flags, followed while the process runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from scheduler_api import Recorder, Running, SchedulerApi

from windlass.api.errors import WindlassError
from windlass.app import scheduler_extras, settings
from windlass.app.options import RemoteOptions, parser, remote_options
from windlass.app.settings import BOTH, FIELDS, Values
from windlass.app.settings_follower import SettingsFile, own_pod
from windlass.kits.clock import FakeClock
from windlass.scheduler.leader.election import LeaseOptions
from windlass.scheduler.options import SchedulerOptions

GOOD = """log: {level: warning}
leaderElection:
  enabled: true
  retrySeconds: 1
scheduler:
  names: [windlass, volcano]
  bindConcurrencyMax: 64
"""


def told(*arguments: str) -> RemoteOptions:
    return remote_options(parser().parse_args(arguments))


def test_defaults_are_those_of_the_parts() -> None:
    values = settings.defaults()
    assert scheduler_extras.times_of(values) == {
        name: getattr(SchedulerOptions(), name) for name in scheduler_extras.times_of(values)
    }
    lease = scheduler_extras.lease_of(told("scheduler"), "windlass-scheduler")
    assert lease == LeaseOptions()
    assert told("controller").own_namespace == LeaseOptions().namespace


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(GOOD)
    found = told("scheduler", "--settings", str(path), "--log-level", "debug", "--scheduler-name", "mine")
    assert (found.log_level, found.scheduler_names, found.leader_elect) == ("debug", ("mine",), True)
    assert found.values["scheduler.bindConcurrencyMax"] == 64
    assert found.values["leaderElection.retrySeconds"] == 1.0
    assert found.values["controllers.workers"] == 4
    assert told("controller", "--settings", str(path)).log_level == "warning"
    assert told("scheduler", "--settings", str(path), "--leader-elect", "false").leader_elect is False


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("log:\n  levle: info\n", ":2: log.levle is not known", "did you mean level?"),
        ("lgo: {}\n", ":1: lgo is not known", "did you mean log?"),
        ("log:\n  level: loud\n", ":2: log.level 'loud' is not debug or info", "the default is info"),
        ("scheduler: {gangSeconds: 0}\n", ":1: scheduler.gangSeconds 0 is not seconds, 1 to 3600", "30"),
        ("controllers: {workers: true}\n", "workers True is not a whole number, 1 to 64", "default is 4"),
        ("controllers: {workers: 1.5}\n", "workers 1.5 is not a whole number", "default is 4"),
        ("scheduler: {names: windlass}\n", "'windlass' is not a list of names", "[windlass]"),
        (
            "metrics: {details: [cards, pods]}\n",
            "['cards', 'pods'] is not a list of cards, legacyCards, jobs",
            "default is []",
        ),
        ("scheduler: 7\n", ":1: scheduler is not a mapping of fields", "indented below it"),
        ("- log\n", " is not a mapping of sections", "controllers, leaderElection, log"),
        ("log: {level: info\n", "not valid YAML: ", "correct the line"),
        ("log: {level: info}\nlog: {level: debug}\n", "log is given twice", "keep one"),
        (
            "leaderElection:\n  renewSeconds: 20\n",
            ":2: leaderElection.renewSeconds lease 15 s, renew 20 s",
            "leaseSeconds > renewSeconds > retrySeconds",
        ),
    ],
)
def test_a_wrong_file_names_its_place_and_a_remedy(text: str, message: str, remedy: str) -> None:
    with pytest.raises(WindlassError) as caught:
        settings.read(text, "s.yaml")
    assert caught.value.code == "WL-CONFIG-465"
    assert caught.value.message.startswith("s.yaml")
    assert message in caught.value.message
    assert remedy in caught.value.remedies[0]


def test_empty_files_and_sections_say_nothing() -> None:
    assert settings.read("", "s") == {}
    assert settings.read("log:\nscheduler: {}\n", "s") == {}


def test_every_default_may_be_written_as_it_is_shown() -> None:
    for field in FIELDS:
        section, _, name = field.path.partition(".")
        found = settings.read(f"{section}: {{{name}: {settings.shown(field.default)}}}\n", "s")
        assert found == {field.path: field.default}


class Followed:
    """A settings file and what was taken over from it."""

    def __init__(self, path: Path, text: str, flags: Values | None = None) -> None:
        self.path, self.registry, self.recorder = path, CollectorRegistry(), Recorder()
        path.write_text(text)
        self.file = SettingsFile(str(path), text, flags or {}, "scheduler", FakeClock(), self.registry)
        self.taken: list[tuple[dict[str, object], frozenset[str]]] = []
        self.pod = own_pod({"POD_NAME": "windlass-0", "POD_UID": "u", "POD_NAMESPACE": "windlass-system"})

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.file.check(
            lambda values, paths: self.taken.append((dict(values), paths)), self.recorder, self.pod
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"windlass_settings_{name}", labels)


def test_a_change_is_taken_over_while_running(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    followed = Followed(tmp_path / "s.yaml", GOOD)
    with caplog.at_level(logging.INFO, "windlass.settings"):
        followed.write(GOOD.replace("warning", "debug").replace("64", "48").replace("volcano", "other"))
        followed.write(followed.path.read_text())
    ((values, paths),) = followed.taken
    assert paths == {"log.level", "scheduler.bindConcurrencyMax"}
    assert (values["log.level"], values["scheduler.bindConcurrencyMax"]) == ("debug", 48)
    assert values["scheduler.names"] == ("windlass", "volcano")
    assert followed.metric("reloads_total", result="taken over") == 1


def test_a_wrong_file_leaves_the_old_in_force_and_says_so(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "s.yaml", GOOD)
    assert followed.metric("last_reload_successful") == 1
    for _ in range(3):
        followed.write(GOOD.replace("64", "many"))
    assert followed.taken == []
    assert followed.metric("last_reload_successful") == 0
    assert followed.metric("reloads_total", result="refused") == 1
    ((name, reason, message),) = followed.recorder.said
    assert (name, reason) == ("windlass-0", "SettingsRefused")
    assert f"{followed.path}:7: scheduler.bindConcurrencyMax 'many' is not a whole number" in message
    assert "the default is 128" in message
    assert followed.file.values["scheduler.bindConcurrencyMax"] == 64
    followed.path.unlink()
    followed.file.check(lambda *_: None, followed.recorder, followed.pod)
    assert "does not exist" in followed.recorder.said[-1][2]
    followed.write(GOOD)
    assert followed.metric("last_reload_successful") == 1
    assert followed.file.fault is None


def test_flags_stay_in_force_whatever_the_file_says(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "s.yaml", GOOD, {"log.level": "error"})
    followed.write(GOOD.replace("warning", "debug"))
    assert followed.taken == []
    assert followed.file.values["log.level"] == "error"


def test_what_needs_a_restart_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from windlass.observe import logs

    logs.configure()
    followed = Followed(tmp_path / "s.yaml", GOOD)
    followed.write(GOOD.replace("volcano", "other") + "metrics: {bind: ':1'}\n")
    assert "fields=metrics.bind,scheduler.names" in capsys.readouterr().err


async def test_the_service_takes_times_and_limits_over(fake_clock: FakeClock) -> None:
    async with Running(SchedulerApi(fake_clock)) as running:
        service = running.service
        values = {**settings.defaults(), "scheduler.bindConcurrencyMax": 8, "scheduler.gangSeconds": 7.0}
        times = scheduler_extras.times_of(values)
        service.adjust(SchedulerOptions(**times))
        assert service.options.gang_seconds == 7.0
        assert (service.components.bind_queue.limit.ceiling, service.components.bind_queue.limit.limit) == (
            8,
            8,
        )
        assert service.components.gang_watch.patience == 7.0


def test_without_the_downward_api_there_is_no_pod_to_tell() -> None:
    assert own_pod({"POD_NAMESPACE": "x", "POD_NAME": "y"}) is None
    assert {role for field in FIELDS for role in field.roles} == set(BOTH)
