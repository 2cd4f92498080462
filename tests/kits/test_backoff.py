from random import Random

from hypothesis import given
from hypothesis import strategies as st

from windlass.kits.backoff import Backoff


def test_doubles_up_to_its_cap_and_starts_anew_after_a_reset():
    backoff = Backoff(Random(1), initial_seconds=1, cap_seconds=8, jitter=0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 8, 8]
    backoff.reset()
    assert backoff.next() == 1


@given(st.integers(0, 2**32), st.integers(1, 80))
def test_stays_between_base_and_base_plus_jitter(seed: int, failures: int):
    backoff = Backoff(Random(seed))
    waits = [backoff.next() for _ in range(failures)]
    assert all(0.8 <= wait <= 60 for wait in waits)
    assert backoff.failures == min(failures, 64)
