"""Options of the processes, and the response of a second ``up``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windlass.api.errors import WindlassError
from windlass.app.__main__ import main
from windlass.app.options import (
    UpOptions,
    check_gpus,
    child_options,
    parser,
    remote_options,
    up_options,
)
from windlass.app.progress import TextReporter
from windlass.app.running import READY_SECONDS, differs, missing_data, resumed, take_lock, wait_for_record
from windlass.kits.clock import FakeClock, SystemClock
from windlass.kits.state import StateFolder


@pytest.mark.parametrize(
    "text",
    [
        "auto",
        "none",
        "auto:single",
        "simulated:4",
        "simulated:8xH100-80GB",
        "simulated:2xA100-40GB+mig,1xT4:15Gi",
    ],
)
def test_gpus(text: str):
    check_gpus(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "auto:",
        "auto:both",
        "simulated",
        "simulated:",
        "simulated:0",
        "simulated:-1",
        "simulated:1xNobody",
        "all",
    ],
)
def test_gpus_that_cannot_be_meant(text: str):
    with pytest.raises(WindlassError) as caught:
        check_gpus(text)
    assert caught.value.code == "WL-USE-400"
    assert caught.value.remedies


@pytest.mark.parametrize("name", ["Bad Name", "-x", "", "a" * 64, "ä", "a..b"])
def test_names_that_no_node_can_have(name: str):
    with pytest.raises(WindlassError) as caught:
        up(f"--node-name={name}")
    assert caught.value.code == "WL-USE-400"


def test_a_better_name_is_proposed():
    with pytest.raises(WindlassError) as caught:
        up("--node-name", "Bad Name")
    assert caught.value.remedies == ("windlass up --node-name bad-name",)
    assert up("--node-name", "gpu-7.lab").node_name == "gpu-7.lab"


def up(*words: str):
    return up_options(parser().parse_args(["up", "--state", "/s", *words]))


def test_only_what_the_user_chose_counts_as_asked():
    assert up().asked() == {}
    assert up("--port", "0", "--gpus", "none").asked() == {"port": 0, "gpus": "none"}


RECORD = {
    "pid": 9,
    "url": "https://127.0.0.1:7443",
    "port": 7443,
    "node": "box",
    "asked": {"gpus": "simulated:2"},
}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), None),
        (("--gpus", "simulated:2"), None),
        (("--port", "7443"), None),
        (("--node-name", "box"), None),
        (("--gpus", "none"), "--gpus none was asked for, it runs with --gpus simulated:2"),
        (("--port", "1"), "--port 1 was asked for, it runs with the default of --port"),
    ],
)
def test_a_second_up_agrees_or_says_what_differs(words: tuple[str, ...], told: str | None):
    conflict = differs(up(*words), RECORD)
    if told is None:
        assert conflict is None
    else:
        assert conflict is not None
        assert conflict.code == "WL-UP-409"
        assert told in conflict.evidence


def test_a_second_up_compares_what_the_image_map_says(tmp_path: Path):
    path = tmp_path / "images.yaml"
    path.write_text("a: {env: {A: 1}}")
    first = up("--images", str(path))
    record = {**RECORD, "asked": json.loads(json.dumps(first.asked()))}
    assert differs(up("--images", str(path)), record) is None
    assert differs(up(), record) is None
    path.write_text("a: {env: {A: 2}}")
    conflict = differs(up("--images", str(path)), record)
    assert conflict is not None
    assert "another image map" in conflict.evidence
    assert conflict.remedies[0] == "windlass down && windlass up --images FILE"


@pytest.mark.parametrize("role", ["scheduler", "controller"])
def test_what_a_process_does_not_understand_is_told_by_its_own_usage(role: str):
    with pytest.raises(WindlassError, match="not understood: --bogus") as caught:
        parser().parse_args([role, "--bogus"])
    assert caught.value.evidence.startswith(f"usage: windlass {role} ")
    assert caught.value.remedies == (f"windlass {role} --help",)


def test_children_are_told_by_flags():
    words = ["server", "--state", "/s", "--parent", "7", "--tcp-fd", "3", "--unix-fd", "4"]
    options = child_options(parser().parse_args(words))
    assert (options.role, options.parent, options.tcp, options.unix) == ("server", 7, 3, 4)


def test_the_scheduler_on_a_cluster():
    words = ["scheduler", "--kubeconfig", "k", "--scheduler-name", "a", "--scheduler-name", "b"]
    options = remote_options(parser().parse_args([*words, "--leader-elect=true", "--metrics-bind", ":1"]))
    assert options.scheduler_names == ("a", "b")
    assert options.leader_elect is True
    assert remote_options(parser().parse_args(["controller"])).leader_elect is False
    assert remote_options(parser().parse_args(["scheduler"])).scheduler_names == ("windlass",)


@pytest.mark.parametrize("role", ["scheduler", "controller"])
@pytest.mark.parametrize(
    ("words", "code", "exit_status"),
    [(("--bogus",), "WL-USE-400", 2), (("--leader-elect=perhaps",), "WL-USE-400", 2),
     (("--kubeconfig", "{none}"), "WL-KUBECONFIG-404", 3), (("--settings", "{bad}"), "WL-CONFIG-465", 65)],
)  # fmt: skip
def test_the_processes_on_a_cluster_tell_errors_as_words_and_as_json(
    role: str,
    words: tuple[str, ...],
    code: str,
    exit_status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("windlass.observe.logs.configure", lambda **_: None)  # the logging of all later tests
    monkeypatch.setattr("os.umask", lambda _: 0o022)  # and their umask
    bad = tmp_path / "settings.yaml"
    bad.write_text("scheduler: {cyclSeconds: 3}\n")
    given = [role, *(word.format(none=tmp_path / "none", bad=bad) for word in words)]
    assert main(given) == exit_status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error[{code}]: ")
    assert "\ntry: " in said.err
    assert main([*given, "-o", "json"]) == exit_status
    told = json.loads(capsys.readouterr().err)
    assert told["code"] == code
    assert f"error[{code}]: {told['message']}\n" in said.err
    assert told["remedies"]


def test_one_lock_per_folder(tmp_path: Path):
    state = StateFolder(tmp_path)
    lock = take_lock(state)
    assert lock is not None
    assert take_lock(state) is None
    state.write_supervisor({"ready": True, "pid": 1})
    record = wait_for_record(state, SystemClock())
    assert record is not None
    assert record["pid"] == 1
    lock.release()


@pytest.mark.parametrize("record", [{"ready": True, "pid": 1, "startTicks": 0}, {"ready": False, "pid": 1}])
def test_who_is_not_ready_is_waited_for_as_long_as_a_start_may_take(
    tmp_path: Path, fake_clock: FakeClock, record: dict[str, Any]
) -> None:
    """The first is of one that crashed: the number is another process's now."""
    state = StateFolder(tmp_path)
    lock = take_lock(state)
    assert lock is not None
    state.write_supervisor(record)
    begin = fake_clock.monotonic()
    with pytest.raises(WindlassError) as caught:
        wait_for_record(state, fake_clock)  # type: ignore[arg-type]
    assert caught.value.code == "WL-UP-504"
    assert fake_clock.monotonic() - begin > READY_SECONDS
    lock.release()


