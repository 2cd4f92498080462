"""Who is seen to lead, where the lease may change hands between two questions."""

from __future__ import annotations

from collections.abc import Iterable

from fault_rounds import two_lead, who_leads


class Asked:
    """Answers so, one time after the other."""

    alive = True

    def __init__(self, answers: Iterable[bool]) -> None:
        self._answers = iter(answers)

    @property
    def leads(self) -> bool:
        return next(self._answers)


def test_a_lease_that_changes_hands_between_two_questions_has_one_holder() -> None:
    assert not two_lead([Asked([True, False]), Asked([True, True])])


def test_who_leads_before_and_after_another_was_seen_to_lead_is_one_of_two() -> None:
    assert two_lead([Asked([True, True]), Asked([True, True])])
    assert two_lead([Asked([True, True]), Asked([False]), Asked([True, True])])


def test_one_leads() -> None:
    assert not two_lead([Asked([False]), Asked([True, True])])
    one = Asked([True])
    assert who_leads([Asked([False]), one]) == [one]
