"""Fields of an AIGCJob that are kept and have no effect, in words for its user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.api.fields import aigc
from windlass.api.fields.aigc import GROUP_SETTINGS, Json
from windlass.api.resources import AIGC_JOBS
from windlass.api.wire.crd_fields import undeclared_fields
from windlass.jobs.aigc.stage_advice import stage_advice


def advice(spec: Json) -> Iterator[str]:
    """Yield a sentence for each field that is not enforced."""
    for path in _unknown_fields(spec):
        yield f"advice: {path} is not a field of AIGCJob: it is kept and has no effect"
    yield from stage_advice(spec)
    yield from _of_rows(spec)
    model = aigc.part(spec, "model")
    mode = aigc.part(model, "sharing").get("mode")
    if mode == aigc.SERVER and aigc.runtime_of(spec) != "openai":
        yield "advice: spec.model.sharing.mode Server has no effect: only the runtime openai uses a server"
    if model.get("name") and not model.get("source"):
        yield "advice: spec.model.source is not set: no files are fetched, the runtime knows the model by its name"
    yield from _of_server(spec)
    placement = aigc.part(spec, "placement")
    for name in ("fleet", "clusterSelector", "mode"):
        if placement.get(name):
            yield f"advice: spec.placement.{name} has no effect yet: the job runs in this cluster"
    yield from _of_shards(spec)


def _unknown_fields(spec: Json) -> Iterator[str]:
    """Yield the paths of fields that the kind does not have.

    Its CustomResourceDefinition declares them, except the settings of groups: users choose their names.
    """
    yield from undeclared_fields(AIGC_JOBS.group, AIGC_JOBS.version, AIGC_JOBS.kind, "spec", spec)
    groups = aigc.part(aigc.part(spec, "grouping"), "perGroup")
    for group in groups:
        for name in aigc.part(groups, group):
            if name not in GROUP_SETTINGS:
                yield f"spec.grouping.perGroup.{group}.{name}"


def _of_server(spec: Json) -> Iterator[str]:
    """Yield that a server on a loopback address is looked for in the pods of the workers."""
    url = str(aigc.part(spec, "runtimeRef").get("url") or "")
    template = aigc.part(aigc.part(spec, "template"), "spec")
    in_pod = len(template.get("containers") or ()) > 1 or template.get("initContainers")
    if aigc.on_loopback(url) and not in_pod and not template.get("hostNetwork"):
        yield (
            f"advice: spec.runtimeRef.url {url} is an address of each worker's pod, and no container there is "
            "a server: spec.template.spec.hostNetwork: true reaches a server of the node"
        )


def _of_shards(spec: Json) -> Iterator[str]:
    """Yield what workers of one pod, or the runtime, make of fields for workers of several pods."""
    if aigc.shards_of(spec) == 1:
        if aigc.part(spec, "placement").get("topology"):
            yield "advice: spec.placement.topology has an effect with spec.shards only: it holds for each worker"
        return
    runtime = aigc.runtime_of(spec)
    containers = aigc.part(aigc.part(spec, "template"), "spec").get("containers") or ()
    if runtime not in (aigc.PROCESS, aigc.PYTHON) and len(containers) < 2:
        yield (
            f"advice: spec.shards {spec['shards']}: only rank 0 of each worker has something to do, "
            f"since the runtime {runtime} has no program for other ranks and the template no second container"
        )


def _of_rows(spec: Json) -> Iterator[str]:
    grouping, outputs = aigc.part(spec, "grouping"), aigc.part(spec, "outputs")
    ordered = grouping.get("order") == "Priority"
    groups = aigc.part(grouping, "perGroup")
    settings = [groups, *(one for one in groups.values() if isinstance(one, Mapping))]
    for name in ("priority", "deadline"):
        if not ordered and any(name in one for one in settings):
            yield f"advice: spec.grouping.perGroup {name} has an effect with spec.grouping.order Priority only"
    if "maxWaitSeconds" in aigc.part(spec, "batching") and not spec.get("stages"):
        yield "advice: spec.batching.maxWaitSeconds has an effect with spec.stages only: all rows are there before"
    if outputs.get("atomic") is False and str(outputs.get("path") or "").endswith((".csv", ".parquet")):
        yield "advice: spec.outputs.atomic false has an effect on JSON lines only: other formats are written at the end"
    kept = outputs.get("path") or aigc.part(outputs, "pvc").get("claimName")
    forever = aigc.part(spec, "policy").get("ttlSecondsAfterFinished") is None
    if outputs.get("retain") is False and kept and forever:
        yield (
            f"advice: spec.outputs.retain false has an effect on {kept} with spec.policy.ttlSecondsAfterFinished "
            "only: files are removed when that time is over"
        )
