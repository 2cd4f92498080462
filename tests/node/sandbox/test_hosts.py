"""Hosts files and substitution."""

from __future__ import annotations

from dataclasses import replace

from windlass.kits.clock import FakeClock
from windlass.node.pods.pod_names import PodNames
from windlass.node.sandbox.hosts import (
    Directory,
    NamedPod,
    NamedService,
    hostname_of,
    name_switch,
    reads_hosts_first,
    substitute,
)


def pod(
    name: str, address: str, ns: str = "ns", sub: str = "", ready: bool = True, **labels: str
) -> NamedPod:
    return NamedPod(f"u-{name}", ns, name, name, sub, address, labels, ready)


def names_of(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            address, *names = line.split()
            for name in names:
                found.setdefault(name, []).append(address)
    return found


PODS = [
    pod("j-m-0", "10.0.0.1", sub="j", job="j"),
    pod("j-w-0", "10.0.0.2", sub="j", ready=False, job="j"),
    pod("other", "10.0.0.9", ns="else", sub="x"),
]
SERVICES = [
    NamedService("ns", "j", {"job": "j"}),
    NamedService("ns", "api", {"job": "j"}, address="10.96.0.7"),
    NamedService("ns", "nobody", {}),
]


def test_every_spelling_of_a_pod_and_a_service_resolves() -> None:
    found = names_of(Directory(PODS, SERVICES).hosts(PODS[1]))
    for name in ("j-m-0", "j-m-0.j", "j-m-0.j.ns", "j-m-0.j.ns.svc", "j-m-0.j.ns.svc.cluster.local"):
        assert found[name] == ["10.0.0.1"], name
    for name in ("j", "j.ns", "j.ns.svc", "j.ns.svc.cluster.local"):
        assert found[name] == ["10.0.0.1", "10.0.0.2"], name
    assert found["api"] == ["10.96.0.7"]
    assert found["localhost"] == ["127.0.0.1", "::1"]
    assert "nobody" not in found


def test_short_names_stay_in_their_namespace() -> None:
    found = names_of(Directory(PODS, SERVICES).hosts(PODS[0]))
    assert "other" not in found
    assert found["other.x.else.svc.cluster.local"] == ["10.0.0.9"]


def test_the_pod_itself_comes_first_with_its_full_name() -> None:
    lines = Directory(PODS, SERVICES).hosts(PODS[0]).splitlines()
    assert lines[3] == "10.0.0.1\tj-m-0.j.ns.svc.cluster.local j-m-0"


def test_host_aliases() -> None:
    text = Directory(PODS, ()).hosts(PODS[0], [{"ip": "1.2.3.4", "hostnames": ["db", "db.local"]}])
    assert text.endswith("1.2.3.4\tdb db.local\n")


def test_substitution_takes_whole_names_longest_first() -> None:
    table = {"j-m-0": "127.1.0.1", "j-m-0.j": "127.1.0.1", "j": "127.1.0.1", "m": "9.9.9.9"}
    assert substitute("tcp://j-m-0.j:29500", table) == "tcp://127.1.0.1:29500"
    assert substitute("j-m-0,j-m-01,xj-m-0", table) == "127.1.0.1,j-m-01,xj-m-0"
    assert substitute("--name=m model.m m.py", table) == "--name=9.9.9.9 model.m m.py"
    assert substitute("x", {}) == "x"


def test_paths_and_words_are_no_hosts() -> None:
    table = {"digits": "127.1.0.9", "digits-w-0": "127.1.0.1", "digits-w-0.digits": "127.1.0.1"}
    for kept in (
        "/digits/train.py",
        "digits/train.py",
        "/data/digits-w-0/checkpoint",
        "digits-w-0/out",
        "digits = load(); print(digits)",
        "echo the digits",
        "/digits",
    ):
        assert substitute(kept, table) == kept
    assert substitute("digits", table) == "127.1.0.9"
    assert substitute("digits:80", table) == "127.1.0.9:80"
    assert substitute("--host=digits --port=1", table) == "--host=127.1.0.9 --port=1"
    assert substitute("http://digits/x", table) == "http://127.1.0.9/x"
    assert substitute("me@digits", table) == "me@127.1.0.9"
    assert substitute("digits,digits-w-0.digits", table) == "127.1.0.9,127.1.0.1"
    assert substitute("curl digits:8080/x; ping digits-w-0", table) == "curl 127.1.0.9:8080/x; ping 127.1.0.1"


def test_hostnames() -> None:
    assert hostname_of("pod", "") == "pod"
    assert hostname_of("pod", "h") == "h"
    assert hostname_of("a" * 62 + "-b", "") == "a" * 62


def test_nothing_answers_before_the_hosts_file() -> None:
    assert name_switch("passwd: files\nhosts: resolve files\n") == "passwd: files\nhosts: files dns\n"


def test_an_ended_pod_keeps_its_own_names_and_leaves_its_services() -> None:
    ended = replace(PODS[0], ready=False, over=True)
    found = names_of(Directory([ended, PODS[1]], SERVICES).hosts(PODS[1]))
    assert found["j-m-0.j"] == ["10.0.0.1"]
    assert found["j"] == ["10.0.0.2"]


async def test_names_of_ended_pods_resolve_for_a_minute() -> None:
    clock = FakeClock()
    names = PodNames(clock)
    for one in PODS[:2]:
        names.set_pod(one.uid, one)
    names.retire("u-j-m-0")
    clock.jump(59)
    names.expire()
    await names.settled()
    assert "j-m-0.j" in names.directory.table("ns")
    clock.jump(2)
    names.expire()
    await names.settled()
    assert "j-m-0.j" not in names.directory.table("ns")
    assert "j-w-0.j" in names.directory.table("ns")


async def test_names_of_many_short_pods_are_kept_for_the_last_of_them() -> None:
    clock = FakeClock()
    names = PodNames(clock)
    names.set_pod(PODS[0].uid, PODS[0])  # with a subdomain
    names.retire(PODS[0].uid)
    for number in range(200):
        uid = f"u{number}"
        names.set_pod(uid, NamedPod(uid, "ns", f"p{number}", f"p{number}", "", f"10.0.1.{number}", {}))
        names.retire(uid)
    await names.settled()
    found = names.directory.table("ns")
    assert "j-m-0.j" in found
    assert [f"p{number}" in found for number in (135, 136, 199)] == [False, True, True]
    clock.jump(61)
    names.expire()
    await names.settled()
    assert names.directory.table("ns") == {}


async def test_a_pod_made_anew_takes_its_name_over_at_once() -> None:
    names = PodNames(FakeClock())
    names.set_pod(PODS[0].uid, PODS[0])
    names.retire(PODS[0].uid)
    names.set_pod("u-new", replace(PODS[0], uid="u-new", address="10.0.0.7"))
    await names.settled()
    assert names.directory.table("ns")["j-m-0"] == "10.0.0.7"
    assert list(names.pods) == ["u-new"]
    names.set_pod(PODS[0].uid, None)
    assert list(names.pods) == ["u-new"]


def test_services_leave_out_what_is_held_back_unless_they_say_otherwise() -> None:
    """A headless one has every member of a gang from the beginning, but none that its probes hold back."""

    def one(name: str, last: int, **more: bool) -> NamedPod:
        return NamedPod(name, "ns", name, name, "", f"10.0.0.{last}", {"app": "m"}, **more)

    pods = [one("a", 1, held_back=True), one("b", 2), one("c", 3, ready=True)]
    for address, publishes, expected in (
        ("", False, ["10.0.0.2", "10.0.0.3"]),
        ("", True, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("10.96.0.9", False, ["10.96.0.9"]),
    ):
        service = NamedService("ns", "m", {"app": "m"}, address, publishes)
        lines = Directory(pods, [service]).hosts(pods[2]).splitlines()
        assert [line.split()[0] for line in lines if "m.ns" in line.split()] == expected


def test_services_without_a_selector_resolve_to_what_is_written() -> None:
    services = [
        NamedService("ns", "db", {}, written=(("192.0.2.7", "db-0"), ("192.0.2.8", ""))),
        NamedService("ns", "here", {}, alias="j.ns.svc.cluster.local"),
        NamedService("ns", "out", {}, alias="example.com", written=(("203.0.113.5", ""),)),
        NamedService("ns", "api", {"job": "j"}, address="10.96.0.7", machine_address="127.50.0.7"),
    ]
    directory = Directory(PODS, [SERVICES[0], *services])
    found = names_of(directory.hosts(PODS[0]))
    assert found["db.ns.svc"] == ["192.0.2.7", "192.0.2.8"]
    assert found["db-0.db.ns.svc.cluster.local"] == ["192.0.2.7"]
    assert found["here"] == found["j"] == ["10.0.0.1", "10.0.0.2"]
    assert found["out"] == ["203.0.113.5"]
    assert found["api"] == ["10.96.0.7"]
    assert names_of(directory.hosts(PODS[0], machine="127.0.0.1 localhost"))["api"] == ["127.50.0.7"]


def test_a_machine_that_reads_its_hosts_file_first_needs_no_other_switch() -> None:
    for own in (
        "",
        "hosts: dns files\n",
        "hosts: files mdns4_minimal [NOTFOUND=return] dns\n",
        "#hosts: files dns\n",
    ):
        assert not reads_hosts_first(own)
        assert reads_hosts_first(name_switch(own))
    assert reads_hosts_first("passwd: files\nhosts:          files dns\n")
