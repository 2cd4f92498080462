"""Process of a worker: ``python -m windlass.items.worker``.

Exit code 0: the batch has ended. 1: the runtime cannot work. 143: it was told to end, and
has returned its items, or its program ended and all ranks of the worker have to start again.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from windlass.items.runtimes.base import SetupError
from windlass.items.spec import BATCH_FILE, SHARD, STAGE, SpecError, parse_batch
from windlass.items.stages.batches import batch_of_stage
from windlass.items.worker.link import DriverGone
from windlass.items.worker.loop import Worker
from windlass.items.worker.model import model_files


def main() -> int:
    """Run one worker of the batch that the environment names."""
    try:
        with open(os.environ[BATCH_FILE]) as stream:  # pathlib would take a tenth of the start
            batch = parse_batch(json.load(stream))
        batch = batch_of_stage(batch, os.environ.get(STAGE, ""))
    except (KeyError, OSError, SpecError, ValueError) as error:
        print(f"windlass: the batch of {BATCH_FILE} cannot be read: {error}", file=sys.stderr)
        return 1
    try:
        with model_files(os.environ) as model:
            os.environ |= model.environment
            if os.environ.get(SHARD, "0") != "0":
                from windlass.items.worker.shard import Shard  # workers of one pod do without

                worker: Worker | Shard = Shard(batch, os.environ)
            else:
                worker = Worker(batch, os.environ, model.how)
            signal.signal(signal.SIGTERM, lambda signum, frame: worker.stop())
            signal.signal(signal.SIGINT, lambda signum, frame: worker.stop())
            return worker.run()
    except (DriverGone, SetupError) as error:
        print(f"windlass: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without waiting for threads with requests that no longer count
