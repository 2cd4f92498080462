"""Entry point ``python -m windlass.app ROLE …``; :mod:`windlass.app.options` lists the
roles."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from windlass.api.error_codes import exit_status_of
from windlass.api.errors import WindlassError
from windlass.app.options import child_options, parser, remote_options, up_options
from windlass.app.progress import WARNING, PipeReporter, ProgressReporter, TextReporter, tell
from windlass.kits import gc_tuning


def main(arguments: list[str] | None = None) -> int:
    """Run the role and return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        parsed = parser().parse_args(given)
        remote = remote_options(parsed) if parsed.role in ("scheduler", "controller") else None
    except WindlassError as error:
        from windlass.cli.main import wants_json

        tell(error, as_json=wants_json(given))
        return exit_status_of(error.code)
    os.umask(0o077)
    if parsed.role == "up":
        return _up(parsed)
    if remote is not None:
        from windlass.app.remote import run_remote

        return run_remote(remote)
    return run_role(given)


def run_role(arguments: list[str]) -> int:
    """Run one of the three processes of single-node mode; return the exit status."""
    from windlass.app.children import run_child

    return run_child(child_options(parser().parse_args(arguments)))


SHARED = (
    "windlass.app.children",
    "windlass.api.defaults",
    "windlass.api.views",
    "windlass.client.batching",
    "windlass.client.client",
    "windlass.jobs.kubeflow.kinds",
    "windlass.jobs.leaderworkerset.pods",
    "windlass.jobs.owners.rules",
    "windlass.jobs.trainer.objects",
    "windlass.observe.metrics",
    "windlass.workflow.checks.validation",
)
"""Modules that at least two of the three processes import, most of them server and control process."""


def import_shared_modules() -> None:
    """Import what the processes share, before they begin as copies of the supervisor."""
    with gc_tuning.infrequent_collections():
        for name in SHARED:
            import_module(name)


def _up(parsed: object) -> int:
    import_shared_modules()
    from windlass.app.running import differs, missing_data, resumed, take_lock, wait_for_record
    from windlass.app.supervisor import Supervisor
    from windlass.cli.bootstrap import state_error
    from windlass.kits.clock import SystemClock
    from windlass.kits.state import StateError

    reporter: ProgressReporter = TextReporter()
    descriptor = getattr(parsed, "report_fd", None)
    if descriptor is not None:
        reporter = PipeReporter(descriptor)
    clock = SystemClock()
    try:
        options = up_options(parsed)  # type: ignore[arg-type]
        try:
            options.state.prepare(allow_network=options.allow_network)
        except StateError as error:
            raise state_error(error) from error
        while (lock := take_lock(options.state)) is None:
            record = wait_for_record(options.state, clock)
            if record is None:
                continue  # the other supervisor released the lock meanwhile
            conflict = differs(options, record)
            if conflict is not None:
                raise conflict
            reporter.ready({**record, "already": True})
            return 0
    except WindlassError as error:
        reporter.error(error)
        return exit_status_of(error.code)
    try:
        if missing := missing_data(options.state):
            reporter.phase(f"{WARNING}{missing}")
        options, opening = resumed(options)
        return Supervisor(options, reporter, clock, lock, opening, run_role).run()
    finally:
        lock.release()


if __name__ == "__main__":
    sys.exit(main())
