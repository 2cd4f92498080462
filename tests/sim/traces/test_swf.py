"""Logs in the Standard Workload Format: what is played of them, what is left out, and what is wrong with a line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.sim.jobs import TraceJob
from windlass.sim.traces import formats, swf
from windlass.sim.traces.rows import TraceError

HEADER = "; Version: 2.2\n; MaxNodes: 4 (3, 1)\n;MaxProcs:  32\n; UnixStartTime: 1000000000\n;\n\n"


def line(**fields: float | str) -> str:
    """A job of which all is unknown but these fields, by their names with underscores."""
    cells = {name.partition("(")[2].rstrip(")").replace(" ", "_"): "-1" for name in swf.FIELDS}
    for name, value in fields.items():
        assert name in cells
        cells[name] = str(value)
    return " ".join(cells.values()) + "\n"


def ran(number: int, submit: float, seconds: float, processors: int, **more: float | str) -> str:
    told = {"job_number": number, "submit_time": submit, "run_time": seconds, "status": 1}
    return line(**told | {"allocated_processors": processors} | more)


def log(*lines: str, header: str = HEADER) -> swf.Log:
    return swf.log((header + "".join(lines)).splitlines(keepends=True), "m.swf")


def test_a_job_is_what_its_fields_say() -> None:
    first = ran(7, 100, 600.5, 8, requested_time=900, requested_memory=2048, user=3, executable=5, queue=2)
    found = log(first, ran(8, 130, 60, 1, status=0))
    whole, plain = found.jobs
    assert whole == TraceJob(
        "7",
        0.0,
        600.5,
        8,
        memory_bytes=8 * 2048 * 1024,
        queue="2",
        user="3",
        name="5",
        requested_seconds=900.0,
    )
    assert plain == TraceJob("8", 30.0, 60.0, 1)
    assert (found.processors, found.nodes) == (32, 4)


def test_a_header_without_processors_counts_them_as_nodes() -> None:
    assert log(ran(1, 0, 1, 1), header="; MaxNodes: 128\n").processors == 128


def test_processors_that_were_given_go_before_those_asked_for() -> None:
    both = ran(1, 0, 1, 16, requested_processors=10)
    asked = ran(2, 1, 1, -1, requested_processors=10)
    assert [job.gpus for job in log(both, asked).jobs] == [16, 10]


def test_what_cannot_be_played_is_left_out_and_counted() -> None:
    found = log(
        ran(1, 0, -1, 4),
        ran(2, 0, 60, -1),
        ran(3, -1, 60, 4),
        ran(4, 5, 0, 4, status=5),
        ran(5, 5, -1, 4, status=5),
        ran(6, 5, 0, 4),
        ran(7, 6, 9, 4, status=5),
        ran(8, 7, 9, 4, status=-1, preceding_job=7, think_time=30),
    )
    assert [(job.id, job.duration_seconds) for job in found.jobs] == [("6", 0.0), ("7", 9.0), ("8", 9.0)]
    assert (found.unknown, found.never_ran, found.unended, found.chained) == (3, 2, 0, 1)


def test_runs_of_one_job_are_one_job() -> None:
    """The line of the whole counts; without one the sum of the runs, if the last is there."""
    found = log(
        ran(1, 10, 300, 8),
        ran(1, 10, 200, 8, status=2),
        ran(1, -1, 90, 8, status=3),
        ran(2, 20, 200, 4, status=2, requested_time=500),
        ran(3, 25, 60, 2, status=2),
        ran(2, -1, 70.5, 4, status=4),
        ran(4, 30, 60, 2, status=2),
        ran(4, -1, -1, 2, status=3),
        ran(5, 40, 5, 1),
    )
    jobs = [(job.id, job.submit_seconds, job.duration_seconds, job.requested_seconds) for job in found.jobs]
    assert jobs == [("1", 0.0, 300.0, None), ("2", 10.0, 270.5, 500.0), ("5", 30.0, 5.0, None)]
    assert (found.unended, found.unknown) == (1, 1)


def test_several_processors_may_be_a_card() -> None:
    jobs = log(ran(1, 0, 1, 1), ran(2, 0, 1, 8), ran(3, 0, 1, 9)).jobs
    assert [job.gpus for job in swf.in_gpus(jobs, 8)] == [1, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        HEADER + ran(1, 0, 5, 1),
        ran(1, 0, 5, 1),
        "\ufeff; Computer: x\n" + ran(1, 0, 5, 1),
        "  " + ran(1, 0, 5, 1),
    ],
)
def test_it_is_recognised_with_a_header_and_without(text: str) -> None:
    assert [job.gpus for job in formats.read(text.splitlines(keepends=True), "m")] == [1]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (ran(1, 0, 5, 1, run_time="5x"), "m.swf, line 7, column 4 (run time): '5x' is no number"),
        (ran(1, 0, 5, 1, run_time="nan"), "column 4 (run time): 'nan' is no number of at least -1"),
        (
            ran(1, 0, 5, 1, run_time=-0.5),
            "column 4 (run time): '-0.5' is neither a number of at least 0 nor -1",
        ),
        (ran(1, 0, 5, 1, submit_time=-7), "column 2 (submit time): '-7' is no number of at least -1"),
        (
            ran(1, 0, 5, 1, allocated_processors=1.5),
            "column 5 (allocated processors): '1.5' is no whole number",
        ),
        (ran(1, 0, 5, 1 << 21), "column 5 (allocated processors): 2097152 is more than the 1048576"),
        (ran(1, 0, 5, 1, status=6), "column 11 (status): '6' is no status"),
        (ran(1, 0, 5, 1, user="ann"), "column 12 (user): 'ann' is no number"),
        (ran(1, 0, 5, 9, requested_memory=1 << 45), "column 10 (requested memory)"),
        ("1 0 5 1\n", "line 7: 4 fields, a job of SWF has 18"),
        (ran(1, 0, 5, 1).rstrip() + " 0\n", "line 7: 19 fields"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_field(bad: str, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        log(bad)
    assert words in str(caught.value)


def test_a_log_of_no_job_that_ran_is_refused() -> None:
    with pytest.raises(TraceError, match="there is no job in it"):
        formats.read(HEADER.splitlines(keepends=True), "m.swf")


@given(st.text("0123456789.-; \tax\n", max_size=200))
@settings(max_examples=200, deadline=None)
def test_whatever_is_in_a_file_it_is_read_or_refused(text: str) -> None:
    try:
        found = swf.log(text.splitlines(keepends=True), "m.swf")
    except TraceError:
        return
    assert all(job.gpus > 0 and job.submit_seconds >= 0 for job in found.jobs)


_JOBS = st.lists(
    st.builds(
        TraceJob,
        id=st.integers(1, 99).map(str),
        submit_seconds=st.integers(0, 10**7).map(float),
        duration_seconds=st.floats(0, 1e7),
        gpus=st.integers(1, 4096),
        queue=st.integers(0, 9).map(str),
        user=st.integers(0, 99).map(str),
        name=st.integers(0, 99).map(str),
        requested_seconds=st.none() | st.floats(1, 1e6),
    ),
    min_size=1,
    max_size=8,
)


@given(_JOBS)
@settings(max_examples=60, deadline=None)
def test_jobs_written_as_a_log_are_read_back(jobs: list[TraceJob]) -> None:
    """In the order of their submissions, from the first on."""
    lines = [
        ran(
            int(job.id),
            job.submit_seconds,
            job.duration_seconds,
            job.gpus,
            requested_time=-1 if job.requested_seconds is None else job.requested_seconds,
            user=job.user,
            executable=job.name,
            queue=job.queue,
        )
        for job in jobs
    ]
    ordered = sorted(jobs, key=lambda job: job.submit_seconds)
    found = log(*lines).jobs
    first = ordered[0].submit_seconds
    assert [job.submit_seconds + first for job in found] == [job.submit_seconds for job in ordered]
    alike = [
        (j.id, j.duration_seconds, j.gpus, j.queue, j.user, j.name, j.requested_seconds) for j in ordered
    ]
    assert [
        (j.id, j.duration_seconds, j.gpus, j.queue, j.user, j.name, j.requested_seconds) for j in found
    ] == alike
