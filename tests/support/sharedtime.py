"""Small traces whose jobs share time, some of them."""

from __future__ import annotations

from hypothesis import strategies as st

from windlass.sim.jobs import TraceJob


@st.composite
def workloads(draw: st.DrawFn) -> list[TraceJob]:
    found, at = [], 0.0
    for number in range(draw(st.integers(4, 14))):
        at += draw(st.sampled_from((0.0, 30.0, 400.0, 2000.0)))
        seconds = draw(st.sampled_from((10.0, 300.0, 1500.0, 9000.0, 50_000.0)))
        gpus = draw(st.sampled_from((1, 1, 2, 4, 6, 8)))
        found.append(TraceJob(str(number), at, seconds, gpus, time_share=draw(st.booleans())))
    return found
