"""Operation of families of job kinds in a cluster: start and end of the reconcilers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakeapi import FakeApi

from windlass.api.errors import StatusError
from windlass.api.job_kind_families import JOB_KIND_FAMILIES
from windlass.api.resources import DEPLOYMENTS, PODS, PYTORCH_JOBS, Resource
from windlass.controllers.job_kinds.families import FAMILIES, KUBEFLOW, FamilyContext, family_of
from windlass.controllers.job_kinds.operation import PROBE_SECONDS, JobKindOperation, decide
from windlass.controllers.job_kinds.operators import OperatorDeployment, decode_operator, operator_of

SERVED = frozenset(KUBEFLOW.kinds)
OTHER = OperatorDeployment("kubeflow/training-operator", ("kubeflow",))


def deployment(name: str, image: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "kubeflow"},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}, **spec},
    }


def test_the_setting_names_the_families() -> None:
    assert tuple(family.name for family in FAMILIES) == JOB_KIND_FAMILIES
    assert len({kind for family in FAMILIES for kind in family.kinds}) == sum(len(f.kinds) for f in FAMILIES)


def test_family_of_a_kind() -> None:
    assert family_of(PYTORCH_JOBS) is KUBEFLOW
    assert family_of(PODS) is None


@pytest.mark.parametrize(
    ("found", "families"),
    [
        (deployment("training-operator", "mirror.example:5000/x:v1"), ("kubeflow", "mpi")),
        (deployment("ops", "docker.io/kubeflow/training-operator:v1-855e096"), ("kubeflow", "mpi")),
        (deployment("ops", "localhost:5000/training-operator"), ("kubeflow", "mpi")),
        (deployment("ops", "kubeflow/training-operator@sha256:00", replicas=1), ("kubeflow", "mpi")),
        (deployment("training-operator", "x", replicas=0), ()),
        (deployment("ops", "example/my-training-operator:1"), ()),
        ({"metadata": {"name": "bare"}}, ()),
    ],
)
def test_operators_are_recognised_by_name_or_image(found: dict[str, Any], families: tuple[str, ...]) -> None:
    for operator in (operator_of(found), decode_operator(json.dumps(found).encode())):
        assert (operator.families if operator else ()) == families


@pytest.mark.parametrize(
    ("served", "operators", "setting", "reason"),
    [
        (SERVED, (), ("auto",), ""),
        (SERVED, (OTHER,), ("auto",), "Deployment kubeflow/training-operator operates it"),
        (SERVED, (OTHER,), ("kubeflow",), ""),
        (SERVED, (), (), "the setting controllers.jobKinds is []"),
        (
            SERVED - {PYTORCH_JOBS},
            (),
            ("auto",),
            "not served: pytorchjobs.kubeflow.org",
        ),
    ],
)
def test_a_family_is_operated_where_no_other_operator_runs(
    served: frozenset[Any], operators: tuple[OperatorDeployment, ...], setting: tuple[str, ...], reason: str
) -> None:
    assert decide((KUBEFLOW,), served, operators, setting) == {"kubeflow": reason}


class Cluster(FakeApi):
    """API server that serves the kinds of ``served`` only."""

    def __init__(self) -> None:
        super().__init__()
        self.served: set[Resource] = set()

    async def list(self, resource: Resource, *args: Any, **options: Any) -> Any:
        if resource.custom and resource not in self.served:
            raise StatusError({"code": 404, "reason": "NotFound", "message": "not served"})
        return await super().list(resource, *args, **options)


class Recorded:
    """Runner that counts its starts and ends."""

    def __init__(self, reconciler: Any) -> None:
        self.name, self.started, self.ended, self.workers = reconciler.name, 0, 0, 0

    async def run(self) -> None:
        self.started += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended += 1

    def set_workers(self, workers: int) -> None:
        self.workers = workers


async def test_reconcilers_start_and_end_as_operators_come_and_go() -> None:
    api = Cluster()
    runners: list[Recorded] = []

    def start(reconciler: Any) -> Recorded:
        runners.append(Recorded(reconciler))
        return runners[-1]

    context: Any = FamilyContext(api, api, api.clock, "windlass")  # type: ignore[arg-type]
    operation = JobKindOperation(api, context, api.clock, start, families=(KUBEFLOW,))  # type: ignore[arg-type]
    task = asyncio.create_task(operation.run())
    settle = lambda: api.clock.advance(PROBE_SECONDS + 1)  # noqa: E731
    await settle()
    assert operation.reasons["kubeflow"].startswith("not served: pytorchjobs.kubeflow.org, ")
    assert runners == []

    api.served = set(KUBEFLOW.kinds)
    await settle()
    assert operation.reasons == {"kubeflow": ""}
    assert [runner.started for runner in runners] == [1] * len(runners)
    assert operation.running == runners

    other = api.put(DEPLOYMENTS, deployment("training-operator", "x"))
    await api.clock.advance(0.1)  # the Deployment wakes it
    assert operation.reasons == {"kubeflow": "Deployment kubeflow/training-operator operates it"}
    assert [runner.ended for runner in runners] == [1] * len(runners)
    assert operation.running == []

    api.remove(DEPLOYMENTS, f"kubeflow/{other['metadata']['name']}")
    await api.clock.advance(0.1)
    assert [runner.started for runner in runners] == [2] * len(runners)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [runner.ended for runner in runners] == [2] * len(runners)
