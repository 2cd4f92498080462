"""Announcements to a rendezvous, played with agents that behave as those of torchrun."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.jobs.rendezvous.announce import (
    MASTER,
    NOTICE_NAME,
    announce,
    index_of,
    read_world,
    world_text,
)
from windlass.jobs.rendezvous.state import RendezvousNode, RendezvousState

MINIMUM, MAXIMUM = 2, 6


class Agent:
    """Agent of torchrun 1.13: it joins, waits for the round, and leaves it when nodes wait."""

    def __init__(self, index: int, pid: int) -> None:
        name = "x-master-0" if index == MASTER else f"x-worker-{index}"
        self.node = RendezvousNode(f"{name}.x", pid, 0)
        self.trains: tuple[int, ...] = ()
        """Indices of the world in which its processes train."""
        self.joining = True

    def act(self, state: RendezvousState, beat: int) -> None:
        state.heartbeats[self.node] = beat  # type: ignore[assignment]
        if not self.joining:
            if state.waiting:
                self.trains, self.joining = (), True
                self._leave(state)
            return
        member = self.node in state.participants
        if state.complete and member:
            self.trains = tuple(sorted(index_of(node) or 0 for node in state.participants))
            self.joining = False
        elif state.complete:
            if len(state.participants) < MAXIMUM:
                state.waiting.add(self.node)
        elif not member:
            state.waiting.discard(self.node)
            state.participants[self.node] = 0
            if len(state.participants) == MAXIMUM:
                state.complete = True
                for rank, node in enumerate(sorted(state.participants)):
                    state.participants[node] = rank

    def _leave(self, state: RendezvousState) -> None:
        if self.node in state.participants:
            del state.participants[self.node]
            if state.complete and not state.participants:
                state.complete, state.round = False, state.round + 1


class Round:
    """A rendezvous with its agents, in random order of their actions."""

    def __init__(self, seed: int = 0) -> None:
        self.state = RendezvousState(others={"deadline": None})
        self.agents: dict[int, Agent] = {}
        self.random = random.Random(seed)
        self.beat = 0

    def world(self, *indices: int, restarted: int | None = None) -> None:
        for gone in self.agents.keys() - set(indices):
            del self.agents[gone]
        if restarted is not None:
            self.agents.pop(restarted, None)
        for index in indices:
            if index not in self.agents:
                self.beat += 1
                self.agents[index] = Agent(index, 100 + self.beat)

    def settle(self, limit: int = 200) -> int:
        """Play until every agent trains in exactly the world. Return the number of steps."""
        world = frozenset(self.agents)
        for count in range(limit):
            told = announce(copy.deepcopy(self.state), world)
            if told.state is not None:
                self.state = told.state
            agents = list(self.agents.values())
            self.random.shuffle(agents)
            for agent in agents[: self.random.randint(1, len(agents))]:
                self.beat += 1
                agent.act(self.state, self.beat)
            if told.settled and all(agent.trains == tuple(sorted(world)) for agent in agents):
                return count
        raise AssertionError(f"no round of {sorted(world)} after {limit} steps: {self.state}")


def ranks(one: Round) -> dict[int, int]:
    return {index_of(node) or 0: rank for node, rank in one.state.participants.items()}


@pytest.mark.parametrize("seed", range(20))
def test_each_announced_world_forms_without_waits(seed: int) -> None:
    """W9: 4 to 3, 3 to 2, 2 to 4, 4 to 6, and a worker with a new process."""
    one = Round(seed)
    for indices in ((0, 1, 2, 3), (0, 1, 2), (0, 1), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (0, 1)):
        one.world(*indices)
        one.settle()
        assert ranks(one) == {index: rank for rank, index in enumerate(indices)}
    one.world(0, 1, restarted=1)
    one.settle()
    rounds = one.state.round
    for _ in range(20):  # A settled round stays.
        assert announce(one.state, {0, 1}).state is None
        for agent in one.agents.values():
            agent.act(one.state, 10_000)
    assert one.state.round == rounds
    assert not any(node.fqdn == NOTICE_NAME for node in one.state.waiting)


def test_master_of_a_job_has_rank_zero_in_each_world() -> None:
    one = Round(1)
    for indices in ((MASTER, 0, 1, 2), (MASTER, 0), (MASTER, 0, 1, 2, 3)):
        one.world(*indices)
        one.settle()
        assert ranks(one) == {index: rank for rank, index in enumerate(indices)}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sets(st.integers(1, 5)), st.one_of(st.none(), st.integers(0, 5))), max_size=6),
    st.integers(0, 1000),
)
def test_any_sequence_of_worlds_forms(steps: list[tuple[set[int], int | None]], seed: int) -> None:
    one = Round(seed)
    for others, restarted in steps:
        one.world(*sorted({0, *others}), restarted=restarted)
        one.settle()


def test_a_closed_rendezvous_and_an_empty_world_are_left_alone() -> None:
    state = RendezvousState(closed=True, participants={RendezvousNode("x-worker-0", 1, 0): 0})
    assert announce(state, {1}).state is None
    assert announce(RendezvousState(), set()).state is None


def test_worlds_are_written_as_ranges() -> None:
    for world, text in (
        ((0, 1, 2, 3, 6), "0-3,6"),
        ((5,), "5"),
        ((), ""),
        ((0, 2, 4, 5), "0,2,4-5"),
        ((MASTER, 0, 1), "master,0-1"),
    ):
        assert world_text(world) == text
        assert read_world(text) == frozenset(world)
    for text in ("a", "3-", "0-999999999", "1;2"):
        with pytest.raises(ValueError, match="worker indices"):
            read_world(text)
