"""Access of new pods to the progress endpoint of a cluster."""

from __future__ import annotations

import copy
from typing import Any

from windlass.api import annotations as names
from windlass.api.owner_references import owner_reference
from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    PODS,
    PYTORCH_JOBS,
    SERVICES,
    STATEFUL_SETS,
    TRAIN_JOBS,
)
from windlass.controllers.effects import Create, Effects, Patch
from windlass.controllers.progress.injection import adjusted
from windlass.jobs.progress_access import MOUNT, VOLUME, ProgressAccess

Json = dict[str, Any]
ACCESS = ProgressAccess("https://progress.w.svc:10443", "PEM")
TRAIN = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/t/status"


def template(**annotations: str) -> Json:
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]},
    }


def owned(body: Json, owner: Json) -> Json:
    metadata = {**body.get("metadata", {}), "name": "n", "namespace": "ns", "ownerReferences": [owner]}
    return {**body, "metadata": metadata}


def changed(action: Create) -> Json:
    before = copy.deepcopy(action.object)
    ((found,),) = adjusted(Effects(stages=((action,),)), ACCESS).stages
    assert action.object == before  # parts of it may be shared
    assert isinstance(found, Create)
    return found.object


def url(pod: Json) -> str:
    variables = [one for container in pod["spec"]["containers"] for one in container.get("env") or ()]
    found = {one["value"] for one in variables if one["name"] == "KUBEFLOW_TRAINER_STATUS_URL"}
    return found.pop() if found else ""


def test_pods_of_a_job_report_to_it() -> None:
    pod = changed(Create(PODS, owned(template(), owner_reference(PYTORCH_JOBS, "train", "u"))))
    path = "/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/train/status"
    assert url(pod) == f"https://progress.w.svc:10443{path}"
    for container in pod["spec"]["containers"]:
        assert container["volumeMounts"] == [{"name": VOLUME, "mountPath": MOUNT, "readOnly": True}]
    (volume,) = pod["spec"]["volumes"]
    token = volume["projected"]["sources"][0]["serviceAccountToken"]
    assert token["audience"] == path.removeprefix("/apis/")
    assert pod["metadata"]["annotations"][names.PROGRESS_CERTIFICATE] == "PEM"
    again = changed(Create(PODS, pod))
    assert again == pod


def test_pods_of_a_train_job_report_to_the_train_job() -> None:
    inner = template(**{names.PROGRESS_PATH: TRAIN})
    jobs = [{"name": "node", "template": {"spec": {"template": inner}}}, {"name": "other"}]
    body = owned({"spec": {"replicatedJobs": jobs}}, owner_reference(TRAIN_JOBS, "t", "u"))
    built = changed(Create(JOB_SETS, body))["spec"]["replicatedJobs"]
    pod = built[0]["template"]["spec"]["template"]
    assert url(pod).endswith(TRAIN)
    assert built[1] == {"name": "other"}
    job = owned({"spec": {"template": inner}}, owner_reference(JOB_SETS, "js", "u"))
    assert url(changed(Create(BATCH_JOBS, job))["spec"]["template"]).endswith(TRAIN)
    plain = owned({"spec": {"template": template()}}, owner_reference(JOB_SETS, "js", "u"))
    assert url(changed(Create(BATCH_JOBS, plain))["spec"]["template"]).endswith("/jobsets/js/status")


def test_other_writes_stay_as_they_are() -> None:
    service = Create(SERVICES, {"metadata": {"name": "s"}})
    foreign = Create(PODS, owned(template(), owner_reference(STATEFUL_SETS, "s", "u")))
    effects = Effects(stages=((service, foreign, Patch(PODS, "p", {})),))
    assert adjusted(effects, ACCESS) == effects
    assert adjusted(effects, None) is effects