def test_a_holder_that_lets_go_is_noticed(tmp_path: Path):
    state = StateFolder(tmp_path)
    assert wait_for_record(state, SystemClock()) is None


def test_a_lock_that_cannot_be_taken_is_told(tmp_path: Path):
    with pytest.raises(WindlassError) as caught:
        take_lock(StateFolder(tmp_path / "absent"))
    assert caught.value.code.startswith("WL-STATE-")


def test_a_second_up_does_not_promise_to_stop_on_control_c(capsys: pytest.CaptureFixture[str]):
    record = {**RECORD, "version": "1", "kubeconfig": "/k"}
    TextReporter().ready(record)
    assert "Ctrl-C stops it" in capsys.readouterr().out
    TextReporter().ready({**record, "already": True})
    assert capsys.readouterr().out == (
        "windlass 1 is already running (pid 9) on https://127.0.0.1:7443 (node box)\n"
        "kubeconfig: /k\n"
        "windlass --state / down stops it with everything that it runs.\n"
    )


ASKED = {"gpus": "simulated:4", "nodeName": "box7", "images": {"torch:*": {"path": "/opt/torch/bin"}}}


def test_choices_outlive_a_crash_but_not_an_orderly_end(tmp_path: Path):
    state = StateFolder(tmp_path)
    bare = UpOptions(state)
    assert resumed(bare) == (bare, "")
    state.write_supervisor({"pid": 1, "port": 7443, "asked": ASKED})
    options, told = resumed(bare)
    assert (options.gpus, options.node_name) == ("simulated:4", "box7")
    assert list(options.images or ()) == ["torch:*"]
    assert told.startswith(
        "with the flags of the last windlass up: --gpus simulated:4 --node-name box7 --images"
    )
    options, told = resumed(replace(bare, gpus="none"))
    assert (options.gpus, options.node_name) == ("none", "box7")
    assert "--gpus" not in told
    state.write_supervisor({"port": 7443, "stopped": "2026-01-01T00:00:00Z", "asked": ASKED})
    assert resumed(bare) == (bare, "")


