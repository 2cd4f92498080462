"""A real cluster into which Windlass is installed, and its two processes run with exactly the chart's rights.

There is no kubelet: what a Deployment's container would run is started here as a process, with its arguments and
a token of its ServiceAccount.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from clusters import Cluster
from realkube import RealKube, end, free_ports, spawn

from windlass.api.error_codes import exit_status_of
from windlass.scheduler.leader.election import LOST

SPACE = "windlass-system"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def windlass(kube: RealKube, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of ``windlass`` as the cluster's administrator."""
    argv = [sys.executable, "-m", "windlass", "--kubeconfig", str(kube.kubeconfig), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS")}
    environment["NO_COLOR"] = "1"
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=120, env=environment, cwd=kube.folder
    )


class InstalledProcess:
    """``part`` is ``scheduler`` or ``controllers``, as its Deployment in the cluster says to run it.

    One that has ended because it lost its lease (on a machine that gives it no processor) is started again when it is
    next looked at, as a kubelet would; one that ended otherwise is not."""

    def __init__(self, kube: RealKube, cluster: Cluster, part: str, number: int = 0) -> None:
        self._stopped = False
        self.log = kube.folder / f"windlass-{part}-{number}.log"
        self.port, self._progress_port = free_ports(2)
        path = f"/apis/apps/v1/namespaces/{SPACE}/deployments/windlass-{part}"
        spec = cluster.get(path).ok()["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        argv = [
            sys.executable,
            "-m",
            "windlass",
            *(self._here(word, cluster, kube) for word in container["args"]),
        ]
        argv += ["--kubeconfig", str(self._account(kube, cluster, spec["serviceAccountName"]))]
        self._argv = argv
        self._process = spawn(argv, self.log)

    def _keep_up(self) -> None:
        if self._process.poll() == exit_status_of(LOST) and not self._stopped:
            self._process = spawn(self._argv, self.log)

    def _here(self, word: str, cluster: Cluster, kube: RealKube) -> str:
        if word.startswith("--metrics-bind="):
            return f"--metrics-bind=127.0.0.1:{self.port}"
        if word.startswith("--config="):
            data = cluster.get(f"/api/v1/namespaces/{SPACE}/configmaps/windlass-scheduler").ok()["data"]
            file = kube.folder / "windlass.conf"
            file.write_text(data["windlass.conf"])
            return f"--config={file}"
        if word.startswith("--settings="):
            data = cluster.get(f"/api/v1/namespaces/{SPACE}/configmaps/windlass-settings").ok()["data"]
            assert "progressBind: :10443" in data["settings.yaml"]
            file = self.log.with_suffix(".yaml")  # a machine has several clusters, each with this endpoint
            own = f"progressBind: 127.0.0.1:{self._progress_port}"
            file.write_text(data["settings.yaml"].replace("progressBind: :10443", own))
            return f"--settings={file}"
        return word.replace("$(POD_NAMESPACE)", SPACE)

    @staticmethod
    def _account(kube: RealKube, cluster: Cluster, name: str) -> Path:
        """A kubeconfig with a token that the server issues for the account, and nothing else."""
        path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
        token = cluster.post(path, asked).ok(201)["status"]["token"]
        where = {
            "server": kube.connection.server,
            "certificate-authority-data": base64.b64encode(kube.authority.pem).decode(),
        }
        (kube.folder / f"{name}.token").write_text(token)
        config = {
            "clusters": [{"name": "c", "cluster": where}],
            "users": [{"name": "u", "user": {"tokenFile": f"{name}.token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = kube.folder / f"{name}.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self, path: str = "/readyz") -> int:
        """Status of the probe; 0 while nothing listens."""
        self._keep_up()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def value(self, metric: str) -> float:
        """A metric; -1 while nothing listens, or there is none."""
        self._keep_up()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return -1.0
        return next((float(line.split(" ")[1]) for line in lines if line.startswith(f"{metric} ")), -1.0)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """Returns the exit status."""
        self._stopped = True
        end(self._process)
        return self._process.returncode
