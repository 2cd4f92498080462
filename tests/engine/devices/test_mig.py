"""Slices of a card: checked against an enumeration that knows nothing of the engine's tables, and against the
figures published for real hardware."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from windlass.api.devices.mig_profiles import PROFILES, profiles_of
from windlass.engine.devices.mig import MigGeometry, geometry_of
from windlass.spi.devices import DeviceMode, SliceProfile
from windlass.spi.objects import Device

PLAIN = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
DOUBLE = ("1g.10gb", "1g.20gb", *PLAIN[1:])
Layout = frozenset[tuple[str, int]]


def geometry(names: tuple[str, ...]) -> MigGeometry:
    by_name = {profile.name: profile for profile in PROFILES["H100-80"]}
    return MigGeometry([by_name[name] for name in names])


def brute_layouts(profiles: tuple[SliceProfile, ...]) -> set[Layout]:
    """Every set of instances that do not overlap and need at most seven compute slices and the media
    extensions once: by trying all sets."""
    instances = [(p, start) for p in profiles for start in p.starts]
    found: set[Layout] = set()
    for n in range(8):
        before = len(found)
        for chosen in combinations(instances, n):
            places = Counter(at for p, start in chosen for at in range(start, start + p.size))
            fits = max(places.values(), default=0) <= 1 and sum(p.compute for p, _ in chosen) <= 7
            if fits and sum(p.media for p, _ in chosen) <= 1:
                found.add(frozenset((p.name, start) for p, start in chosen))
        if len(found) == before:
            break
    return found


def layouts_of(g: MigGeometry) -> set[Layout]:
    """Every way in which instances can stand on the card, the free card included: by the engine's own steps."""
    found: set[Layout] = set()
    waiting: list[tuple[Layout, int]] = [(frozenset(), 0)]
    while waiting:
        placed, state = waiting.pop()
        if placed not in found:
            found.add(placed)
            waiting += [
                (placed | {(name, start)}, g.state_after(state, at, start))
                for name, at in g.codes.items()
                for start in g.starts(state, at)
            ]
    return found


def state_of(g: MigGeometry, layout: Layout) -> int:
    state = 0
    for name, start in layout:
        state = g.state_after(state, g.codes[name], start)
    return state


def multiset(layout: Layout) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(name for name, _ in layout).items()))


@pytest.mark.parametrize(
    ("names", "figures"), [(PLAIN, (297, 19, 14, 37)), (DOUBLE, (722, 78, 38, 77))], ids=["plain", "double"]
)
def test_there_are_as_many_layouts_as_the_hardware_has(
    names: tuple[str, ...], figures: tuple[int, ...]
) -> None:
    """Layouts, maximal ones, maximal and all distinct combinations."""
    g = geometry(names)
    layouts = layouts_of(g) - {frozenset()}
    maximal = [
        layout for layout in layouts if not any(g.starts(state_of(g, layout), at) for at in g.codes.values())
    ]
    kinds = {multiset(layout) for layout in layouts}
    assert (len(layouts), len(maximal), len({multiset(one) for one in maximal}), len(kinds)) == figures


@pytest.fixture(scope="module")
def brute() -> set[Layout]:
    return brute_layouts(geometry(PLAIN).profiles)


def test_layouts_are_those_that_trying_all_sets_finds(brute: set[Layout]) -> None:
    assert layouts_of(geometry(PLAIN)) == brute


def test_nothing_is_refused_that_some_layout_holds(brute: set[Layout]) -> None:
    """From every layout: a profile has a place exactly if a layout exists that has all that stands and one
    more of it; and ``more`` is how many more some layout has of it."""
    g = geometry(PLAIN)
    for layout in brute:
        state = state_of(g, layout)
        larger = [other for other in brute if layout < other]
        for name, at in g.codes.items():
            most = max(
                (len(other) - len(layout) for other in larger if {n for n, _ in other - layout} == {name}),
                default=0,
            )
            assert g.remaining(state)[at] == most
            assert (g.best(state, at) is not None) == (most > 0)


def all_states(g: MigGeometry) -> list[int]:
    seen, todo = {0}, [0]
    while todo:
        state = todo.pop()
        for at in g.codes.values():
            for start in g.starts(state, at):
                after = g.state_after(state, at, start)
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
    return sorted(seen)


@pytest.mark.parametrize("family", sorted(PROFILES))
def test_the_next_slice_keeps_the_most(family: str) -> None:
    """From every state and for every profile: as many of the same as could be kept at all are kept; of the
    large ones, the largest first, most are kept by no other place; no other place keeps all combinations
    that the one chosen does, and more."""
    g = MigGeometry(PROFILES[family])
    order = sorted(
        g.codes.values(), key=lambda at: (g.profiles[at].compute, g.profiles[at].size), reverse=True
    )
    for state in all_states(g):
        for at in g.codes.values():
            best = g.best(state, at)
            others = [g.state_after(state, at, start) for start in g.starts(state, at)]
            if best is None:
                assert not others
                continue
            after = best[1]
            assert g.remaining(after)[at] == g.remaining(state)[at] - 1
            assert not any(g.combinations(after) < g.combinations(other) for other in others)
            kept = [g.remaining(after)[one] for one in order]
            for other in others:
                if g.remaining(other)[at] == g.remaining(after)[at]:
                    assert kept >= [g.remaining(other)[one] for one in order]


def test_small_slices_go_to_the_right() -> None:
    g, state, starts = geometry(DOUBLE), 0, []
    while (best := g.best(state, g.codes["1g.10gb"])) is not None:
        starts.append(best[0])
        state = best[1]
    assert starts == [6, 5, 4, 3, 2, 1, 0]
    assert g.best(0, g.codes["3g.40gb"]) == (4, g.state_after(0, g.codes["3g.40gb"], 4))


def test_media_extensions_are_there_once() -> None:
    g = MigGeometry(PROFILES["A100-40"])
    code = g.codes["1g.5gb+me"]
    assert g.remaining(0)[code] == 1
    after = g.best(0, code)
    assert after is not None
    assert g.remaining(after[1])[code] == 0
    assert g.best(after[1], code) is None
    assert g.remaining(after[1])[g.codes["1g.5gb"]] == 6


@pytest.mark.parametrize(
    ("model", "memory", "family"),
    [
        ("NVIDIA-A100-SXM4-40GB", 40_960, "A100-40"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80"),
        ("NVIDIA-H100-80GB-HBM3", 81_559, "H100-80"),
        ("NVIDIA-H100-NVL", 95_830, "H100-94"),
        ("NVIDIA-H200", 143_771, "H200"),
        ("NVIDIA-A30", 24_576, "A30"),
        ("NVIDIA-H20", 97_871, "H100-96"),
        ("NVIDIA-GH200-480GB", 97_871, "H100-96"),
        ("NVIDIA-GB200", 189_471, "GB200"),
        ("Tesla-T4", 15_360, ""),
        ("NVIDIA-A300", 24_576, ""),
    ],
)
def test_models_are_known(model: str, memory: int, family: str) -> None:
    assert profiles_of(model, memory) == PROFILES.get(family, ())


def test_a_node_s_word_goes_before_the_table() -> None:
    own = (SliceProfile("1g.24gb", 1, 1, (0, 1, 2, 3), 24_000),)
    device = Device(
        0, "nvidia.com/gpu", "NVIDIA-H100-80GB-HBM3", 81_559, mode=DeviceMode.SLICED, geometry=own
    )
    found = geometry_of(device)
    assert found is not None
    assert found.profiles == own
    assert geometry_of(Device(0, "nvidia.com/gpu", "Tesla-T4", 15_360)) is None
