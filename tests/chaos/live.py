"""The faults of a real cluster: each as often as asked, printed as they end and kept in a report.

python -m tests.chaos.live --rounds 30 --report docs/operations/chaos.md --keep FILE

``--keep``: every round is noted in that file as it ends, and those that it holds are not played again: a run of
hours that was broken off goes on from there.

``--logs``: what Windlass' processes said in a round that did not hold is kept there, in a folder of its own.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from fault_rounds import FAULTS, Outcome, World, run_round
from realkube import REQUIRED, missing
from tests.chaos.report import machine, write_section
from workload_rounds import GUESTS

TITLE = "Real cluster"
_decoder = msgspec.json.Decoder(Outcome)
HEADER = """The cluster is etcd, kube-apiserver, the controllers as a process and the scheduler as a process
(for `leader` and `clock` two, with leader election), and six nodes of 8 GPUs. Gangs for half as
many GPUs again as there are arrive at random times, run and end. The fault comes at a random time
among them. Windlass reaches the API server only through a proxy.

The result is judged by every version of every pod, read from the log that the API server's watches
are served from:

- no pod was bound twice, no node and no GPU exceeded its capacity, no pod was lost;
- no gang was incomplete for longer than 60 s after the last fault;
- another scheduler had bound a pod within 20 s of the leader's end (15 s for the lease, and 5 s
  multiplied by how much slower a shared machine is);
- no process ended that was not killed.

Bound pods run a moment later.

Four of these guests are on the cluster too, drawn by the seed of the round:

- `elastic` gangs have more pods than they need;
- `restarted` gangs are deleted in any state, and created again at once with the same names, or
  given up;
- an `urgent` gang of higher priority arrives when the nodes are full;
- a queue is `capped`, edited, deleted and created again, and another one arrives after its gang;
- nodes arrive, are removed with all their pods and may come back; others are cordoned or lose their
  GPUs for a moment (`comings`);
- another scheduler (`foreign`) binds pods to the same nodes, or one with bindings that the API
  server checks with Windlass first (`guarded`);
- GPUs are `shared`; pods have `claims` for devices, each its own or one together;
- nodes are requested for a gang that is too large, until it is given up (`requests`);
- Volcano `jobs`, which restart when they lose a pod, have to end well;
- gangs share time (`timeshared`), one that saves its work when it is stopped and one that does not;
- a queue is `handed` over by Volcano, which still runs, and perhaps back.

So these also hold:

- no queue above its limit, no shared GPU above its capacity, no device in two claims;
- no pod bound with a claim for another node or another pod;
- a request for nodes exists as long as nodes lack, and only so long;
- a suspended gang leaves as a whole and comes back as a whole, and every gang records its scheduler;
- if another scheduler's pod came to a node at the same time, that node is over its capacity for a
  moment only, and never if Windlass was asked.

The faults:

- `scheduler`: killed once or twice and started again, half of the time with the controllers.
- `leader`: killed, disconnected from the API server by resets or silently, or frozen until another
  leads.
- `apiserver`, `etcd`: killed and started again.
- `network`: connections drop and responses are lost, then nothing passes for up to 6 s, by resets
  or silently.
- `storm`: three requests in ten are rejected with 401, 403, 409, 410, 429, 500, 502, 503 or 504;
  some responses are lost; watches end with 410.
- `watch`: events arrive up to 1.5 s late, twice (old ones too), and in another order.
- `clock`: the clocks of both schedulers jump by up to a day, at most one leads; then the leader is
  killed.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="of each fault")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round; the next ones count up")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only these")
    parser.add_argument(
        "--guest", choices=GUESTS, action="append", help="who else is there; else by the seed"
    )
    parser.add_argument("--report", type=Path)
    parser.add_argument("--keep", type=Path, help="JSON lines of rounds that have been played")
    parser.add_argument("--logs", type=Path, help="folder for the logs of rounds that do not hold")
    options = parser.parse_args()
    absent = missing(REQUIRED[:2])
    if absent:
        print(f"no {', '.join(absent)}: build them with tools/kubernetes/build.sh", file=sys.stderr)
        return 3
    outcomes = [
        outcome
        for fault in options.fault or FAULTS
        for outcome in played(fault, range(options.seed, options.seed + options.rounds), options)
    ]
    print(table(outcomes), summary(outcomes, options.seed), sep="\n")
    if options.report:
        write_section(
            options.report, TITLE, HEADER + table(outcomes) + "\n" + summary(outcomes, options.seed)
        )
    return 1 if any(outcome.problems for outcome in outcomes) else 0


def played(fault: str, seeds: range, options: argparse.Namespace) -> Iterator[Outcome]:
    """The rounds of a fault, on one world; those that ``--keep`` holds as they were."""
    keep: Path | None = options.keep
    text = keep.read_bytes() if keep is not None and keep.exists() else b""
    known = {(o.fault, o.seed): o for o in map(_decoder.decode, text.splitlines())}
    yield from (known[fault, seed] for seed in seeds if (fault, seed) in known)
    rest = [seed for seed in seeds if (fault, seed) not in known]
    if not rest:
        return
    with tempfile.TemporaryDirectory(prefix="windlass-chaos-") as folder:
        world = World(Path(folder), rest[0])
        world.start()
        try:
            for seed in rest:
                outcome = run_round(world, seed, fault, options.guest or ())
                print(line(outcome), flush=True)
                if outcome.problems and options.logs is not None:
                    shutil.copytree(folder, options.logs / f"{fault}-{seed}", ignore=_but_logs)
                if keep is not None:
                    with keep.open("ab") as notes:
                        notes.write(msgspec.json.encode(outcome) + b"\n")
                yield outcome
        finally:
            world.stop()


def _but_logs(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (name.startswith("windlass-") and name.endswith(".log"))]


def line(o: Outcome) -> str:
    verdict = "held" if not o.problems else "BROKEN"
    told = "".join(f"\n    {problem}" for problem in o.problems)
    return (
        f"seed {o.seed:4d}  {o.fault:10s} settled {o.settled_seconds:6.2f} s  between {o.between_seconds:5.2f} s  "
        f"fail-over {o.fail_over_seconds:5.2f} s  slowness {o.slowness:4.1f}  {o.binds:4d} binds  "
        f"{o.versions:5d} versions  {o.evicted:2d} evicted  {verdict}  {o.detail}  {o.injected or ''}  "
        f"{', '.join(o.company)}  {o.guests_told}{told}"
    )


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [
        "| fault | rounds | held | all placed after the fault, median / max s | longest incomplete gang, s "
        "| fail-over, median / max s | pods bound | evicted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        of = [o for o in outcomes if o.fault == fault]
        if not of:
            continue
        settled, over = [o.settled_seconds for o in of], [o.fail_over_seconds for o in of]
        taken = f"{statistics.median(over):.1f} / {max(over):.1f}" if any(over) else ""
        rows.append(
            f"| {fault} | {len(of)} | {sum(not o.problems for o in of)} "
            f"| {statistics.median(settled):.1f} / {max(settled):.1f} | {max(o.between_seconds for o in of):.1f} "
            f"| {taken} | {sum(o.binds for o in of)} | {sum(o.evicted for o in of)} |"
        )
    return "\n".join(rows) + "\n"


def summary(outcomes: Sequence[Outcome], seed: int) -> str:
    held = sum(not o.problems for o in outcomes)
    seeds = f"seeds from {seed} on for each fault"
    return f"{held} of {len(outcomes)} rounds held ({seeds}), {machine()}."


if __name__ == "__main__":
    sys.exit(main())
