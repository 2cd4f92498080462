"""Fields of an AIGCJob that are kept and have no effect, in words for its user."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.api import aigc_fields as fields
from windlass.api.aigc_fields import Json


def advice(spec: Json) -> Iterator[str]:
    """Yield a sentence for each field that is not enforced."""
    for path in fields.unknown_fields(spec):
        yield f"advice: {path} is not a field of AIGCJob: it is kept and has no effect"
    if spec.get("stages"):
        yield "advice: spec.stages has no effect yet: the rows go through the runtime alone"
    if fields.part(spec, "progressive").get("gpuBind") == "Reserve":
        yield "advice: spec.progressive.gpuBind Reserve has no effect yet: GPUs are bound as with Late"
    scale = fields.part(spec, "autoscale")
    for name in ("plugin", "spot"):
        if scale.get(name):
            yield f"advice: spec.autoscale.{name} has no effect yet: workers follow the rows that wait"
    model = fields.part(spec, "model")
    strategy, mode = fields.part(model, "preload").get("strategy"), fields.part(model, "sharing").get("mode")
    if strategy in ("PVC", "Image"):
        words = "workers fetch the model when they start"
        yield f"advice: spec.model.preload.strategy {strategy} has no effect yet: {words}"
    if mode == "Server":
        yield "advice: spec.model.sharing.mode Server has no effect yet: each worker loads the model"
    if model.get("name") and not model.get("source"):
        yield "advice: spec.model.source is not set: no files are fetched, the runtime knows the model by its name"
    placement = fields.part(spec, "placement")
    for name in ("fleet", "clusterSelector", "mode", "topology"):
        if placement.get(name):
            yield f"advice: spec.placement.{name} has no effect yet: the job runs in this cluster"
