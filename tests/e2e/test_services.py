"""Services on one box: addresses, names, node ports, variables, endpoints, what kubectl shows."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

Json = dict[str, Any]
SERVE = """
import http.server, os, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.environ['HOSTNAME']} {self.client_address[0]}\\n".encode())
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
ASK = """
import sys, time, urllib.request
until = time.monotonic() + 60
for url in sys.argv[1:]:
    while True:
        try:
            print(urllib.request.urlopen(url, timeout=20).read().decode(), end="")
            break
        except OSError:  # the node has not followed the newest endpoints yet
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        one.windlass(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": SERVERS})
        )
        one.wait_for("the servers are ready", lambda: len(ready(one, "web")) == 2)
        yield one


def pod(name: str, *command: str, labels: Json | None = None, **spec: Any) -> Json:
    container = {
        "name": "c",
        "image": "python",
        "command": list(command),
        "ports": [{"name": "http", "containerPort": 8080}],
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }


def service(name: str, **spec: Any) -> Json:
    fields = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {**fields, **spec}}


PROBE = {"readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/w/ready"]}, "periodSeconds": 1}}
SERVERS = [
    service("web", type="NodePort"),
    service("sticky", sessionAffinity="ClientIP"),
    service("peers", clusterIP="None"),
    service("outer", type="LoadBalancer"),
    service("alias", type="ExternalName", externalName="web.default.svc.cluster.local", selector=None),
    *(
        pod(
            f"web-{n}",
            *("python3", "-c", SERVE),
            labels={"app": "web"},
            subdomain="peers",
            hostname=f"web-{n}",
            container={"readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1}},
        )
        for n in (0, 1)
    ),
]


def ready(box: Box, name: str) -> list[str]:
    found = box.items("endpointslices", labels=f"kubernetes.io/service-name={name}")
    entries = [entry for one in found for entry in one.get("endpoints") or ()]
    return sorted(entry["addresses"][0] for entry in entries if entry["conditions"]["ready"])


def ask(box: Box, name: str, *urls: str) -> list[str]:
    """Ask from a pod of its own. Return the lines of the answers."""
    done = box.windlass("run", "--name", name, "--", "python3", "-c", ASK, *urls)
    return [line for line in done.stdout.splitlines() if line.startswith("web-")]


def test_a_cluster_address_balances_over_ready_pods_under_each_of_its_names(box: Box) -> None:
    urls = ["http://web/", "http://web.default/", "http://web.default.svc/", "http://alias/"]
    lines = ask(box, "names", *urls, "http://web.default.svc.cluster.local:80/")
    assert sorted({line.split()[0] for line in lines}) == ["web-0", "web-1"]
    assert len(lines) == 5


def test_a_client_keeps_its_pod_with_session_affinity(box: Box) -> None:
    lines = ask(box, "affinity", *["http://sticky/"] * 4)
    assert len({line.split()[0] for line in lines}) == 1


def test_members_of_a_headless_service_have_names(box: Box) -> None:
    lines = ask(
        box, "members", "http://web-0.peers:8080/", "http://web-1.peers.default.svc.cluster.local:8080/"
    )
    assert [line.split()[0] for line in lines] == ["web-0", "web-1"]


def test_node_ports_are_served_on_the_loopback_address(box: Box) -> None:
    port = box.get("service", "web")["spec"]["ports"][0]["nodePort"]
    url = f"http://127.0.0.1:{port}/"
    seen = {urllib.request.urlopen(url, timeout=20).read().split()[0] for _ in range(4)}
    assert seen == {b"web-0", b"web-1"}


def test_containers_have_the_variables_of_services(box: Box) -> None:
    lines = box.windlass("run", "--name", "variables", "--", "env").stdout.splitlines()
    address = box.get("service", "web")["spec"]["clusterIP"]
    assert {f"WEB_SERVICE_HOST={address}", f"WEB_PORT_80_TCP=tcp://{address}:80"} <= set(lines)
    assert not any(line.startswith(("PEERS_", "ALIAS_")) for line in lines)


def test_pods_reach_the_api_server_as_kubernetes(box: Box) -> None:
    """The certificate holds for its name and for the address in the variables."""
    program = (
        "import os, ssl, urllib.request as u\n"
        f"context = ssl.create_default_context(cafile={str(box.state.ca_cert)!r})\n"
        "for host in ('kubernetes.default.svc', os.environ['KUBERNETES_SERVICE_HOST']):\n"
        "    port = os.environ['KUBERNETES_SERVICE_PORT']\n"
        "    try: print(u.urlopen(f'https://{host}:{port}/version', context=context, timeout=20).status)\n"
        "    except u.HTTPError as error: print(error.code)\n"
    )
    done = box.windlass("run", "--name", "inside", "--", "python3", "-c", program)
    assert set(done.stdout.split()[-2:]) <= {"200", "401", "403"}, done.stdout
    assert box.get("service", "kubernetes")["spec"]["clusterIP"] == "10.96.0.1"


def test_a_pod_that_is_not_ready_gets_no_connections(box: Box, tmp_path: Path) -> None:
    volume = {"volumeMounts": [{"name": "w", "mountPath": "/tmp/w"}], **PROBE}
    late = pod(
        "late",
        *("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; touch /tmp/w/ready; sleep 1000"),
        labels={"app": "late"},
        container=volume,
        volumes=[{"name": "w", "emptyDir": {}}],
    )
    items = [service("late", selector={"app": "late"}), late]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    box.windlass("apply", "-f", "-", stdin=text)
    box.wait_for("it is an endpoint", lambda: box.items("endpoints") and _unready(box, "late"))
    assert ready(box, "late") == []
    (tmp_path / "go").touch()
    box.wait_for("it is ready", lambda: ready(box, "late"))
    box.windlass("delete", "pod", "late")
    box.wait_for("it is gone", lambda: ready(box, "late") == [] and not _unready(box, "late"))


def _unready(box: Box, name: str) -> list[Json]:
    subsets = box.get("endpoints", name).get("subsets") or ()
    return [address for subset in subsets for address in subset.get("notReadyAddresses") or ()]


@pytest.mark.kubectl
def test_kubectl_shows_and_creates_services(box: Box) -> None:
    done = box.kubectl("expose", "pod", "web-0", "--name", "one", "--port", "8080")
    assert "service/one exposed" in done.stdout
    box.wait_for("it has an endpoint", lambda: ready(box, "one"))
    assert ask(box, "exposed", "http://one:8080/")
    table = {line.split()[0]: line.split() for line in box.kubectl("get", "svc").stdout.splitlines()}
    assert table["NAME"] == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert table["outer"][3] == "<pending>"
    assert table["peers"][1:4] == ["ClusterIP", "None", "<none>"]
    assert table["alias"][1:4] == ["ExternalName", "<none>", "web.default.svc.cluster.local"]
    described = box.kubectl("describe", "svc", "web").stdout
    assert all(f"{address}:8080" in described for address in ready(box, "web"))
    port = box.get("service", "outer")["spec"]["ports"][0]["nodePort"]
    box.wait_for(
        "the load balancer is refused",
        lambda: f"127.0.0.1:{port}" in box.kubectl("describe", "svc", "outer").stdout,
    )
    shown = box.kubectl("get", "endpointslices", "-l", "kubernetes.io/service-name=web").stdout
    assert shown.splitlines()[0].split() == ["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"]
    refused = box.kubectl("patch", "svc", "web", "-p", '{"spec": {"clusterIP": "10.96.9.9"}}', check=False)
    assert "may not change once set" in refused.stderr
