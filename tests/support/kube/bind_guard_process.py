"""A scheduler with a bind guard that runs as a process beside a real API server."""

from __future__ import annotations

from bind_guard_webhook import GuardPost
from fault_rounds import wait_for
from realkube import RealKube
from scheduler_processes import WindlassPart

from windlass.api.errors import StatusError
from windlass.cli.install import objects
from windlass.client.blocking import BlockingClient
from windlass.client.transport import Request


class GuardedScheduler(WindlassPart):
    """``windlass scheduler --bind-guard`` under the name of the chart's account."""

    def __init__(self, kube: RealKube, *options: str) -> None:
        self._post = GuardPost(kube)
        account = kube.folder / "scheduler.kubeconfig"
        super().__init__(kube, "scheduler", *self._post.options, *options, through=account)

    def answers(self, what: str) -> float:
        return self.value(f'windlass_scheduler_bind_guard_total{{answer="{what}"}}')

    def put_in_force(self, kube: RealKube) -> None:
        """Returns when the API server asks."""
        with BlockingClient(kube.connection) as client:
            client.create(objects.WEBHOOKS, self._post.configuration())
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
