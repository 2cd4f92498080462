"""F28: replicas of a job on the host network get ports of their own, if the job asks for that."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from vcjob_cluster import job, task

from windlass.api import annotations as names
from windlass.controllers.vcjob import pods
from windlass.controllers.vcjob.spec import JobSpec, read
from windlass.controllers.vcjob.status import JobState

Json = dict[str, Any]


def host_task(name: str, replicas: int, *ports: int, ask: bool = True, host: bool = True) -> Json:
    made = task(name, replicas)
    template = made["template"]
    template["spec"]["hostNetwork"] = host
    template["spec"]["containers"][0]["ports"] = [{"name": f"p{n}", "containerPort": n} for n in ports]
    template["metadata"] = {"annotations": {names.HOST_PORTS: names.HOST_PORTS_DISTINCT} if ask else {}}
    return made


def spec_of(*tasks: Json) -> JobSpec:
    manifest = job(*tasks)
    manifest["metadata"].update(uid="u1", namespace="team")
    return read(manifest)


def container_of(spec: JobSpec, name: str, index: int) -> Json:
    found = spec.task(name)
    assert found is not None
    return pods.build(spec, JobState(), found, index, {})["spec"]["containers"][0]


@given(st.integers(1, 5), st.integers(1, 5), st.sets(st.integers(1000, 1020), min_size=1, max_size=3))
def test_f28_no_two_replicas_of_a_job_share_a_port(masters: int, workers: int, ports: set[int]) -> None:
    spec = spec_of(host_task("master", masters, *ports), host_task("worker", workers, *ports))
    seen = [
        port["hostPort"]
        for name, count in (("master", masters), ("worker", workers))
        for index in range(count)
        for port in container_of(spec, name, index)["ports"]
    ]
    assert len(seen) == len(set(seen)) == (masters + workers) * len(ports)
    assert {p["containerPort"] for p in container_of(spec, "master", 0)["ports"]} == ports  # as written


def test_program_and_probes_learn_the_port() -> None:
    wanted = host_task("worker", 2, 8080)
    main = wanted["template"]["spec"]["containers"][0]
    main["readinessProbe"] = {"httpGet": {"port": 8080, "path": "/"}}
    main["env"] = [{"name": "ADDRESS", "value": "0.0.0.0:$(HOST_PORT)"}]
    made = container_of(spec_of(wanted), "worker", 1)
    assert made["readinessProbe"]["httpGet"]["port"] == 8081
    assert made["env"][:2] == [
        {"name": "HOST_PORT", "value": "8081"},
        {"name": "HOST_PORT_P8080", "value": "8081"},
    ]
    assert main["readinessProbe"]["httpGet"]["port"] == 8080  # the template itself is unchanged


def test_ports_stay_as_written_without_the_annotation_or_the_host_network() -> None:
    for wanted in (host_task("worker", 2, 8080, ask=False), host_task("worker", 2, 8080, host=False)):
        made = container_of(spec_of(wanted), "worker", 1)
        assert made["ports"] == [{"name": "p8080", "containerPort": 8080}]
        assert "env" not in made


def test_ports_stay_as_written_where_none_is_left() -> None:
    made = container_of(spec_of(host_task("worker", 3, 65534)), "worker", 2)
    assert made["ports"][0]["containerPort"] == 65534
