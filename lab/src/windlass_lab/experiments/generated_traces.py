"""Small traces of the project's own, in the formats of the published ones.

``windlass sim claims`` plays them where no folder of published traces is named. Each has
the load that the published one puts on the cluster of its experiments, for a shorter
time. Nothing in them is taken from a published trace but the rough shape. Equal on every
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp

from windlass.kits.rng import Random, seeded
from windlass.kits.timestamps import rfc3339
from windlass.sim.jobs import TraceJob
from windlass.sim.synthetic import DAY, Profile, generate
from windlass.sim.traces import openb

NAME = "generated"
_BEGIN = 1_700_000_000.0
_MODELS = ("A100", "V100", "T4")


def scaled(profile: Profile, gpus: float, load: float, seed: int) -> list[TraceJob]:
    """Return generated jobs with run times scaled to a load of so many GPUs."""
    jobs = generate(profile, seed)
    factor = load * gpus * profile.days * DAY / sum(job.gpu_seconds for job in jobs)
    return [replace(job, duration_seconds=max(10.0, round(job.duration_seconds * factor))) for job in jobs]


def _philly() -> Iterator[str]:
    yield "submit_s,duration_s,gpus,vc\n"
    profile = Profile(jobs=1500, days=1.0, spread=1.4, queues=11)
    for job in scaled(profile, 480, 0.91, 1):
        yield f"{job.submit_seconds:.0f},{job.duration_seconds:.0f},{job.gpus},{job.queue}\n"


def _muri(seed: int) -> Iterator[str]:
    yield "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\n"
    for job in scaled(Profile(jobs=200, days=0.5, spread=1.2), 64, 1.3, seed):
        milli = 1000 * job.duration_seconds
        yield f"{job.id},{job.gpus},{1000 * job.submit_seconds:.0f},1,{job.name},1,{milli:.0f}\n"


def _muri_table() -> Iterator[str]:
    """No published results belong to generated jobs."""
    yield "policy,metric_s,trace1,trace3\n"


def nodes(count: int = 120) -> Iterator[str]:
    """Yield machines with two, four and eight GPUs of three models, in OpenB's format."""
    yield "sn,cpu_milli,memory_mib,gpu,model\n"
    for number in range(count):
        gpus = (2, 4, 8, 8)[number % 4]
        model = _MODELS[number % len(_MODELS)]
        yield f"node-{number:04d},{12_000 * gpus},{49_152 * gpus},{gpus},{model}\n"


def pods(count: int = 900, *, cpu_alone: float = 0.15, seed: int = 2) -> Iterator[str]:
    """Yield pods in OpenB's format; ``cpu_alone``: the part of them that asks for no GPU."""
    yield ",".join((*openb.COLUMNS, "gpu_spec", "qos", "pod_phase", *openb.TIMES)) + "\n"
    chance = seeded(f"pods {seed}")
    at = 0.0
    for number in range(count):
        at += chance.expovariate(1 / 60.0)
        length = min(exp(chance.gauss(8.0, 1.2)), 3 * DAY)
        gpus, milli, cpu = _demand(chance, cpu_alone)
        spec = chance.choice(_MODELS) if gpus and chance.random() < 0.1 else ""
        yield (
            f"pod-{number:04d},{cpu},{4 * cpu},{gpus},{milli},{spec},LS,Running,"
            f"{at:.0f},{at + length:.0f},{at:.0f}\n"
        )


def _demand(chance: Random, cpu_alone: float) -> tuple[int, int, int]:
    """Return GPUs, thousandths of each, and CPU of a pod."""
    drawn = chance.random()
    if drawn < cpu_alone:
        return 0, 0, chance.choice((4_000, 8_000, 16_000))
    if drawn < 0.5:
        return 1, chance.choice((200, 300, 460, 500, 700)), chance.choice((3_000, 6_000, 8_000))
    gpus = chance.choices((1, 2, 4, 8), (0.8, 0.05, 0.05, 0.1))[0]
    return gpus, 1000, gpus * chance.choice((6_000, 8_000, 11_000))


def _images() -> Iterator[str]:
    """Requests for images from 80 base models, the k-th with a weight of 1/k."""
    yield "gmt_create,predict_status,exec_time_seconds,groupId,checkpoint_model_version_id\n"
    chance = seeded("images")
    weights = [1.0 / (rank + 1) for rank in range(80)]
    at = _BEGIN
    for _ in range(2000):
        at += chance.expovariate(1 / 10.0)
        model = chance.choices(range(80), weights)[0]
        seconds = min(max(5.0, exp(chance.gauss(3.2, 0.5))), 300.0)
        yield f"{rfc3339(at)[:-1].replace('T', ' ')},SUCCEED,{seconds:.1f},G{model % 20},M{model:04d}\n"


def _inference() -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    chance = seeded("inference")
    at = _BEGIN
    for _ in range(2000):
        at += chance.expovariate(2.5)
        context, answer = min(exp(chance.gauss(7.4, 0.8)), 8000), min(exp(chance.gauss(3.0, 0.9)), 1000)
        yield f"{rfc3339(at)[:-1].replace('T', ' ')},{context:.0f},{max(1, answer):.0f}\n"


_FILES: Mapping[str, Callable[[], Iterator[str]]] = {
    "philly/philly_oct.csv.gz": _philly,
    "muri/trace1.csv.gz": lambda: _muri(1),
    "muri/trace3.csv.gz": lambda: _muri(3),
    "muri/published_table.csv": _muri_table,
    "openb/openb_nodes.csv.gz": nodes,
    "openb/pods_default.csv.gz": pods,
    "openb/pods_cpu200.csv.gz": lambda: pods(cpu_alone=0.4, seed=3),
    "genai/lora_requests.csv.gz": _images,
    "azure_llm/llm2023_code.csv.gz": _inference,
}


def lines(name: str) -> Sequence[str]:
    """Return the lines of a trace, by the name of the published one. Raises ``KeyError`` for another name."""
    return list(_FILES[name]())
