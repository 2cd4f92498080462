"""A real etcd, kube-apiserver and kube-controller-manager on free loopback ports: :func:`serving` for a test.

The binaries come from ``tools/kubernetes/build.sh``. Every process dies with the one that started it,
even if that one is killed.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from throwaway_certificates import Authority, rsa_pair

from windlass.api.errors import StatusError
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.client.transport import Request

CRDS = Path(__file__).resolve().parents[3] / "src" / "windlass" / "api" / "crds"
"""The project's CustomResourceDefinitions, and in its folders those of others."""
REQUIRED = ("etcd", "kube-apiserver", "kube-controller-manager")
ADMIN_TOKEN = "test-admin-token"
USER_TOKEN = "test-user-token"
SCHEDULER_TOKEN = "test-scheduler-token"
SCHEDULER_USER = "system:serviceaccount:windlass-system:windlass-scheduler"
"""The name of the chart's account, with all rights."""
_AUDIT = b"""apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["*"]}
- {level: None, users: ["system:apiserver", "system:kube-controller-manager"]}
- {level: Metadata}
"""
"""What the audit log holds: who asked for what."""
_PORTS = range(20000, 30000)
"""Ports for tests: below node ports and the ports that the kernel chooses."""
_RESERVED: list[socket.socket] = []
"""Abstract sockets with the names of the ports that this process was given; they go with it."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def tools_folder() -> Path:
    """Where ``tools/kubernetes/build.sh`` puts the binaries."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("WINDLASS_TOOLS") or f"{cache}/windlass/tools") / "bin"


def missing(names: Sequence[str] = REQUIRED) -> list[str]:
    return [name for name in names if not os.access(tools_folder() / name, os.X_OK)]


def need(*names: str) -> None:
    """Skips the test, by their names, where binaries are missing."""
    absent = missing(names)
    if absent:
        import pytest

        pytest.skip(f"no {', '.join(absent)}: build them with tools/kubernetes/build.sh")


def free_ports(count: int) -> list[int]:
    """Ports that are free, all different, and given to nobody else on this machine as long as this process lives.

    They lie below those that the kernel gives to whoever connects somewhere, so that none is taken between its choice
    and its use, or while the server that listens there is restarted.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if not _reserve(port):
            continue
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no port is free")


def _reserve(port: int) -> bool:
    """Whether no other test process has it: a server may take half a minute until it listens there."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0windlass-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _RESERVED.append(mark)
    return True


def _die_with_parent() -> None:
    _LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)


def spawn(argv: Sequence[str], log: Path, **extra: object) -> subprocess.Popen[bytes]:
    """Start a process whose output goes to ``log`` and which dies with this one.

    Call it in the main thread: the kernel ends the process when the *thread* that started it ends.
    """
    with open(log, "ab") as stream:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
            **extra,  # type: ignore[call-overload]
        )


