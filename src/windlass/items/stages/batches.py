"""Batch as one stage of it sees it. Pure."""

from __future__ import annotations

from dataclasses import replace

from windlass.items.spec import BatchSpec, StageSpec

GPU = "gpu"


def batch_of_stage(batch: BatchSpec, name: str) -> BatchSpec:
    """Return the batch with the runtime of a stage. Raises ``ValueError`` for an unknown name.

    Prompt and model belong to one stage (:func:`prompt_stage`), the judgement of quality to the
    last one. Only the last stage fails the batch for its dead letters: all reach its ledger.
    """
    if not batch.stages:
        return batch
    index = next((n for n, stage in enumerate(batch.stages) if stage.name == name), None)
    if index is None:
        known = ", ".join(stage.name for stage in batch.stages)
        raise ValueError(f"the batch has no stage {name!r}: it has {known}")
    last = index == len(batch.stages) - 1
    given = batch.input if index == prompt_stage(batch.stages) else replace(batch.input, prompt="")
    return replace(
        batch,
        input=given,
        runtime=batch.stages[index].runtime,
        outputs=batch.outputs if last else replace(batch.outputs, quality=None),
        items=batch.items if last else replace(batch.items, max_failed_percent=100.0),
        carries=not last,
        context=None,
    )


def prompt_stage(stages: tuple[StageSpec, ...]) -> int:
    """Return the stage that renders ``input.prompt``: the first with GPUs, without one the last."""
    gpus = [index for index, stage in enumerate(stages) if stage.kind == GPU]
    return gpus[0] if gpus else len(stages) - 1


def admitted_batch(batch: BatchSpec) -> BatchSpec:
    """Return the batch as input rows are checked. Columns of a later prompt may come from a stage."""
    if not batch.stages or prompt_stage(batch.stages) == 0:
        return batch
    return replace(batch, input=replace(batch.input, prompt=""))
