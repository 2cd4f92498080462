"""The rounds on one box, printed as they end and kept in a report.

python -m tests.chaos --rounds 50 --report docs/operations/chaos.md
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from chaos_rounds import FAULTS, Outcome, run_round
from tests.chaos.report import machine, write_section

TITLE = "Single-node mode"
HEADER = """Each round starts single-node mode with 8 simulated GPUs, writes objects as fast as they are
acknowledged, submits six gangs of real processes, and kills one part (or everything) with SIGKILL
at a random time. Afterwards every acknowledged object exists in the acknowledged version, no
resourceVersion ran backwards, no process was lost or started twice (a lock per pod), no device was
allocated twice (a lock per device), and every gang has ended well. No gang restarts, since its
processes survive the control plane.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round; the next ones count up")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    outcomes = []
    for seed in range(options.seed, options.seed + options.rounds):
        outcome = run_round(seed, options.fault or FAULTS[seed % len(FAULTS)])
        outcomes.append(outcome)
        print(line(outcome), flush=True)
        for problem in outcome.problems:
            print(f"    {problem}", flush=True)
    print(summary(outcomes))
    if options.report:
        write_section(options.report, TITLE, HEADER + table(outcomes) + "\n" + summary(outcomes))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


def line(o: Outcome) -> str:
    verdict = "held" if not o.problems else "BROKEN"
    return (
        f"seed {o.seed:4d}  {o.fault:10s} killed after {o.after_seconds:4.1f} s  "
        f"ready again {o.recovered_seconds:5.2f} s  settled {o.settled_seconds:6.2f} s  "
        f"{o.acknowledged:5d} objects  {o.restarts:2d} restarts  {verdict}"
    )


def table(outcomes: list[Outcome]) -> str:
    rows = [
        "| killed | rounds | held | ready again, median / max s | gangs restarted | objects acknowledged |",
        "|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        of = [o for o in outcomes if o.fault == fault]
        if of:
            ready = [o.recovered_seconds for o in of]
            restarts, acknowledged = sum(o.restarts for o in of), sum(o.acknowledged for o in of)
            rows.append(
                f"| {fault} | {len(of)} | {sum(not o.problems for o in of)} "
                f"| {statistics.median(ready):.2f} / {max(ready):.2f} | {restarts} | {acknowledged} |"
            )
    return "\n".join(rows) + "\n"


def summary(outcomes: list[Outcome]) -> str:
    held = sum(not o.problems for o in outcomes)
    seeds = f"seeds {outcomes[0].seed} to {outcomes[-1].seed}"
    return f"{held} of {len(outcomes)} rounds held ({seeds}), {machine()}."


if __name__ == "__main__":
    sys.exit(main())
