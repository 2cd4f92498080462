from hypothesis import given
from hypothesis import strategies as st

from windlass.client.watch_batching import FEW_PIECES, WatchBatching

LONGEST = 0.05


def test_what_comes_alone_or_among_a_few_is_read_at_once() -> None:
    breath = WatchBatching(LONGEST)
    now = 0.0
    for _ in range(3):
        for _ in range(FEW_PIECES):
            assert breath.after(now, 1500) == 0
            now += 0.001
        now += 2 * LONGEST


def test_what_trickles_thick_is_read_many_at_a_time() -> None:
    breath = WatchBatching(LONGEST)
    now = 0.0
    for _ in range(FEW_PIECES + 1):
        paused = breath.after(now, 100)
        now += 0.001
    assert paused == LONGEST
    assert breath.after(now + LONGEST, 5000) == LONGEST


def test_without_a_longest_breath_there_is_none() -> None:
    breath = WatchBatching(0.0)
    assert not any(breath.after(number * 0.0001, 10) for number in range(100))


@given(
    st.floats(1e6, 1e9),
    st.integers(1 << 16, 1 << 22),
    st.integers(500, 1 << 16),
    st.floats(1.0, 100.0),
)
def test_a_peer_that_pours_is_hardly_held_up(pace: float, window: int, piece: int, megabytes: float) -> None:
    """``pace``: bytes/s of the peer, which waits when ``window`` bytes are unread. All that is there is read at a
    time (at most what asyncio reads), in pieces of at least so many bytes, without a pause but for breaths."""
    breath, size = WatchBatching(LONGEST), megabytes * 1e6
    now, read, waiting, lost = 0.0, 0.0, 0.0, 0.0
    while read < size:
        got = min(max(piece, waiting), 1 << 18)
        need = max(0.0, got - waiting) / pace
        now += need
        waiting = max(0.0, waiting - got)
        read += got
        paused = breath.after(now, round(got))
        now += paused
        lost += max(0.0, paused - (window - waiting) / pace)
        waiting = min(float(window), waiting + paused * pace)
    assert lost < 0.15
