"""Starts an etcd and a kube-apiserver on free loopback ports, for as long as a ``with`` block lasts."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def binaries() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("WINDLASS_TOOLS", cache / "windlass/tools")) / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _ready(url: str, token: str) -> bool:
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


@contextmanager
def real_server() -> Iterator[tuple[str, str]]:
    """Yields ``(url, token)`` of an administrator. Raises ``FileNotFoundError`` without the binaries."""
    tools = binaries()
    etcd, peer, port = free_port(), free_port(), free_port()
    token = "admintoken"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run(
            ["openssl", "genrsa", "-out", home / "sa.key", "2048"], check=True, capture_output=True
        )
        subprocess.run(
            ["openssl", "rsa", "-in", home / "sa.key", "-pubout", "-out", home / "sa.pub"],
            check=True,
            capture_output=True,
        )
        (home / "tokens.csv").write_text(f'{token},admin,uid-admin,"system:masters"\n')
        with (home / "log").open("wb") as log:
            store = subprocess.Popen(
                [
                    tools / "etcd",
                    "--name=t",
                    f"--data-dir={home / 'etcd'}",
                    f"--listen-client-urls=http://127.0.0.1:{etcd}",
                    f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                    f"--listen-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-cluster=t=http://127.0.0.1:{peer}",
                    "--unsafe-no-fsync",
                ],
                stdout=log,
                stderr=log,
            )
            server = subprocess.Popen(
                [
                    tools / "kube-apiserver",
                    f"--etcd-servers=http://127.0.0.1:{etcd}",
                    "--bind-address=127.0.0.1",
                    "--advertise-address=127.0.0.1",
                    f"--secure-port={port}",
                    f"--cert-dir={home / 'certs'}",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={home / 'sa.pub'}",
                    f"--service-account-signing-key-file={home / 'sa.key'}",
                    f"--token-auth-file={home / 'tokens.csv'}",
                    "--authorization-mode=RBAC",
                    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                    "--service-cluster-ip-range=10.96.0.0/16",
                    "--endpoint-reconciler-type=none",
                    "--allow-privileged=true",
                ],
                stdout=log,
                stderr=log,
            )
            try:
                url = f"https://127.0.0.1:{port}"
                deadline = time.monotonic() + 60
                while not _ready(url, token):
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(
                            f"kube-apiserver did not start:\n{(home / 'log').read_text()[-3000:]}"
                        )
                    time.sleep(0.2)
                yield url, token
            finally:
                for process in (server, store):
                    process.terminate()
                for process in (server, store):
                    try:
                        process.wait(15)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
