"""Page docs/operations/benchmarks/claims.md: claims about schedulers, tried on published traces.

``python tools/claims.py FOLDER [--only E2,E5] [--jobs 2] [--from FILE.json …]``

``FOLDER`` holds the traces as their sources lay them out (openb/, philly/, muri/, genai/,
azure_llm/). Results are stored in docs/operations/benchmarks/claims.json, and the page is
made from them. With ``--only`` the other experiments keep their results. An experiment
without a result is listed as not run yet. ``--from`` takes the output of
``windlass sim claims -o json`` instead of running anything.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from windlass_lab.experiments.claim import ExperimentResult
from windlass_lab.experiments.registry import EXPERIMENTS
from windlass_lab.experiments.report import markdown
from windlass_lab.experiments.requirement_numbers import numbers_of

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURES = ROOT / "docs/operations/benchmarks/claims.md", ROOT / "docs/operations/benchmarks/claims.json"
HEAD = """\
# Claims about schedulers

Most claims about AI schedulers hold for Windlass on published traces, some in part. Each
experiment on this page states the claim, the result of a baseline, and that of Windlass.

Both results come from the scheduler's own engine under a virtual clock
([the simulator](../../guides/simulator.md)). Exceptions are E13 and E15, which need no
scheduler, and rows marked as published. *Holds* means that all goals of an experiment are met, *holds
in part* that some are. Missed goals stay on the page. Each experiment says what cannot be
simulated. N1 to N22 are the numbers of claims in the list of requirements:
`windlass sim claims N14` tries that one.

Written by `make claims`; `windlass sim claims --traces FOLDER` repeats the experiments. The
published traces are not part of Windlass: without `--traces` small traces of the same shape
are generated and played. E14 to E17 generate their work in any case.

"""

TAIL = """
## Segments in parallel

Of N6, only the effect of running segments in parallel can be measured. A film of eight
minutes of work on one GPU ends after 480 s in one piece, and after 120 s as eight
segments on four GPUs:

```console
$ printf 'id,submit_seconds,duration_seconds,gpus\\nfilm,0,480,1\\n' > film.csv
$ (echo id,submit_seconds,duration_seconds,gpus; for n in 1 2 3 4 5 6 7 8; do echo $n,0,60,1; done) > segments.csv
$ windlass sim run --trace film.csv --nodes 1x4 --policy fifo -o json | grep makespan_seconds
    "makespan_seconds": 480.0,
$ windlass sim run --trace segments.csv --nodes 1x4 --policy fifo -o json | grep makespan_seconds
    "makespan_seconds": 120.0,
```

The factor is that of the GPUs: it says nothing about subtitles. The 30 seconds before
each segment, which a model would read again, are not included. [A workflow that runs](subtitles.md)
measures both for a synthetic recording.
"""


def tried(folder: Path, only: str, jobs: int) -> list[dict[str, Any]]:
    """Return the output of the command; its progress goes to this terminal."""
    command = [sys.executable, "-m", "windlass", "sim", "claims", "--traces", str(folder), "-o", "json"]
    command += ["--jobs", str(jobs), *(["--only", only] if only else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["claims"]


def text(claims: list[dict[str, Any]]) -> str:
    """The page."""
    return HEAD + markdown(claims) + TAIL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--from", dest="files", type=Path, action="append", default=[])
    given = parser.parse_args()
    if given.files:
        new = [claim for file in given.files for claim in json.loads(file.read_text())["claims"]]
    else:
        new = tried(given.folder, given.only, given.jobs)
    old = json.loads(FIGURES.read_text())["claims"] if FIGURES.exists() else []
    known = {key: ExperimentResult(one, None).document for key, one in EXPERIMENTS.items()}
    for claim in [*old, *new]:
        known[claim["id"]] = claim
    claims = [{**known[key], "numbers": numbers_of(key)} for key in EXPERIMENTS]
    FIGURES.write_text(json.dumps({"claims": claims}, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(text(claims))
    return 0


if __name__ == "__main__":
    sys.exit(main())
