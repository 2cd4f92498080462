"""Plugins ssh, mpi, tensorflow, ray and hcclrank: files, variables, commands and objects."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from fakeapi import Crash
from vcjob_cluster import KEY, World, build, env_of, job, spec_of, task, with_fresh_controller

from windlass.api.resources import SECRETS, SERVICES, VOLCANO_JOBS
from windlass.controllers.vcjob.plugins import BUILT_IN, ssh
from windlass.kits import ssh_keys

Json = dict[str, Any]
KEYS = ssh_keys.SshKeyPair("private\n", "public\n")


def secret(world: World) -> dict[str, str]:
    found = world.api.object(SECRETS, "default/train-ssh")
    assert found is not None
    return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def test_ssh_mounts_the_secret_in_all_containers() -> None:
    one = task()
    one["template"]["spec"]["initContainers"] = [{"name": "before", "image": "python"}]
    body = build(spec_of(one, plugins={"ssh": []}))["spec"]
    (volume,) = body["volumes"]
    names = ["id_rsa", "id_rsa.pub", "authorized_keys", "config"]
    assert volume == {
        "name": "train-ssh",
        "secret": {
            "secretName": "train-ssh",
            "items": [{"key": name, "path": f".ssh/{name}"} for name in names],
            "defaultMode": 0o600,
        },
    }
    mount = {"name": "train-ssh", "mountPath": "/root/.ssh", "subPath": ".ssh"}
    assert [c["volumeMounts"] for c in (*body["containers"], *body["initContainers"])] == [[mount], [mount]]
    elsewhere = build(spec_of(task(), plugins={"ssh": ["--ssh-key-file-path=/home/mpi/.ssh"]}))["spec"]
    assert elsewhere["volumes"][0]["secret"]["defaultMode"] == 0o644
    assert elsewhere["containers"][0]["volumeMounts"][0]["mountPath"] == "/home/mpi/.ssh"


def test_ssh_config_names_every_pod() -> None:
    fixed = task("ps", 3)
    fixed["template"]["spec"].update(hostname="alone", subdomain="elsewhere")
    assert ssh.config(spec_of(task(), fixed), 2022) == (
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        "Host train-worker-0\n  HostName train-worker-0.train\n  Port 2022\n"
        "Host train-worker-1\n  HostName train-worker-1.train\n  Port 2022\n"
        "Host alone\n  HostName alone.elsewhere\n  Port 2022\n"
    )


def test_ssh_keys_are_a_pair_that_stays_the_same() -> None:
    world = World(job(plugins={"ssh": []}))
    world.settle()
    before = secret(world)
    assert before["authorized_keys"] == before["id_rsa.pub"]
    key = serialization.load_pem_private_key(before["id_rsa"].encode(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert before["id_rsa.pub"] == public.decode() + "\n"
    world.api.change(VOLCANO_JOBS, KEY, spec={**world.job["spec"], "tasks": [task(replicas=3)]})
    world.settle()
    assert secret(world) == before


def test_ssh_secret_of_another_owner_holds_the_job() -> None:
    world = World(job(plugins={"ssh": []}))
    world.api.put(SECRETS, {"metadata": {"name": "train-ssh"}, "data": {"id_rsa": ""}})
    world.settle()
    assert (world.group, world.last.requeue_after) == (None, 10.0)
    assert "controlledResources" not in world.status
    assert any("Secret train-ssh exists and does not belong to the job" in w[3] for w in world.words.said)
    world.api.remove(SECRETS, "default/train-ssh")
    world.settle()
    assert world.group is not None
    assert secret(world)["id_rsa"].startswith("-----BEGIN RSA PRIVATE KEY")


def test_ssh_keys_of_the_arguments_are_used() -> None:
    arguments = ["--ssh-private-key=mine", "--ssh-public-key=yours", "--ssh-port=70000"]
    world = World(job(plugins={"ssh": arguments}))
    world.settle()
    found = secret(world)
    assert (found["id_rsa"], found["id_rsa.pub"], found["authorized_keys"]) == ("mine", "yours", "yours")
    assert "Port 22\n" in found["config"]
    assert any("ssh-port 70000 is not a port" in words[3] for words in world.words.said)


def test_ssh_secret_is_created_once_and_ends_with_the_job() -> None:
    """The controller is stopped after each of its writes in turn."""
    for writes in range(6):
        world = World(job(plugins={"mpi": ["--master=worker", "--worker=worker"]}))
        world.api.crash_after = writes
        try:
            world.settle()
        except Crash:
            with_fresh_controller(world)
        world.api.crash_after = None
        world.settle()
        world.admit()
        world.settle()
        keys = secret(world)
        assert world.pods() == ["train-worker-0", "train-worker-1"]
        with_fresh_controller(world)
        world.settle()
        assert secret(world) == keys
        world.command("TerminateJob")
        world.settle()
        for name in world.pods():
            world.take_away(name)
        world.settle()
        assert (world.phase, world.api.object(SECRETS, "default/train-ssh")) == ("Terminated", None)


def test_mpi_gives_the_hosts_to_the_master() -> None:
    spec = spec_of(task("master", 1), task("worker", 2), plugins={"mpi": []})
    assert spec.plugins.keys() == {"mpi", "svc", "ssh"}
    master, worker = build(spec, "master"), build(spec, "worker")
    port = {"name": "mpijob-port", "containerPort": 22}
    assert env_of(master["spec"]["containers"][0])["MPI_HOST"] == "train-worker-0.train,train-worker-1.train"
    assert master["spec"]["containers"][0]["ports"] == worker["spec"]["containers"][0]["ports"] == [port]
    assert "MPI_HOST" not in env_of(worker["spec"]["containers"][0])
    other = spec_of(task("mpimaster", 1), task("mpiworker", 1), plugins={"mpi": []})
    assert "MPI_HOST" not in env_of(build(other, "mpimaster")["spec"]["containers"][0])
    flags = ["--master=mpimaster", "--worker", "mpiworker", "--port=2022"]
    named = spec_of(task("mpimaster", 1), task("mpiworker", 1), plugins={"mpi": flags})
    container = build(named, "mpimaster")["spec"]["containers"][0]
    assert env_of(container)["MPI_HOST"] == "train-mpiworker-0.train"
    assert container["ports"] == [{"name": "mpijob-port", "containerPort": 2022}]


def test_tensorflow_names_the_cluster_and_the_task() -> None:
    spec = spec_of(task("ps", 1), task("w", 2), task("spare", 1), plugins={"tensorflow": ["--worker=w"]})
    assert "svc" in spec.plugins
    cluster = {"ps": ["train-ps-0.train:2222"], "worker": ["train-w-0.train:2222", "train-w-1.train:2222"]}
    for name, index, kind in (("ps", 0, "ps"), ("w", 1, "worker"), ("spare", 0, "spare")):
        text = env_of(build(spec, name, index)["spec"]["containers"][0])["TF_CONFIG"]
        assert json.loads(text) == {"cluster": cluster, "task": {"type": kind, "index": index}}
    alone = spec_of(task("worker", 1), plugins={"tensorflow": []})
    assert "TF_CONFIG" not in env_of(build(alone)["spec"]["containers"][0])


def ray_task(name: str, replicas: int = 1) -> Json:
    found = task(name, replicas)
    found["template"]["spec"]["containers"] = [
        {"name": name, "image": "ray", "command": ["sleep", "1"]},
        {"name": "sidecar", "image": "python", "command": ["sleep", "2"]},
    ]
    return found


def test_ray_replaces_the_commands_of_head_and_workers() -> None:
    spec = spec_of(ray_task("head"), ray_task("worker", 2), plugins={"ray": ["--port=6380"]})
    head, worker = build(spec, "head")["spec"]["containers"], build(spec, "worker", 1)["spec"]["containers"]
    assert head[0]["command"][2] == (
        "ray start --head --block --dashboard-host=0.0.0.0 --port=6380 --dashboard-port=8265 "
        "--ray-client-server-port=10001"
    )
    assert [(port["name"], port["containerPort"]) for port in head[0]["ports"]] == [
        ("gcs", 6380),
        ("dashboard", 8265),
        ("client-server", 10001),
    ]
    assert worker[0]["command"] == ["sh", "-c", "ray start --block --address=train-head-0.train:6380"]
    assert head[1]["command"] == worker[1]["command"] == ["sleep", "2"]


def test_ray_head_service_comes_and_goes_with_the_job() -> None:
    world = World(job(ray_task("head"), ray_task("worker"), plugins={"ray": []}))
    world.settle()
    found = world.api.object(SERVICES, "default/train-head-svc")
    assert found is not None
    assert found["spec"]["selector"] == {
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/task-spec": "head",
    }
    assert found["spec"]["ports"][0] == {"name": "gcs", "port": 6379, "targetPort": "gcs", "protocol": "TCP"}
    world.api.remove(SERVICES, "default/train-head-svc")
    world.settle()
    assert world.api.object(SERVICES, "default/train-head-svc") is not None
    world.command("AbortJob")
    world.settle()
    assert world.phase == "Aborted"
    assert world.api.object(SERVICES, "default/train-head-svc") is None


def test_hcclrank_counts_masters_first_or_takes_the_rank() -> None:
    def rank(name: str, index: int, plugins: Json, **annotations: str) -> str | None:
        tasks = [task("master", 2), task("worker", 2), task("other", 1)]
        for entry in tasks:
            entry["template"]["metadata"] = {"annotations": annotations}
        pod = build(spec_of(*tasks, plugins=plugins), name, index)
        return pod["metadata"]["annotations"].get("hccl/rankIndex")

    plain: Json = {"hcclrank": []}
    assert [rank("master", 1, plain), rank("worker", 1, plain), rank("other", 0, plain)] == ["1", "3", None]
    assert rank("worker", 1, {"hcclrank": ["--master=none"]}) == "1"
    assert rank("worker", 1, {"hcclrank": [], "pytorch": []}) == "2"  # RANK of plugin pytorch
    assert rank("worker", 1, plain, **{"hccl/rankIndex": "9"}) == "9"


@pytest.mark.parametrize("name", ["ssh", "mpi", "tensorflow", "ray", "hcclrank"])
def test_unknown_arguments_are_reported(name: str) -> None:
    assert BUILT_IN[name].problems(["--nope=1"]) == ["flag provided but not defined: -nope"]
    assert BUILT_IN[name].problems([]) == []
