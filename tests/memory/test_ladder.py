"""Levels, hysteresis and what every rung of the ladder asks for."""
import pytest

from pantheon._core.memory import ladder, memwatch

GIB = 1 << 30
ORDER = ["OK", "WATCH", "TIGHT", "CRITICAL"]


@pytest.mark.parametrize(("free", "level"), [
    (1.0, "OK"), (0.20, "OK"), (0.1999, "WATCH"), (0.12, "WATCH"), (0.1199, "TIGHT"), (0.06, "TIGHT"),
    (0.0599, "CRITICAL"), (0.0, "CRITICAL"), (-0.5, "CRITICAL"),
])
def test_levels_from_above(free, level):
    assert ladder.level(free) == level


@pytest.mark.parametrize(("before", "free", "level"), [
    ("WATCH", 0.21, "WATCH"), ("WATCH", 0.2201, "OK"), ("TIGHT", 0.13, "TIGHT"), ("TIGHT", 0.1401, "WATCH"),
    ("TIGHT", 0.21, "WATCH"), ("TIGHT", 0.23, "OK"), ("CRITICAL", 0.07, "CRITICAL"), ("CRITICAL", 0.0801, "TIGHT"),
    ("CRITICAL", 0.5, "OK"), ("WATCH", 0.05, "CRITICAL"),
])
def test_leaving_needs_more_than_entering(before, free, level):
    assert ladder.level(free, before) == level


def test_no_flapping_around_a_threshold():
    level, changes = "OK", 0
    for i in range(100):
        now = ladder.level(0.20 + (0.01 if i % 2 else -0.01), level)
        changes += now != level
        level = now
    assert changes == 1


def test_more_memory_never_makes_a_level_worse():
    for before in ORDER:
        levels = [ORDER.index(ladder.level(i / 1000, before)) for i in range(1001)]
        assert levels == sorted(levels, reverse=True)


def test_plans():
    """Every rung comes with its level and stays on the levels below."""
    plans = [ladder.plan(level, total=100 * GIB, avail=avail * GIB)
             for level, avail in zip(ORDER, (30, 15, 10, 4), strict=True)]
    assert [p["level"] for p in plans] == ORDER
    assert [p["evict_bytes"] / GIB for p in plans] == pytest.approx([0, 7, 12, 18])        # up to 22 %
    assert [p["q8_0"] for p in plans] == [False, True, True, True]
    assert [p["prefill_window"] for p in plans] == [16384, 16384, 8192, 4096]
    assert [p["unload_bytes"] / GIB for p in plans] == pytest.approx([0, 0, 4, 10])        # up to 14 %
    assert [p["cap"] for p in plans] == [False, False, False, True]
    assert [p["deny"] for p in plans] == [False] * 4


def test_nothing_left_denies():
    assert ladder.plan("CRITICAL", total=100 * GIB, avail=2 * GIB)["deny"]
    assert ladder.plan("CRITICAL", total=100 * GIB, avail=50 * GIB, reserved=50 * GIB)["deny"]
    assert not ladder.plan("CRITICAL", total=100 * GIB, avail=3 * GIB)["deny"]
    assert ladder.plan("WATCH", total=100 * GIB, avail=30 * GIB, reserved=15 * GIB)["evict_bytes"] / GIB == \
        pytest.approx(7)


def test_thresholds_are_configuration():
    try:
        ladder.configure(watch=0.5, tight=0.4, critical=0.3, window=100, window_tight=50, window_critical=20)
        assert ladder.level(0.45) == "WATCH"
        assert ladder.plan("CRITICAL", total=GIB, avail=GIB)["prefill_window"] == 20
        for bad, match in [({"watch": 0.1}, "watch > tight"), ({"keep": 0.2}, "keep"), ({"leave": 2}, "leave is 2"),
                           ({"window": 0}, "window is 0"), ({"window_tight": 20000}, "windows"),
                           ({"tight": float("nan")}, "tight is nan")]:
            with pytest.raises(ValueError, match=match):
                ladder.configure(**bad)
        with pytest.raises(TypeError, match="'wtach'"):
            ladder.configure(wtach=0.3)
        assert ladder.level(0.45) == "WATCH"
    finally:
        ladder.configure()
    assert ladder.level(0.45) == "OK"


def test_the_published_level_remembers_the_one_before(machine):
    levels = []
    for percent in (50, 19, 21, 23, 13, 11, 13, 15, 5, 7, 9, 30):
        machine.memory(100 * GIB, percent * GIB)
        levels.append(memwatch.read()["level"])
    assert levels == ["OK", "WATCH", "WATCH", "OK", "WATCH", "TIGHT", "TIGHT", "WATCH", "CRITICAL", "CRITICAL", "TIGHT",
                      "OK"]


def test_every_die_has_a_level_of_its_own(machine):
    """The numbers of the driver, by a made-up one."""
    try:
        memwatch.set_dies([(12 * GIB, 6 * GIB), (12 * GIB, 1 * GIB), (0, 0)])
        state = memwatch.read()
        assert [(die["total"], die["free"], die["level"]) for die in state["dies"]] == [
            (12 * GIB, 6 * GIB, "OK"), (12 * GIB, 1 * GIB, "TIGHT"), (0, 0, "OK")]
        assert state["level"] == "OK"
        memwatch.set_dies([(12 * GIB, 6 * GIB), (12 * GIB, int(12 * 0.13 * GIB))])
        assert memwatch.read()["dies"][1]["level"] == "TIGHT"       # 14 % to leave it
    finally:
        memwatch.set_dies([])
    assert memwatch.read()["dies"] == []
