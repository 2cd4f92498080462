"""Fields of stages that have no effect, or not the whole one, in words for the user of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.api.fields import aigc
from windlass.api.fields import stages as fields_stages
from windlass.api.fields.aigc import Json

_OF_STAGES = ("startWhen", "reserveTimeoutSeconds", "onNoGPU", "releaseIdleGPUSeconds")


def stage_advice(spec: Json) -> Iterator[str]:
    """Yield a sentence for each field of stages that is not enforced."""
    progressive = aigc.part(spec, "progressive")
    stages = [one for one in spec.get("stages") or () if isinstance(one, Mapping)]
    for name in progressive:
        if name in _OF_STAGES and not stages:
            yield f"advice: spec.progressive.{name} has no effect without spec.stages"
    if progressive.get("gpuBind") == fields_stages.RESERVE and not stages:
        yield "advice: spec.progressive.gpuBind Reserve has no effect without spec.stages: GPUs are bound as with Late"
    if stages and aigc.part(stages[-1], "output"):
        yield f"advice: spec.stages[{len(stages) - 1}].output has no effect: no stage is behind it"