def end(process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    """Terminate and reap."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


class RealKube:
    """``start()`` … ``stop()``. ``connection`` is the administrator's. ``audit``: keep :attr:`audit_log`, which
    costs the server some time per request. ``readable``: objects lie in etcd as JSON. ``gangs``: Kubernetes' own
    PodGroups (alpha in 1.36) are served."""

    def __init__(
        self,
        folder: Path,
        *,
        controllers: bool = True,
        audit: bool = True,
        readable: bool = False,
        gangs: bool = False,
    ) -> None:
        self.folder = folder
        self._gangs = gangs
        self._readable = readable
        self._controllers = controllers
        self._audit = audit
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        etcd_client, etcd_peer, secure, manager = free_ports(4)
        self._etcd = f"http://127.0.0.1:{etcd_client}"
        self._etcd_peer = f"http://127.0.0.1:{etcd_peer}"
        self._secure_port = secure
        self._manager_port = manager
        self.authority = Authority()
        self.connection = Connection(
            server=f"https://127.0.0.1:{secure}", ca_data=self.authority.pem, token=ADMIN_TOKEN
        )
        self.kubeconfig = folder / "kubeconfig"
        self.services = "10.96.0.0/16"
        """Where Services have their addresses; to be changed before the start."""

    # Life.

    def start(self) -> None:
        """Raises ``RuntimeError`` with the end of the log when a part does not come up."""
        try:
            self._write_files()
            self._start("etcd", self._etcd_args())
            self.start_apiserver()
            if self._controllers:
                self._start("kube-controller-manager", self._manager_args())
            self._wait_namespaces()
        except BaseException:
            self.stop()
            raise

    def start_apiserver(self) -> None:
        self._start("kube-apiserver", self._apiserver_args())
        self._wait_ready()

    def stop_etcd(self) -> None:
        """At once, as by a crash."""
        process = self._processes.pop("etcd")
        process.kill()
        process.wait()

    def start_etcd(self) -> None:
        """On what it left on disk."""
        self._start("etcd", self._etcd_args())

    def pid(self, name: str) -> int:
        """Of a part that runs: ``etcd``, ``kube-apiserver``, ``kube-controller-manager``."""
        return self._processes[name].pid

    def stop_apiserver(self) -> None:
        """At once: it keeps nothing itself, and its orderly end waits ten seconds for open watches."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    @property
    def etcd_url(self) -> str:
        """Where etcd answers, its JSON gateway included."""
        return self._etcd

    @property
    def audit_log(self) -> Path:
        """Every request that was answered, as JSON lines (audit.k8s.io/v1, level Metadata)."""
        return self.folder / "audit.log"

    def stop(self) -> None:
        """Clients first, the store last. Never raises, never leaves a process."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            process = self._processes.pop(name, None)
            if process is not None:
                end(process, 1.0)

    def forget_history(self) -> None:
        """Compact etcd to its newest revision and restart the server: older resourceVersions become 410."""
        self.stop_controllers()  # they would wait long before they try again
        self.stop_apiserver()
        status = self._post_etcd("/v3/maintenance/status", {})
        self._post_etcd("/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})
        self.start_apiserver()
        if self._controllers:
            self._start("kube-controller-manager", self._manager_args())

    def stop_controllers(self) -> None:
        process = self._processes.pop("kube-controller-manager", None)
        if process is not None:
            end(process, 0.5)

    def _post_etcd(self, path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(
            self._etcd + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def _start(self, name: str, arguments: list[str]) -> None:
        argv = [str(tools_folder() / name), *arguments]
        self._processes[name] = spawn(argv, self.folder / f"{name}.log", cwd=self.folder)

    def _fail(self, name: str, why: str) -> RuntimeError:
        log = self.folder / f"{name}.log"
        tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return RuntimeError(f"{name} {why}\n{tail}")

    def _wait_ready(self, seconds: float = 180.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            process = self._processes["kube-apiserver"]
            if process.poll() is not None:
                raise self._fail("kube-apiserver", f"ended with {process.returncode}")
            try:
                with BlockingClient(self.connection) as client:
                    client.call(Request("GET", "/readyz"))
                return
            except (Unreachable, StatusError) as error:
                if time.monotonic() > deadline:
                    raise self._fail("kube-apiserver", f"is not ready: {error}") from error
            time.sleep(0.1)

    def _wait_namespaces(self) -> None:
        deadline = time.monotonic() + 120
        with BlockingClient(self.connection) as client:
            while True:
                try:
                    client.call(Request("GET", "/api/v1/namespaces/default"))
                    return
                except StatusError as error:
                    if time.monotonic() > deadline:
                        raise self._fail("kube-apiserver", "made no default namespace") from error
                time.sleep(0.1)

    def install_crds(self, folder: Path = CRDS) -> None:
        """Create every CustomResourceDefinition in ``folder`` and wait until its objects are served.

        A definition that another test has created stays. One that another test has deleted is created
        once it is gone.
        """
        import yaml

        documents = [
            one for file in sorted(folder.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())
        ]
        definitions = [one for one in documents if one and one.get("kind") == "CustomResourceDefinition"]
        deadline = time.monotonic() + 120
        with BlockingClient(self.connection) as client:
            waiting = [one for one in definitions if not _create(client, one)]
            while waiting:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"CRD {waiting[0]['metadata']['name']} is not gone")
                time.sleep(0.05)
                waiting = [one for one in waiting if not _create(client, one)]
            for definition in definitions:
                while not _is_served(client, definition):
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"CRD {definition['metadata']['name']} is not served")
                    time.sleep(0.05)

    def install_foreign_crds(self) -> None:
        """The CRDs of others that Windlass reads: of gangs and queues, and of what tells of nodes. Once is enough."""
        import yaml

        foreign = self.folder / "foreign"
        if foreign.exists():
            return
        foreign.mkdir()
        for file in (file for kind in ("kai", "coscheduling", "nodes") for file in (CRDS / kind).iterdir()):
            definition = yaml.safe_load(file.read_text())
            approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
            definition["metadata"].setdefault("annotations", {}).update(approved)
            (foreign / file.name).write_text(yaml.safe_dump(definition))
        self.install_crds(foreign)

    # What the processes read.

    def _write_files(self) -> None:
        private, public = rsa_pair()
        pair = self.authority.server("127.0.0.1", "localhost", "kubernetes.default.svc")
        files = {
            "sa.key": private,
            "sa.pub": public,
            "ca.crt": self.authority.pem,
            "server.crt": pair.cert,
            "server.key": pair.key,
            "tokens.csv": (
                f'{ADMIN_TOKEN},admin,uid-admin,"system:masters"\n{USER_TOKEN},alice,uid-alice,"dev"\n'
                f'{SCHEDULER_TOKEN},{SCHEDULER_USER},uid-scheduler,"system:masters"\n'
            ).encode(),
            "kubeconfig": self._kubeconfig(ADMIN_TOKEN),
            "scheduler.kubeconfig": self._kubeconfig(SCHEDULER_TOKEN),
            "audit.yaml": _AUDIT,
        }
        for name, data in files.items():
            path = self.folder / name
            path.write_bytes(data)
            path.chmod(0o600)

    def _kubeconfig(self, token: str) -> bytes:
        cluster = {
            "server": self.connection.server,
            "certificate-authority-data": base64.b64encode(self.authority.pem).decode(),
        }
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "real", "cluster": cluster}],
                "users": [{"name": "admin", "user": {"token": token}}],
                "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
                "current-context": "real",
            }
        ).encode()

    def _etcd_args(self) -> list[str]:
        return [
            "--name=test",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={self._etcd_peer}",
            f"--initial-advertise-peer-urls={self._etcd_peer}",
            f"--initial-cluster=test={self._etcd_peer}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
        ]

    def _apiserver_args(self) -> list[str]:
        return [
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._secure_port}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--tls-cert-file={self.folder / 'server.crt'}",
            f"--tls-private-key-file={self.folder / 'server.key'}",
            f"--client-ca-file={self.folder / 'ca.crt'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            f"--service-cluster-ip-range={self.services}",
            "--endpoint-reconciler-type=none",
            *(
                (f"--audit-policy-file={self.folder / 'audit.yaml'}", f"--audit-log-path={self.audit_log}")
                if self._audit
                else ()
            ),
            *(("--storage-media-type=application/json",) if self._readable else ()),
            *(
                ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
                if self._gangs
                else ()
            ),
            "--allow-privileged=true",
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
        ]

    def _manager_args(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--authentication-skip-lookup",
            f"--secure-port={self._manager_port}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--node-monitor-grace-period=24h",  # nodes without machines never say that they live
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
        ]


_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _create(client: BlockingClient, definition: dict[str, Any]) -> bool:
    """Create a definition unless it is there. Return ``False`` while it is being deleted."""
    body = json.dumps(definition).encode()
    try:
        client.call(Request("POST", _DEFINITIONS, "", {"content-type": "application/json"}, body))
    except StatusError as error:
        if error.code != 409:
            raise
        try:
            present = json.loads(
                client.call(Request("GET", f"{_DEFINITIONS}/{definition['metadata']['name']}"))
            )
        except StatusError as absent:
            if absent.code != 404:
                raise
            return False
        return "deletionTimestamp" not in present["metadata"]
    return True


def _is_served(client: BlockingClient, definition: dict[str, Any]) -> bool:
    """Return whether the objects can be listed: the server needs a moment after it says *Established*."""
    spec = definition["spec"]
    version = next(one["name"] for one in spec["versions"] if one["served"])
    try:
        client.call(Request("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", "limit=1"))
    except StatusError as error:
        if error.code not in (404, 503):
            raise
        return False
    return True


@contextmanager
def serving(
    folder: Path,
    *,
    controllers: bool = True,
    audit: bool = True,
    crds: bool = False,
    gangs: bool = False,
) -> Iterator[RealKube]:
    """A server for as long as the block; the test is skipped, by name, where a binary is missing.

    ``controllers``, ``audit``, ``gangs`` as in :class:`RealKube`; ``crds``: with the project's
    CustomResourceDefinitions.
    """
    need(*(REQUIRED if controllers else REQUIRED[:2]))
    kube = RealKube(folder, controllers=controllers, audit=audit, gangs=gangs)
    kube.start()
    try:
        if crds:
            kube.install_crds()
        yield kube
    finally:
        kube.stop()
