"""MPIJob in both versions: host file, remote shell, keys, launcher and workers."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api import annotations as names
from windlass.jobs.decision import LifecycleState, decide_job
from windlass.jobs.definition import CleanPodPolicy
from windlass.jobs.kubeflow.job import KubeflowJob, read_job
from windlass.jobs.kubeflow.mpi import MPI_JOB, V1, V2, host_file, version_of
from windlass.jobs.kubeflow.pods import build_objects, build_pod, build_services, group_spec
from windlass.jobs.lifecycle import JobPhase
from windlass.jobs.members import RolePod
from windlass.kits.ssh_keys import SshKeyPair

KEYS = SshKeyPair("private", "public")


def job(version: str = V2, *, launcher: dict[str, Any] | None = None, **spec: Any) -> KubeflowJob:
    def template(name: str, **more: Any) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": name, "image": "i", **more}]}}

    obj = {
        "metadata": {
            "name": "pi",
            "namespace": "ns",
            "uid": "u",
            "annotations": {names.WRITTEN_AS: version},
        },
        "spec": {
            "slotsPerWorker": 2,
            "mpiReplicaSpecs": {
                "Launcher": {"template": template("main", command=["mpirun"]), **(launcher or {})},
                "Worker": {"replicas": 2, "template": template("worker")},
            },
            **spec,
        },
    }
    return read_job(MPI_JOB, obj)


def pod(found: KubeflowJob, role: str, index: int = 0) -> dict[str, Any]:
    wanted = found.role(role)
    assert wanted is not None
    return build_pod(found, wanted, index, "volcano")


def environment(found: KubeflowJob, role: str) -> dict[str, str]:
    return {
        entry["name"]: entry["value"] for entry in pod(found, role)["spec"]["containers"][0].get("env", ())
    }


def test_version_is_the_recorded_one_or_told_by_the_fields_of_the_second() -> None:
    assert version_of({names.WRITTEN_AS: V2}, {}) == V2
    assert version_of({}, {"slotsPerWorker": 1}) == V1
    assert version_of({}, {"sshAuthMountPath": "/home/m/.ssh"}) == V2
    assert version_of({names.WRITTEN_AS: "nonsense"}, {"mpiImplementation": "Intel"}) == V2


@pytest.mark.parametrize(
    ("version", "spec", "lines"),
    [
        (V1, {}, "pi-worker-0 slots=2\npi-worker-1 slots=2\n"),
        (V2, {}, "pi-worker-0.pi.ns.svc slots=2\npi-worker-1.pi.ns.svc slots=2\n"),
        (V2, {"mpiImplementation": "Intel"}, "pi-worker-0.pi.ns.svc:2\npi-worker-1.pi.ns.svc:2\n"),
        (
            V2,
            {"mpiImplementation": "MPICH", "runLauncherAsWorker": True},
            "pi-launcher.pi.ns.svc:2\npi-worker-0.pi.ns.svc:2\npi-worker-1.pi.ns.svc:2\n",
        ),
    ],
)
def test_host_file_has_the_form_of_version_and_implementation(
    version: str, spec: dict[str, Any], lines: str
) -> None:
    found = job(version, **spec)
    assert host_file(found) == lines
    assert build_objects(found, KEYS)[0]["data"]["hostfile"] == lines


def test_launcher_of_the_first_version_enters_workers_by_the_script() -> None:
    found = job(V1)
    assert environment(found, "Launcher")["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    (config,) = build_objects(found, None)
    assert set(config["data"]) == {"hostfile", "discover_hosts.sh", "kubexec.sh"}
    assert config["metadata"]["name"] == "pi-config"
    assert pod(found, "Worker", 1)["spec"]["containers"][0]["command"] == ["sleep", "365d"]
    assert "volumeMounts" in pod(found, "Worker")["spec"]["containers"][0]  # its daemon looks for the script


def test_pods_of_the_second_version_have_keys_and_names_of_the_operator() -> None:
    found = job(V2, sshAuthMountPath="/home/mpiuser/.ssh")
    launcher, worker = pod(found, "Launcher"), pod(found, "Worker", 1)
    assert (launcher["metadata"]["name"], worker["metadata"]["name"]) == ("pi-launcher", "pi-worker-1")
    assert launcher["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"
    assert worker["metadata"]["labels"]["training.kubeflow.org/operator-name"] == "mpi-operator"
    assert (worker["spec"]["hostname"], worker["spec"]["subdomain"]) == ("pi-worker-1", "pi")
    assert worker["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    mounts = {
        mount["name"]: mount["mountPath"] for mount in launcher["spec"]["containers"][0]["volumeMounts"]
    }
    assert mounts == {"mpi-job-config": "/etc/mpi", "ssh-auth": "/home/mpiuser/.ssh"}
    secret = build_objects(found, KEYS)[1]
    assert (secret["metadata"]["name"], secret["type"]) == ("pi-ssh", "kubernetes.io/ssh-auth")
    (service,) = build_services(found)
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == ("pi", "None")


@pytest.mark.parametrize(
    ("implementation", "variable", "value"),
    [
        ("OpenMPI", "OMPI_MCA_orte_set_default_slots", "2"),
        ("Intel", "I_MPI_PERHOST", "2"),
        ("MPICH", "HYDRA_HOST_FILE", "/etc/mpi/hostfile"),
    ],
)
def test_launcher_has_the_variables_of_its_implementation(
    implementation: str, variable: str, value: str
) -> None:
    found = job(V2, mpiImplementation=implementation)
    env = environment(found, "Launcher")
    assert (env[variable], env["K_MPI_JOB_ROLE"]) == (value, "launcher")
    assert env["NVIDIA_VISIBLE_DEVICES"] == ""
    assert environment(found, "Worker") == {"K_MPI_JOB_ROLE": "worker"}
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(job(V2, runLauncherAsWorker=True), "Launcher")


def test_gang_is_launcher_and_workers_unless_the_launcher_waits() -> None:
    assert group_spec(job(V2), {})["minMember"] == 3
    waiting = job(V2, launcherCreationPolicy="WaitForWorkersReady")
    assert group_spec(waiting, {})["minMember"] == 2
    launcher = waiting.role("Launcher")
    assert launcher is not None
    extras = MPI_JOB.extras
    assert extras is not None
    workers = [worker(index, ready=index == 0) for index in range(2)]
    assert not extras.may_create(waiting, launcher, workers)
    assert extras.may_create(waiting, launcher, [worker(0, ready=True), worker(1, ready=True)])
    assert extras.may_create(job(V2), launcher, [])


def worker(index: int, *, ready: bool = True, phase: str = "Running") -> RolePod:
    return RolePod(f"pi-worker-{index}", f"w{index}", "Worker", index, phase, ready=ready)


def launcher_pod(uid: str, phase: str, code: int | None = None) -> RolePod:
    return RolePod("pi-launcher", uid, "Launcher", 0, phase, exit_code=code)


def test_launcher_of_the_second_version_is_replaced_until_its_back_off_is_spent() -> None:
    found = job(V2, runPolicy={"backoffLimit": 1}).definition
    state = LifecycleState(JobPhase.RUNNING, started=1.0)
    first = decide_job(found, state, [launcher_pod("a", "Failed", 1), worker(0), worker(1)], 2.0)
    assert first.state.phase is JobPhase.RESTARTING
    assert [one.name for one in first.delete] == ["pi-launcher"]
    second = decide_job(found, first.state, [launcher_pod("b", "Failed", 1), worker(0), worker(1)], 3.0)
    assert second.state.phase is JobPhase.FAILED
    assert job(V2).definition.run.backoff_limit == 6


def test_failed_launcher_waits_longer_after_each_failure() -> None:
    found = job(V2).definition
    state, end = LifecycleState(JobPhase.RUNNING, started=1.0), 100.0
    for number, delay in enumerate((10.0, 20.0, 40.0)):
        failed = RolePod("pi-launcher", f"l{number}", "Launcher", 0, "Failed", exit_code=1, ended=end)
        waiting = decide_job(found, state, [failed, worker(0), worker(1)], end + 1)
        assert (waiting.delete, waiting.due_seconds) == ((), delay - 1)
        assert waiting.state.phase is JobPhase.RESTARTING
        over = decide_job(found, waiting.state, [failed, worker(0), worker(1)], end + delay)
        assert over.delete == (failed,)
        state, end = over.state, end + 1000


def test_launcher_of_the_first_version_fails_the_job_and_a_worker_does_not() -> None:
    found = job(V1).definition
    state = LifecycleState(JobPhase.RUNNING, started=1.0)
    failed = decide_job(found, state, [launcher_pod("a", "Failed", 1), worker(0), worker(1)], 2.0)
    assert failed.state.phase is JobPhase.FAILED
    pods = [launcher_pod("a", "Running"), worker(0), worker(1, phase="Failed")]
    assert decide_job(found, state, pods, 2.0).state.phase is JobPhase.RUNNING
    done = decide_job(found, state, [launcher_pod("a", "Succeeded", 0), worker(0), worker(1)], 2.0)
    assert done.state.phase is JobPhase.SUCCEEDED


def test_old_place_of_the_clean_pod_policy_is_read() -> None:
    assert job(V1, cleanPodPolicy="All").definition.run.clean_pods is CleanPodPolicy.ALL
    both = job(V1, cleanPodPolicy="All", runPolicy={"cleanPodPolicy": "Running"})
    assert both.definition.run.clean_pods is CleanPodPolicy.RUNNING
