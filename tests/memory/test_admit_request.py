"""pn_admit_request, the decision as a pure function."""
import pytest

from pantheon._core.memory import admit, ladder

GIB = 1 << 30


@pytest.mark.parametrize(("avail", "n_tokens", "expected"), [
    # 72 for the sequence and 64 for each 8 tokens
    (1000, 10, ("OK", 10)), (200, 10, ("OK", 10)), (199, 10, ("CAP", 8)), (136, 8, ("OK", 8)), (135, 8, ("REJECT", 0)),
    (135, 1, ("REJECT", 0)), (0, 1, ("REJECT", 0)), (1000, 0, ("REJECT", 0)), (1000, -3, ("REJECT", 0)),
])
def test_tokens_against_bytes(avail, n_tokens, expected):
    try:
        ladder.configure(keep=0.0)
        code, fit, _ = admit.request(n_tokens, 100, total=10000, avail=avail, group_bytes=64, state_bytes=72)
        assert (code, fit) == expected
    finally:
        ladder.configure()


def test_need_is_exact():
    try:
        ladder.configure(keep=0.0)
        facts = {"total": 1 << 20, "group_bytes": 100, "areas": 3, "state_bytes": 1000, "scratch_bytes": 500,
                 "window": 16, "logits_bytes": 40}
        need = 3 * 256 + 1000 + 500 + 40                # 9 tokens: two groups, 200 bytes up to a multiple of 64
        assert admit.request(9, 16, avail=need, **facts) == ("OK", 9, need)
        assert admit.request(9, 16, avail=need - 1, **facts) == ("CAP", 8, need)
        assert admit.request(16, 16, avail=need, **facts)[:2] == ("OK", 16)
        assert admit.request(17, 16, avail=need, **facts)[:2] == ("CAP", 16)
        assert admit.request(9, 16, avail=3 * 128 + 1539, **facts)[:2] == ("REJECT", 0)
        assert admit.request(9, 16, avail=need + 77, reserved=77, **facts)[0] == "OK"
        assert admit.request(9, 16, avail=need + 76, reserved=77, **facts)[0] == "CAP"
        assert admit.request(9, 16, avail=10, reserved=77, **facts)[0] == "REJECT"
        assert admit.request(9, 16, avail=need - 300, held_bytes=300, **facts) == ("OK", 9, need - 300)
        assert admit.request(9, 16, avail=need - 500, scratch_held=9999, **facts) == ("OK", 9, need - 500)
        assert admit.request(9, 8, avail=need - 200, **facts)[0] == "OK"        # half the window, half the scratch
    finally:
        ladder.configure()


def test_the_kept_part_is_never_given():
    assert admit.request(8, 1, total=6400, avail=192, group_bytes=64)[0] == "OK"
    assert admit.request(8, 1, total=6400, avail=191, group_bytes=64)[0] == "REJECT"


def test_more_memory_never_fits_less():
    fits = [admit.request(500, 64, total=10000, avail=avail, group_bytes=100, state_bytes=700)[1]
            for avail in range(0, 10000, 7)]
    assert fits == sorted(fits) and fits[0] == 0 and fits[-1] == 500


def test_the_worst_die_decides():
    host = {"total": GIB, "avail": GIB, "group_bytes": 8}
    roomy, tight = (10000, 5000, 0, 100, 10), (10000, 2000, 1000, 100, 10)
    assert admit.request(90, 1, dies=[roomy], **host)[:2] == ("OK", 90)
    assert admit.request(90, 1, dies=[roomy, tight], **host)[:2] == ("CAP", 70)     # 2000 - 1000 - 200 kept - 100
    assert admit.request(90, 1, dies=[roomy, (10000, 250, 0, 100, 10)], **host)[:2] == ("REJECT", 0)


def test_eight_thousand_new_tokens_are_priced_in_full():
    """A prompt of 30 tokens with max_tokens 8192 is not a small request."""
    facts = {"total": GIB, "group_bytes": 8 * 1000, "avail": GIB // 50 + 1_000_000}
    assert admit.request(30, 30, **facts)[0] == "OK"
    assert admit.request(30 + 8192, 30, **facts)[:2] == ("CAP", 1000)
