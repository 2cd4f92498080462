"""Checks of reports: path, token, rate, body."""

from __future__ import annotations

from typing import Any

import msgspec
from fake_transport import FakeTransport, ok

from windlass.client.client import Client
from windlass.client.retries import NEVER
from windlass.client.transport import Request, Response
from windlass.controllers.progress.endpoint import BURST, ReportHandler
from windlass.kits.clock import FakeClock
from windlass.kits.rng import seeded

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/t/status"
BODY = b'{"trainerStatus": {"progressPercentage": 5}}'
POD = {"authentication.kubernetes.io/pod-name": ["p"]}


class Scene:
    """API server that accepts every token for ``audience`` of ``user``."""

    def __init__(self, user: str = "system:serviceaccount:ns:default", **review: Any) -> None:
        self.review = {
            "authenticated": True,
            "audiences": [PATH.removeprefix("/apis/")],
            "user": {"username": user, "extra": POD},
            **review,
        }
        self.patches: list[tuple[str, Any]] = []
        clock = FakeClock()
        transport = FakeTransport(self.answer)
        self.handler = ReportHandler(Client(transport, clock=clock, rng=seeded(1), retries=NEVER), clock)

    async def answer(self, request: Request) -> Response:
        if request.path.endswith("/tokenreviews"):
            return ok({"status": self.review})
        self.patches.append((request.path, msgspec.json.decode(request.body)))
        return ok({"metadata": {"name": "t"}})

    async def report(self, path: str = PATH, token: str = "Bearer x", body: bytes = BODY) -> int:
        return (await self.handler.handle(path, token, body))[0]


def unbound() -> Scene:
    """Return a scene with a token that no pod holds."""
    scene = Scene()
    scene.review["user"] = {"username": "system:serviceaccount:ns:default"}
    return scene


async def test_report_of_a_pod_is_stored() -> None:
    scene = Scene()
    assert await scene.report() == 200
    ((path, patch),) = scene.patches
    assert path == PATH
    assert patch["status"]["trainerStatus"]["progressPercentage"] == 5


async def test_what_is_not_permitted_changes_nothing() -> None:
    cases = [
        (Scene(), {"token": ""}, 403),
        (Scene(authenticated=False), {}, 403),
        (Scene(audiences=["other"]), {}, 403),
        (Scene("system:serviceaccount:other:default"), {}, 403),
        (Scene("admin"), {}, 403),
        (unbound(), {}, 403),
        (Scene(), {"path": "/apis/apps/v1/namespaces/ns/deployments/t/status"}, 404),
        (Scene(), {"path": "/healthz"}, 404),
        (Scene(), {"body": b"{"}, 422),
        (Scene(), {"body": b'{"trainerStatus": {"progressPercentage": 101}}'}, 422),
    ]
    for scene, change, code in cases:
        assert await scene.report(**change) == code, change
        assert scene.patches == []


async def test_rate_of_a_job_is_limited() -> None:
    scene = Scene()
    codes = [await scene.report() for _ in range(int(BURST) + 1)]
    assert codes == [200] * int(BURST) + [429]
