"""A training runtime with the patches of a TrainJob: the JobSet template, before the policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import quantities
from windlass.api.defaults.jobset import fill_spec
from windlass.api.fields import trainer as fields_trainer
from windlass.api.wire import patch_types, schema
from windlass.api.wire.patch_strategic import merge_strategically
from windlass.api.wire.schema import BATCH

Json = Mapping[str, Any]
JsonObject = dict[str, Any]


class RuntimeProblem(ValueError):
    """Reason why a TrainJob and its runtime do not fit."""


@dataclass(slots=True)
class TrainTemplate:
    """JobSet of a TrainJob while it is built. All parts are changed in place.

    ``policy``: ``mlPolicy``. ``gang``: ``podGroupPolicy``. ``trainer``: of the TrainJob.
    """

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: JsonObject
    policy: Json
    gang: Json
    trainer: Json

    @property
    def jobs(self) -> list[JsonObject]:
        return self.spec["replicatedJobs"]

    def job(self, name: str) -> JsonObject | None:
        return next((job for job in self.jobs if job.get("name") == name), None)

    def trainer_job(self) -> JsonObject | None:
        """Return the replicated job that carries out the training step."""
        return next(
            (job for job in self.jobs if fields_trainer.step_of(job) == fields_trainer.TRAINER_STEP), None
        )

    def host(self, job: str, index: int) -> str:
        """Return the host name of a pod of a replicated job with one Job."""
        subdomain = (self.spec.get("network") or {}).get("subdomain") or self.name
        return f"{self.name}-{job}-0-{index}.{subdomain}"


def pod_of(job: JsonObject) -> JsonObject:
    """Return the pod spec of a replicated job."""
    return job["template"].setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {})


def containers_of(job: JsonObject, name: str) -> Iterator[JsonObject]:
    """Yield the containers with a name."""
    return (found for found in pod_of(job).get("containers") or () if found.get("name") == name)


def count_of(job: JsonObject) -> int:
    """Return the number of pods of a replicated job."""
    return int(job["template"].get("spec", {}).get("parallelism") or 1)


def set_count(job: JsonObject, count: int) -> None:
    job["template"].setdefault("spec", {}).update(parallelism=count, completions=count)


def set_variables(container: JsonObject, variables: list[JsonObject]) -> None:
    """Set environment variables. One of the same name is replaced where it is."""
    present: list[JsonObject] = list(container.get("env") or ())
    places = {entry.get("name"): index for index, entry in enumerate(present)}
    for variable in variables:
        if variable["name"] in places:
            present[places[variable["name"]]] = variable
        else:
            present.append(variable)
    if present:
        container["env"] = present


def variable(name: str, value: Any) -> JsonObject:
    return {"name": name, "value": str(value)}


def read_template(train_job: Json, runtime: Json) -> TrainTemplate:
    """Return the template of a runtime with the patches, image, command and sizes of a TrainJob.

    Raises :class:`RuntimeProblem`.
    """
    metadata, spec = train_job["metadata"], train_job.get("spec") or {}
    runtime_spec = patch_types.copy(dict(runtime.get("spec") or {}))
    template = runtime_spec.get("template") or {}
    given = template.get("metadata") or {}
    found = TrainTemplate(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        labels=dict(given.get("labels") or {}),
        annotations=dict(given.get("annotations") or {}),
        spec=template.get("spec") or {},
        policy=runtime_spec.get("mlPolicy") or {},
        gang=runtime_spec.get("podGroupPolicy") or {},
        trainer=spec.get("trainer") or {},
    )
    found.spec.setdefault("replicatedJobs", [])
    for patch in fields_trainer.patches(spec):
        _apply_patch(found, patch)
    fill_spec(found.spec)
    _initialize(found, spec.get("initializer") or {})
    _train(found)
    found.spec["suspend"] = bool(spec.get("suspend"))
    return found


def _apply_patch(found: TrainTemplate, patch: Json) -> None:
    template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
    metadata = template.get("metadata") or {}
    found.labels |= metadata.get("labels") or {}
    found.annotations |= metadata.get("annotations") or {}
    for changed in fields_trainer.patched_jobs(patch):
        job = found.job(str(changed.get("name")))
        if job is None:
            raise RuntimeProblem(
                f"the runtime has no replicated job {changed.get('name')}, which a patch names"
            )
        job["template"] = merge_strategically(
            job["template"],
            patch_types.copy(dict(changed.get("template") or {})),
            schema.builtin(f"{BATCH}JobTemplateSpec"),
        )


def _initialize(found: TrainTemplate, initializer: Json) -> None:
    """Give the initializers what they load."""
    for job in found.jobs:
        step = fields_trainer.step_of(job)
        wanted = {fields_trainer.DATASET_STEP: "dataset", fields_trainer.MODEL_STEP: "model"}.get(step)
        if wanted is None:
            continue
        job["replicas"] = 1
        given = initializer.get(wanted)
        if given is None:
            continue
        for container in containers_of(job, step):
            variables = [variable("STORAGE_URI", given["storageUri"])] if given.get("storageUri") else []
            set_variables(container, [*variables, *(given.get("env") or ())])
            secret = (given.get("secretRef") or {}).get("name")
            if secret:
                source = {"secretRef": {"name": secret}}
                container["envFrom"] = [*(container.get("envFrom") or ()), source]


def _train(found: TrainTemplate) -> None:
    """Give the trainer its image, command, variables, resources and number of nodes."""
    trainer = found.trainer
    launcher_is_node = bool((found.policy.get("mpi") or {}).get("runLauncherAsNode"))
    for job in found.jobs:
        trains = fields_trainer.step_of(job) == fields_trainer.TRAINER_STEP
        if trains:
            job["replicas"] = 1
            if "mpi" not in found.policy and found.policy:
                set_count(job, int(found.policy.get("numNodes") or 1))
        if not trains and not (launcher_is_node and job["name"] == fields_trainer.NODE):
            continue
        for container in containers_of(job, fields_trainer.NODE):
            if trains:
                container |= {
                    name: trainer[name]
                    for name in ("image", "command", "args")
                    if trainer.get(name) is not None
                }
            set_variables(container, list(trainer.get("env") or ()))
            if trainer.get("resourcesPerNode"):
                container["resources"] = _merged_resources(
                    container.get("resources") or {}, trainer["resourcesPerNode"]
                )
    main = found.trainer_job()
    if main is not None and "mpi" not in found.policy and trainer.get("numNodes") is not None:
        set_count(main, int(trainer["numNodes"]))


def _merged_resources(base: Json, override: Json) -> JsonObject:
    merged: JsonObject = {**base, **{name: value for name, value in override.items() if name == "claims"}}
    for name in ("limits", "requests"):
        amounts = {**(base.get(name) or {}), **(override.get(name) or {})}
        if amounts:
            merged[name] = amounts
    return merged


# Sizes of a node.


def node_resources(found: TrainTemplate) -> Json:
    """Return the resources of the container that trains."""
    for job in found.jobs:
        if job["name"] == fields_trainer.NODE or fields_trainer.step_of(job) == fields_trainer.TRAINER_STEP:
            for container in containers_of(job, fields_trainer.NODE):
                return container.get("resources") or {}
    return {}


def gpus_per_node(found: TrainTemplate) -> int:
    """Return the number of GPUs: the sum over the resources with ``gpu`` in their name."""
    resources = node_resources(found)
    for field in ("requests", "limits"):
        amounts = resources.get(field) or {}
        total = sum(_whole(value) for name, value in amounts.items() if "gpu" in name.lower())
        if total:
            return total
    return 0


def cpus_per_node(found: TrainTemplate) -> int:
    """Return the number of CPUs, rounded up: the request, or else the limit; 0 if neither is set."""
    resources = node_resources(found)
    for field in ("requests", "limits"):
        count = _whole((resources.get(field) or {}).get("cpu", 0))
        if count:
            return count
    return 0


def _whole(quantity: Any) -> int:
    try:
        value = quantities.parse(str(quantity))
    except ValueError:
        return 0
    return -int(-value // 1)
