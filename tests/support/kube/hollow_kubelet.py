"""Kubelet of hollow nodes: it runs the main containers of pods as processes and serves their logs.

kwok keeps the pods' statuses (:mod:`hollow_pods`). Volumes are folders: where a command, a
variable or a file names a mount path, the folder stands there instead. Images are the machine's.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from clusters import Cluster
from hollow_pods import end_pods
from throwaway_certificates import Authority

Json = dict[str, Any]


class HollowKubelet:
    """Server of logs. ``claims``: folder with one for each claim."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._folder = folder
        self.claims = folder / "claims"
        self._logs: dict[str, bytes] = {}
        self.unreadable: set[str] = set()
        """Paths of logs that answer 500 once."""
        logs, unreadable = self._logs, self.unreadable

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                code = 500 if path in unreadable else 200 if path in logs else 404
                unreadable.discard(path)
                data = logs.get(path, b"")
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        pair = authority.server("127.0.0.1")
        (folder / "kubelet.pem").write_bytes(pair.cert + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "kubelet.pem")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def serve(self, cluster: Cluster, nodes: list[str]) -> None:
        """Make the API server ask here for the logs of the nodes."""
        port = self._server.server_address[1]
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        for node in nodes:
            cluster.patch(f"/api/v1/nodes/{node}/status", {"status": status}).ok()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def run(self, cluster: Cluster, pod: Json) -> int:
        """Run the main container of a running pod to its end, as which the pod ends then."""
        metadata, container = pod["metadata"], pod["spec"]["containers"][0]
        namespace, name = metadata["namespace"], metadata["name"]
        places = self._mount(pod, container)
        private = self._folder / "pods" / metadata["uid"]
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(private)}
        for variable in container.get("env") or ():
            environment[variable["name"]] = _replaced(variable.get("value") or "", places)
        words = [*container["command"], *(container.get("args") or ())]
        done = subprocess.run(
            [_replaced(word, places) for word in words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=60,
            env=environment,
            cwd=private,
        )
        path = f"/containerLogs/{namespace}/{name}/{container['name']}"
        self._logs[path] = done.stdout
        code = 1 if done.returncode else 0
        end_pods(cluster, namespace, [name], code)
        return code

    def _mount(self, pod: Json, container: Json) -> dict[str, str]:
        """Make the volumes of a pod. Return mount path → folder."""
        private = self._folder / "pods" / pod["metadata"]["uid"]
        shutil.rmtree(private, ignore_errors=True)
        private.mkdir(parents=True)
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        places: dict[str, str] = {}
        files: dict[Path, str] = {}
        for mount in container.get("volumeMounts") or ():
            volume = volumes[mount["name"]]
            if claim := volume.get("persistentVolumeClaim"):
                folder = self.claims / pod["metadata"]["namespace"] / claim["claimName"]
            else:
                folder = private / mount["name"]
            folder.mkdir(parents=True, exist_ok=True)
            places[mount["mountPath"]] = str(folder)
            for item in (volume.get("downwardAPI") or {}).get("items") or ():
                key = re.fullmatch(r"metadata\.annotations\['(.*)'\]", item["fieldRef"]["fieldPath"])
                assert key is not None, item
                files[folder / item["path"]] = pod["metadata"]["annotations"][key[1]]
        for file, text in files.items():
            file.write_text(_replaced(text, places))
        return places


def _replaced(text: str, places: Mapping[str, str]) -> str:
    if not places:
        return text
    longest = sorted(places, key=len, reverse=True)
    pattern = "|".join(re.escape(place) for place in longest)
    return re.sub(rf"(?<![\w/])(?:{pattern})(?![\w-])", lambda found: places[found[0]], text)
