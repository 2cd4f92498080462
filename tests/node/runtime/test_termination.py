"""Order in which a stop signal reaches the processes of a container."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.node.runtime.termination import RELEASE_DELAY, GracefulStop, Process

TERM = signal.SIGTERM
INIT = 0


@dataclass
class Table:
    """Processes in memory. ``parents`` holds the living ones; init adopts orphans."""

    parents: dict[int, int]
    traits: Mapping[int, Process]
    sent: list[int] = field(default_factory=list)

    def read(self, number: int) -> dict[int, Process]:
        assert number == TERM
        return {
            pid: self.traits[pid]._replace(
                children=tuple(child for child, parent in self.parents.items() if parent == pid)
            )
            for pid in self.parents
        }

    def is_running(self, pid: int) -> bool:
        return pid in self.parents

    def send(self, pid: int, number: int) -> None:
        self.sent.append(pid)
        if not self.traits[pid].catches:
            self.end(pid)

    def end(self, pid: int) -> None:
        del self.parents[pid]
        for child, parent in self.parents.items():
            if parent == pid:
                self.parents[child] = INIT

    def take(self) -> list[int]:
        sent, self.sent = self.sent, []
        return sent


SHELL = Process(shell=True)
TRAP = Process(shell=True, catches=True)
PROGRAM = Process()
TRAINER = Process(catches=True)


def started(table: Table) -> GracefulStop:
    termination = GracefulStop(TERM, table)
    termination.proceed(0.0)
    return termination


def test_processes_without_handlers_are_signalled_at_once() -> None:
    table = Table({1: 0, 2: 1, 3: 2}, {1: SHELL, 2: PROGRAM, 3: PROGRAM})
    started(table)
    assert sorted(table.sent) == [1, 2, 3]


def test_reader_of_a_pipe_is_signalled_after_the_writer_has_ended() -> None:
    table = Table({1: 0, 2: 1, 3: 1}, {1: SHELL, 2: TRAINER, 3: PROGRAM})
    termination = started(table)
    assert table.take() == [1, 2]
    termination.proceed(20.0)
    table.end(2)
    termination.proceed(20.0 + RELEASE_DELAY - 0.1)
    assert table.take() == []
    termination.proceed(20.0 + RELEASE_DELAY)
    assert table.take() == [3]


def test_processes_below_a_handler_are_left_to_it() -> None:
    table = Table({1: 0, 2: 1, 3: 1}, {1: TRAINER, 2: TRAINER, 3: PROGRAM})
    termination = started(table)
    assert table.take() == [1]
    table.end(1)
    termination.proceed(RELEASE_DELAY)
    assert table.take() == [2]
    table.end(2)
    termination.proceed(2 * RELEASE_DELAY)
    assert table.take() == [3]


def test_shell_with_a_trap_does_not_shield_its_foreground_command() -> None:
    table = Table({1: 0, 2: 1}, {1: TRAP, 2: TRAINER})
    started(table)
    assert table.sent == [1, 2]


def test_background_command_is_left_to_the_trap_of_its_shell() -> None:
    table = Table({1: 0, 2: 1}, {1: TRAP, 2: TRAINER._replace(background=True)})
    started(table)
    assert table.sent == [1]


def test_command_that_a_trap_starts_is_left_to_the_shell() -> None:
    table = Table({1: 0, 2: 1}, {1: TRAP, 2: TRAINER, 3: PROGRAM})
    termination = started(table)
    table.take()
    table.end(2)
    table.parents[3] = 1
    for now in (RELEASE_DELAY, 2 * RELEASE_DELAY):
        termination.proceed(now)
    assert table.take() == []
    table.end(1)
    termination.proceed(3 * RELEASE_DELAY)
    assert table.take() == [3]


def test_foreground_command_without_handler_does_not_delay_a_trap_for_ever() -> None:
    table = Table({1: 0, 2: 1}, {1: TRAP, 2: PROGRAM})
    termination = started(table)
    assert table.take() == [1]
    termination.proceed(RELEASE_DELAY)
    assert table.take() == [2]


@st.composite
def trees(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 9))
    parents = {1: INIT} | {pid: draw(st.integers(0, pid - 1)) for pid in range(2, count + 1)}
    flags = st.booleans()
    traits = {pid: Process((), draw(flags), draw(flags), draw(flags)) for pid in parents}
    return Table(parents, traits)


def above(parents: Mapping[int, int], pid: int) -> list[int]:
    found = []
    while pid := parents[pid]:
        found.append(pid)
    return found


@given(trees(), st.randoms(use_true_random=False))
def test_each_process_is_signalled_once_and_none_before_the_one_that_needs_it(
    table: Table, random: Random
) -> None:
    first, traits = dict(table.parents), table.traits
    termination = started(table)
    signalled = table.take()
    for pid in first:
        handlers = [each for each in above(first, pid) if traits[each].catches]
        if traits[pid].catches and not handlers:
            assert pid in signalled
        if any(not traits[each].shell for each in handlers):
            assert pid not in signalled, "it is left to the process above it that has a handler"
        if not traits[pid].catches and pid in signalled:
            below = [each for each in first if pid in above(first, each)]
            assert (traits[pid].shell and any(traits[each].catches for each in below)) or not any(
                trait.catches for trait in traits.values()
            )
    now = 0.0
    while table.parents:
        waiting = [pid for pid in table.parents if pid in signalled]
        if waiting:
            table.end(random.choice(waiting))
        now += RELEASE_DELAY
        termination.proceed(now)
        signalled += table.take()
        assert waiting or not table.parents or any(pid in table.parents for pid in signalled)
    assert sorted(signalled) == sorted(set(signalled))


@pytest.mark.parametrize("seconds", [0.0, RELEASE_DELAY / 2])
def test_a_receiver_is_not_signalled_again(seconds: float) -> None:
    table = Table({1: 0, 2: 1}, {1: SHELL, 2: TRAINER})
    termination = started(table)
    termination.proceed(seconds)
    assert table.sent == [1, 2]
