"""The controllers' part of a job's life as spans, look by look."""

from __future__ import annotations

import asyncio

from vcjob_cluster import KEY, World, job, task

from windlass.api.resources import VOLCANO_JOBS
from windlass.controllers.vcjob.controller import JobController
from windlass.observe.tracing import Span, root_id, trace_id


class Kept:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        pass

    def names(self) -> list[str]:
        return [span.name for span in self.spans]


def watched(kept: Kept, **spec: object) -> World:
    world = World(job(task("worker", 2), **spec))
    world.controller = JobController(world.api, world.api, world.api.clock, kept)  # type: ignore[arg-type]
    return world


def passes(world: World, seconds: float) -> None:
    asyncio.run(world.api.clock.advance(seconds))


def test_from_creation_to_the_end_in_one_trace() -> None:
    kept = Kept()
    world = watched(kept)
    world.settle()
    assert kept.names() == ["group created"]
    passes(world, 30.0)
    world.admit()
    passes(world, 1.0)
    world.settle()
    assert kept.names()[1:] == ["pods created"]
    passes(world, 5.0)
    world.run()
    world.settle()
    passes(world, 60.0)
    for name in world.pods():
        world.end(name)
    world.settle()
    assert kept.names()[2:] == ["job pending", "job running", "job done"]
    assert world.group is not None
    trace = trace_id(world.group["metadata"]["uid"])
    assert {(span.trace, span.parent) for span in kept.spans} == {(trace, root_id(trace))}
    lengths = {span.name: round(span.finished - span.started) for span in kept.spans}
    assert lengths["pods created"] == 0
    assert lengths["job pending"] == 36
    assert lengths["job running"] == 60
    done = kept.spans[-1]
    assert done.started <= kept.spans[0].started
    assert (done.attributes["windlass.outcome"], done.attributes["windlass.job"]) == ("Completed", "train")
    assert done.fault == ""
    world.settle()
    assert kept.names().count("job done") == 1


def test_a_job_that_is_tried_again_and_gives_up() -> None:
    kept = Kept()
    world = watched(kept, maxRetry=2, policies=[{"event": "PodFailed", "action": "RestartJob"}])
    world.start()
    for _ in range(2):
        world.end("train-worker-0", 1)
        world.converge()
        if world.phase != "Failed":
            world.run()
            world.settle()
    assert world.phase == "Failed"
    phases = [name for name in kept.names() if name.startswith("job ")]
    assert phases[:4] == ["job pending", "job running", "job restarting", "job pending"]
    (done,) = [span for span in kept.spans if span.name == "job done"]
    assert (done.attributes["windlass.outcome"], done.attributes["windlass.job.retries"]) == ("Failed", 2)
    assert done.fault


def test_who_begins_in_the_middle_tells_only_what_he_saw() -> None:
    world = World(job(task("worker", 2)))
    world.start()
    kept = Kept()
    world.controller = JobController(world.api, world.api, world.api.clock, kept)  # type: ignore[arg-type]
    world.settle()
    assert kept.names() == []
    for name in world.pods():
        world.end(name)
    world.settle()
    assert kept.names() == ["job running", "job done"]
    ended = World(world.job)
    after = Kept()
    ended.controller = JobController(ended.api, ended.api, ended.api.clock, after)  # type: ignore[arg-type]
    ended.settle()
    assert after.names() == []


def test_one_of_the_same_name_is_another_job() -> None:
    kept = Kept()
    world = watched(kept)
    world.settle()
    world.api.remove(VOLCANO_JOBS, KEY)
    world.reconcile()
    world.api.put(VOLCANO_JOBS, {**job(task("worker", 2)), "metadata": {"name": "train", "uid": "second"}})
    world.settle()
    assert kept.names() == ["group created", "group created"]
    assert kept.spans[0].trace != kept.spans[1].trace
