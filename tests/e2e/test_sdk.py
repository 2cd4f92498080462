"""Python functions as jobs of a box: results, exceptions of a rank, output, executors, and the way over a cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

import windlass
from windlass.api.resources import CONFIG_MAPS, VOLCANO_JOBS
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.sdk import (
    Executor,
    Future,
    ItemFailed,
    JobBuilder,
    JobDeleted,
    JobFailed,
    JobHandle,
    RemoteTraceback,
    Target,
)
from windlass.sdk.workflows import DAG, Parameter, Workflow, WorkflowFailed, WorkflowRun, script

pytestmark = pytest.mark.timeout(300)
SECONDS = 120


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:2") as one:
        yield one


@pytest.fixture(scope="module")
def here(box: Box) -> Target:
    return Target(state=str(box.state.path))


def test_a_function_of_two_ranks_with_its_output_and_results(here: Target) -> None:
    def train(first: int, *, second: int) -> tuple[int, str]:
        print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
        return first + second, os.environ["RANK"]

    future = windlass.submit(train, 3, second=4, gpus=1, nodes=2, name="train", target=here)
    assert list(future.logs(rank=1)) == ["rank 1 of 2"]
    assert future.result(SECONDS) == (7, "0")
    assert future.results() == [(7, "0"), (7, "1")]
    assert (future.name, future.state, future.running()) == ("train", "Completed", False)
    assert list(future.logs(follow=False)) == ["rank 0 of 2"]
    assert "train" in future._repr_html_()
    card = JobHandle.of("train", here)._repr_mimebundle_()
    assert card["text/plain"] == "<windlass.JobHandle train: Completed>"
    assert ">Completed</b>" in card["text/html"]
    assert "default/train" in card["text/html"]


def test_an_exception_has_its_type_and_names_the_rank(here: Target) -> None:
    def broken(shard: int) -> None:
        if os.environ["RANK"] == "1":
            raise ValueError(f"shard {shard} is empty")
        time.sleep(600)

    future = windlass.submit(broken, 7, nodes=2, target=here)
    with pytest.raises(ValueError, match="shard 7 is empty") as caught:
        future.result(SECONDS)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert f"rank 1 of {future.name}" in cause.text
    assert "in broken" in cause.text
    assert future.state == "Failed"


def test_a_job_without_a_result_names_exit_status_and_output(here: Target) -> None:
    def dies() -> None:
        print("about to die", flush=True)
        os._exit(9)

    with pytest.raises(JobFailed, match="exit 9") as caught:
        windlass.submit(dies, target=here).result(SECONDS)
    assert (caught.value.exit_status, caught.value.output) == (9, ("about to die",))


def test_results_that_cannot_be_pickled_say_so(here: Target) -> None:
    with pytest.raises(RuntimeError, match="the result, of type generator, cannot be pickled"):
        windlass.submit(lambda: (one for one in ()), target=here).result(SECONDS)


def test_a_waiting_job_has_a_reason_and_can_be_cancelled(here: Target) -> None:
    holder = windlass.submit(time.sleep, 600, gpus=2, target=here)
    deadline = time.monotonic() + SECONDS
    while not holder.running():
        assert time.monotonic() < deadline, holder.state
        time.sleep(0.1)
    waiting: Future[Any] = windlass.submit(time.sleep, 600, gpus=1, target=here)
    while "needs 1 GPU, 0 free" not in waiting.reason:
        assert time.monotonic() < deadline, waiting.reason
        time.sleep(0.1)
    assert waiting.state == "Pending"
    assert not waiting.running()
    assert "needs 1 GPU" in waiting._repr_html_()
    assert waiting.cancel()
    assert waiting.cancelled()
    assert holder.cancel()
    assert repr(holder) == f"<windlass.Future {holder.name}: Cancelled>"


def test_a_deleted_job_is_told(box: Box, here: Target) -> None:
    future = windlass.submit(time.sleep, 600, target=here)
    box.windlass("delete", "vcjob", future.name)
    with pytest.raises(JobDeleted, match="was deleted before it had ended"):
        future.result(SECONDS)


def test_an_executor_bounds_its_jobs_and_keeps_the_order(box: Box, here: Target) -> None:
    with Executor(2, target=here) as executor:
        assert list(executor.map(pow, range(5), [2] * 5, chunksize=2)) == [0, 1, 4, 9, 16]
        assert executor.submit(sum, [1, 2]).result(SECONDS) == 3
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(sum, [])
    assert list(windlass.map(lambda x, y: x + y, "ab", "cd", workers=1, chunksize=2, target=here)) == [
        "ac",
        "bd",
    ]


def test_a_future_is_awaited(here: Target) -> None:
    async def main() -> int:
        return await asyncio.wait_for(windlass.submit(pow, 2, 10, target=here), SECONDS)

    assert asyncio.run(main()) == 1024


def test_an_event_loop_follows_waits_for_and_ends_jobs(here: Target) -> None:
    async def main() -> None:
        job = JobBuilder("job", ["sh", "-c", "echo one; echo two"]).submit(here).aio
        assert [line async for line in job.logs()] == ["one", "two"]
        await job.wait(SECONDS)
        assert await job.state() == "Completed"
        sleeping = JobBuilder("vcjob", ["sleep", "600"]).submit(here).aio
        with pytest.raises(TimeoutError):
            await sleeping.wait(0.0)
        await sleeping.cancel()
        with pytest.raises(JobFailed, match="terminated"):
            await sleeping.wait(SECONDS)
        future = windlass.submit(pow, 2, 5, target=here)
        await future.aio.wait(SECONDS)
        assert future.result(0) == 32

    asyncio.run(main())


def test_as_on_a_cluster_the_call_is_a_config_map_that_ends_with_its_job(box: Box) -> None:
    """The box is used by its kubeconfig, as a cluster is: nothing of this machine is shared with the ranks."""
    there = Target(kubeconfig=str(box.state.kubeconfig))
    future = windlass.submit(
        lambda size: "x" * size, 100_000, image="python", env={"PATH": box.environment["PATH"]}, target=there
    )
    assert future.result(SECONDS) == "x" * 100_000
    assert list(future.logs(follow=False)) == []
    with BlockingClient(Connection(unix_socket=str(box.state.socket))) as client:
        assert client.find(CONFIG_MAPS, future.name, "default") is not None
        client.delete(VOLCANO_JOBS, future.name, "default")
        deadline = time.monotonic() + SECONDS
        while client.find(CONFIG_MAPS, future.name, "default") is not None:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_jobs_of_other_kinds_are_built_followed_and_ended(here: Target) -> None:
    command = ["sh", "-c", "echo rank $RANK; exit $CODE"]
    builder = JobBuilder("pytorchjob", command, name="built", nodes=2, env={"CODE": "0"})
    assert builder.manifest(here)["kind"] == "PyTorchJob"
    job = builder.submit(here)
    assert list(job.logs()) == ["rank 0"]  # the job ends with its master, and rank 1 with the job
    job.wait(SECONDS)
    assert repr(JobHandle.of("pytorchjob/built", here)) == "<windlass.JobHandle pytorchjob/built: Completed>"

    failing = JobBuilder("job", ["sh", "-c", "exit 3"]).submit(here)
    with pytest.raises(JobFailed, match="exit 3"):
        failing.wait(SECONDS)

    sleeping = JobBuilder("vcjob", ["sleep", "600"]).submit(here)
    with pytest.raises(TimeoutError, match=f"job {sleeping.name} is "):
        sleeping.wait(0.0)
    assert sleeping.cancel() == "is being ended"
    with pytest.raises(JobFailed, match="terminated"):
        sleeping.wait(SECONDS)
    with pytest.raises(JobDeleted, match="job nobody does not exist"):
        JobHandle.of("nobody", here).wait(SECONDS)
    with pytest.raises(Exception, match="--kind job cannot express"):
        JobBuilder("job", ["true"], nodes=2).manifest(here)


def test_a_script_needs_two_lines(box: Box) -> None:
    """As the README of a user has it: no target, no clean-up, the box of the environment."""
    script = box.folder / "train.py"
    script.write_text(
        "from windlass import submit\n"
        "def train(steps):\n    return sum(range(steps))\n"
        "print(submit(train, 10, gpus=1).result())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], env=box.environment, cwd=box.folder, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == ("45\n", "", 0)


def test_map_over_many_items_has_each_result_once_in_order(box: Box, here: Target) -> None:
    def halved(number: int, text: str) -> str:
        if number == 7:
            raise KeyError(text)
        if number == 8 and not os.path.exists(f"{box.folder}/tried"):
            open(f"{box.folder}/tried", "w").close()
            os._exit(3)
        return f"{number / 2:g}{text}"

    counts: list[dict[str, Any]] = []
    numbers = range(1100)
    with pytest.raises(KeyError, match="'a'") as caught:
        list(
            windlass.map(
                halved, numbers, "a" * 1100, progress=lambda now: counts.append(dict(now)), target=here
            )
        )
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert counts[-1]["done"] == 1099
    results = list(windlass.map(halved, numbers, "b" * 1100, errors="return", workers=2, target=here))
    assert isinstance(results.pop(7), KeyError)
    assert results == [f"{number / 2:g}b" for number in numbers if number != 7]
    late: list[Any] = list(
        windlass.map(time.sleep, [0, 600], timeout=3, retries=0, errors="return", target=here)
    )
    assert late[0] is None
    assert isinstance(late[1], ItemFailed)
    assert late[1].reason == "Timeout"


def test_a_map_whose_program_was_killed_goes_on_where_it_was(box: Box, here: Target) -> None:
    script = box.folder / "map.py"
    script.write_text(
        "import sys, time, windlass\n"
        "def slow(number):\n"
        "    with open('calls', 'a') as file: file.write(f'{number}\\n')\n"
        "    time.sleep(0.02)\n"
        "    return number + 1\n"
        "print(sum(windlass.map(slow, range(200), engine='items', name='slow', keep=True, workers=2, chunksize=10)))\n"
    )
    calls = box.folder / "calls"
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=box.environment, cwd=box.folder) as program:
        deadline = time.monotonic() + SECONDS
        while not calls.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        program.kill()
    for _ in range(2):  # follows the job, then finds what was kept
        done = subprocess.run(command, env=box.environment, cwd=box.folder, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == (f"{sum(range(201))}\n", 0), done.stderr
    assert sorted(map(int, calls.read_text().split())) == list(range(200))
    with pytest.raises(Exception, match="no option gpu_memory"):
        list(windlass.map(abs, [1], engine="items", gpu_memory="1Gi", target=here))


def test_errors_before_the_job_have_cause_and_remedy(here: Target) -> None:
    with pytest.raises(Exception, match="no node has 3 GPUs") as caught:
        windlass.submit(print, gpus=3, target=here)
    assert any(note.startswith("try: ") for note in caught.value.__notes__)
    with open(os.devnull, "w") as file, pytest.raises(Exception, match="or its arguments cannot be pickled"):
        windlass.submit(print, file, target=here)
    assert not list((Path(here.state or "") / "calls" / "default").glob("print-*"))


def test_a_workflow_of_functions_runs_and_returns_its_outputs(here: Target) -> None:
    @script()
    def split(scenes: int) -> list[int]:
        print("splitting")
        return list(range(scenes))

    @script(outputs=[Parameter("score", path="/tmp/score")])
    def caption(scene: int) -> str:
        with open("/tmp/score", "w") as file:
            file.write(str(85 + 10 * scene))
        return f'scene {scene} "quoted"'

    @script()
    def broken(text: str) -> None:
        raise ValueError(text)

    with Workflow("captions", arguments={"scenes": 3}) as workflow, DAG("main"):
        scenes = split(scenes=workflow.parameter("scenes"))
        texts = caption(scene=scenes.result.each)
        broken(text=texts.result, when=scenes.result == "[]")
    run = workflow.submit(here, scenes=2).wait(SECONDS)
    assert run.result("split") == [0, 1]
    assert run.result("caption") == ['scene 0 "quoted"', 'scene 1 "quoted"']
    assert run.parameter("caption", "score") == [85, 95]
    assert (run.phase, run.phases()["broken"]) == ("Succeeded", "Skipped")
    assert sorted(WorkflowRun.of("captions", here).logs("split")) == ["[0, 1]", "splitting"]
    with Workflow("failing") as failing, DAG("main"):
        broken(text="no text")
    with pytest.raises(WorkflowFailed, match="failing: Failed"):
        failing.submit(here).wait(SECONDS)
