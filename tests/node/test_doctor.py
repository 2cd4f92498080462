"""Facts for the doctor: each weakness has a fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.devices.node_annotation import NODE_DEVICES, DeviceRecord, write
from windlass.node import doctor
from windlass.node.devices import discovery
from windlass.node.devices.discovery import Inventory, discover
from windlass.node.devices.mps import Daemon
from windlass.node.limits import CgroupLimiter, WatchLimiter
from windlass.node.options import AgentOptions, ImageEntry, OptionError, image_entry, parse_images
from windlass.node.sandbox.pod_network import Capabilities


def test_facts_of_this_machine(tmp_path: Path) -> None:
    found = list(doctor.facts(tmp_path / "not/yet", AgentOptions(gpus="none")))
    topics = {fact.topic.split(".")[0] for fact in found}
    assert topics >= {"outbound", "limits", "gpus", "capacity", "images"}
    assert all(fact.fix for fact in found if fact.level != doctor.OK and fact.topic != "images")
    assert not (tmp_path / "not").exists()


def test_refused_namespaces_are_told_one_by_one() -> None:
    found = doctor.isolation_facts(
        Capabilities(True, ("mnt",), False, {"net": "Operation not permitted", "pid": "x"})
    )
    assert [(f.topic, f.level) for f in found] == [
        ("isolation", "ok"),
        ("isolation.net", "weak"),
        ("isolation.pid", "weak"),
    ]
    assert "Operation not permitted" in found[1].text


@pytest.mark.parametrize(
    ("path", "value", "fix"),
    [
        ("max_user_namespaces", "0", "sysctl user.max_user_namespaces"),
        ("unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("apparmor_restrict_unprivileged_userns", "1", "apparmor_restrict_unprivileged_userns=0"),
        ("nothing", "", "seccomp"),
    ],
)
def test_the_fix_names_the_setting(monkeypatch: pytest.MonkeyPatch, path: str, value: str, fix: str) -> None:
    monkeypatch.setattr(doctor, "_setting", lambda p: value if p.endswith(path) else "")
    assert fix in doctor.namespace_fix(user=True)


def test_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Capabilities(True, ("net",), True)
    assert doctor.outbound_fact(own, "nat: NAT by nft").text == "nat: NAT by nft"
    assert doctor.outbound_fact(Capabilities(False, (), False)).level == "ok"
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "install slirp4netns" in doctor.outbound_fact(own).fix
    monkeypatch.setattr(
        doctor.shutil, "which", lambda name: f"/bin/{name}" if name == "slirp4netns" else None
    )
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert "/dev/net/tun" in doctor.outbound_fact(own).fix
    monkeypatch.setattr(doctor.os, "access", lambda *_: True)
    assert doctor.outbound_fact(own).level == "ok"


def test_doctor_leaves_no_cgroup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    monkeypatch.setattr(doctor, "find_limiter", lambda *_: CgroupLimiter(tmp_path / "base"))
    assert "cgroup v2" in doctor.limits_description(tmp_path, [0])
    assert not (tmp_path / "base").exists()


def test_report_of_the_running_agent_takes_precedence() -> None:
    able = Capabilities(True, ("net", "mnt"), True)
    (fact,) = doctor.isolation_facts(able, "none")
    assert (fact.level, fact.fix) == ("weak", "look for the reason in logs/node.log of the state directory")
    assert "the running agent gives pods none" in fact.text
    assert doctor.isolation_facts(able, "net, mnt")[0].level == "ok"


def test_limits_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.limits_fact(WatchLimiter([0], "no").description).fix
    assert doctor.limits_fact(CgroupLimiter(Path("/c")).description).level == "ok"
    monkeypatch.setattr(discovery, "has_device_files", lambda: False)
    assert "simulated:2" in gpu_facts("none")[0].fix
    monkeypatch.setattr(discovery, "has_device_files", lambda: True)
    assert "nvidia-smi" in gpu_facts("none")[0].fix
    assert "without hardware" in gpu_facts("simulated:2")[0].text
    carved = gpu_facts("simulated:1xA100+mig,1xT4")
    assert [(fact.topic, fact.level) for fact in carved] == [("gpus", "weak"), ("gpus.mig", "ok")]
    assert "as pods request them: 0" in carved[1].text


def gpu_facts(option: str, told: dict[str, str] | None = None) -> list[doctor.Fact]:
    return list(doctor.gpu_facts(discover(option), Daemon(problem="none runs"), told))


def test_unhealthy_gpu_has_a_remedy() -> None:
    sick = [DeviceRecord(0), DeviceRecord(1, model="T4", healthy=False, reason="XID 79")]
    facts = gpu_facts("simulated:2", {NODE_DEVICES: write(sick)})
    assert [fact.text for fact in facts if fact.topic == "gpus.health"] == [
        "GPU 1 (T4) is not used for new pods: XID 79"
    ]
    assert "windlass gpu clear NODE 1" in facts[1].fix


def test_shares_without_a_daemon_are_only_accounted() -> None:
    real = Inventory((DeviceRecord(0, "GPU-0", model="T4"),))
    (_, mps) = doctor.gpu_facts(real, Daemon(problem="no MPS control daemon runs"))
    assert (mps.topic, mps.level, mps.fix) == ("gpus.mps", "weak", "nvidia-cuda-mps-control -d")


def test_the_image_map() -> None:
    images = parse_images(
        {"lab/*": {"venv": "/no/venv"}, "lab/special:1": {"command": "run me", "env": {"A": 1}}}
    )
    special = image_entry(images, "lab/special:1")
    assert special is not None
    assert special.command == ("/bin/sh", "-c", "run me")
    assert special.env == {"A": "1"}
    assert image_entry(images, "lab/other") == ImageEntry(venv="/no/venv")
    assert image_entry(images, "else") is None
    assert "/no/venv does not exist" in doctor.image_facts(AgentOptions(images=images))[1].text
    with pytest.raises(OptionError, match="unknown imag"):
        parse_images({"x": {"imag": 1}})
    with pytest.raises(OptionError, match="must be a mapping"):
        parse_images({"x": 5})
