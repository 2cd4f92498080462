"""The bind guard of a scheduler that runs as a process beside a real API server.

There is no Service that leads to it: the configuration that ``windlass install --bind-guard`` makes is created with
the process's own address instead, and nothing else changed.
"""

from __future__ import annotations

import base64
from typing import Any

from livefaults import wait_for
from liveparts import WindlassPart
from realkube import RealKube, free_ports

from windlass.api.errors import StatusError
from windlass.cli import installing
from windlass.cli.guarding import Proof
from windlass.client.blocking import BlockingClient
from windlass.client.transport import Request


class GuardedScheduler(WindlassPart):
    """``windlass scheduler --bind-guard`` under the name of the chart's account."""

    def __init__(self, kube: RealKube, *options: str) -> None:
        pair = kube.authority.server("127.0.0.1")
        self.proof = Proof(kube.authority.pem.decode(), pair.cert.decode(), pair.key.decode(), "word")
        folder = kube.folder / "bind-guard"
        folder.mkdir(exist_ok=True)
        for name, text in self.proof.data.items():
            (folder / name).write_bytes(base64.b64decode(text))
        (self.guard_port,) = free_ports(1)
        more = ("--bind-guard", f"127.0.0.1:{self.guard_port}", "--bind-guard-secret", str(folder))
        super().__init__(kube, "scheduler", *more, *options, through=kube.folder / "scheduler.kubeconfig")

    def answers(self, what: str) -> float:
        return self.value(f'windlass_scheduler_bind_guard_total{{answer="{what}"}}')

    def configuration(self) -> dict[str, Any]:
        """As it is installed, but for where it leads to."""
        wishes = installing.Wishes(crds=False, proof=self.proof)
        (hooks,) = [o for o in installing.objects(wishes) if o["kind"] == installing.WEBHOOKS.kind]
        for hook in hooks["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"]["url"] = f"https://127.0.0.1:{self.guard_port}{path}"
        return hooks

    def put_in_force(self, kube: RealKube) -> None:
        """Returns when the API server asks."""
        with BlockingClient(kube.connection) as client:
            client.create(installing.WEBHOOKS, self.configuration())
            wait_for(lambda: self._asked(client), "the API server does not ask before it binds")

    def _asked(self, client: BlockingClient) -> bool:
        binding = b'{"metadata":{"name":"nobody"},"target":{"kind":"Node","name":"none"}}'
        path = "/api/v1/namespaces/default/pods/nobody/binding"
        try:
            client.call(Request("POST", path, "dryRun=All", {"content-type": "application/json"}, binding))
        except StatusError as error:
            if error.code != 404:
                raise
        return self.answers("unknown") > 0