def test_missing_data_of_an_earlier_start_is_told(tmp_path: Path):
    state = StateFolder(tmp_path)
    assert missing_data(state) == ""  # the first start
    state.write_supervisor({"pid": 1, "port": 7443, "asked": {}})
    told = f"{state.database} is missing: all objects of the last start are gone"
    assert missing_data(state).startswith(told)
    state.database.parent.mkdir()  # as by the preparation of the state directory
    assert missing_data(state).startswith(told)
    state.database.touch()
    assert f"{state.database}-wal is missing after an end without shutdown" in missing_data(state)
    state.database.with_name(f"{state.database.name}-wal").touch()
    assert missing_data(state) == ""
    state.database.with_name(f"{state.database.name}-wal").unlink()
    state.write_supervisor({"port": 7443, "stopped": "2026-01-01T00:00:00Z", "asked": {}})
    assert missing_data(state) == ""  # an orderly end leaves no log behind, and a backup has none


def test_an_implicit_start_brings_back_what_was_stopped_in_order(tmp_path: Path):
    state = StateFolder(tmp_path)
    implicit = UpOptions(state, implicit=True)
    assert resumed(implicit) == (implicit, "")  # nothing was ever started there
    stopped = {"port": 9000, "stopped": "2026-01-01T00:00:00Z"}
    state.write_supervisor({**stopped, "asked": {"port": 9000}})
    assert resumed(implicit) == (implicit, "")  # every start tries the last port first
    state.write_supervisor({**stopped, "asked": {"port": 9000, **ASKED, "allowNetwork": True}})
    options, told = resumed(replace(implicit, allow_network=True))  # as the command read it
    assert options.asked() == {**ASKED, "allowNetwork": True}
    assert told == (
        "with the flags of the last windlass up: --gpus simulated:4 --node-name box7 --images FILE "
        "--allow-network-filesystem (the image map as it was read then)"
    )


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ("", "Expecting value"),
        ('{"port": 7443, "asked": {"gpus": "simul', "Unterminated string"),
        ("\xff", "codec can't decode"),
        ("[]", "it contains no options"),
        ('{"port": 7443, "stopped": "2026-01-01T00:00:00Z"}', "it contains no options"),
        ('{"asked": ["--gpus"]}', "it contains no options"),
        ('{"asked": {"gpus": "none", "colour": "red"}}', "unknown options: colour"),
        ('{"asked": {"gpus": 4}}', "gpus cannot be 4"),
        ('{"asked": {"gpus": "some"}}', "--gpus 'some' is not understood: it takes auto"),
        ('{"asked": {"nodeName": "A b"}}', "--node-name 'A b' cannot be"),
        ('{"asked": {"images": {"a": {"shell": "x"}}}}', "a: unknown shell"),
        ('{"asked": {"allowNetwork": "yes"}}', "allowNetwork cannot be 'yes'"),
    ],
)
def test_a_record_that_is_torn_or_unknown_counts_for_nothing_and_an_implicit_start_says_so(
    tmp_path: Path, kept: str, why: str
):
    state = StateFolder(tmp_path)
    state.supervisor.write_bytes(kept.encode("latin-1"))
    bare = UpOptions(state)
    assert resumed(bare) == (bare, "")
    implicit = replace(bare, implicit=True)
    options, told = resumed(implicit)
    assert options == implicit
    assert told.startswith(
        f"with the defaults: {state.supervisor} does not contain the options of the last windlass up ("
    )
    assert why in told


def test_accepted_directory_is_not_questioned_again():
    """A network file system is reported by the first start only, not by the comparison."""
    assert differs(up("--allow-network-filesystem"), RECORD) is None
    conflict = differs(up("--allow-network-filesystem", "--gpus", "none"), RECORD)
    assert conflict is not None
    assert conflict.remedies[0] == "windlass down && windlass up --gpus none --allow-network-filesystem"
