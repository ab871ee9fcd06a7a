"""The sampler at its borders: each rule of the table of edge cases in docs/sampling.md, arguments, DRY breakers."""
import collections
import copy
import math

import numpy as np
import pytest

from pantheon._core.sampling.params import SamplingParams
from pantheon._core.sampling.sampler import candidates, logprobs, sample
from pantheon.text.dry import dry_breaker_ids

F = np.float32
INF = np.inf
OPEN = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 1}     # nothing is cut


def f32(*values):
    return np.array(values, F)


def ids_of(logits, recent=(), **args):
    return candidates(np.array(logits, F), SamplingParams(**OPEN | args), recent)[0].tolist()


def random_state(p):
    """The next draws of p, which it keeps."""
    fully_open = {name: value for name, value in OPEN.items() if name != "seed"}
    p = p.copy(**fully_open, mirostat=0, logit_bias=None, n_tokens=0)
    return [sample(np.zeros(1000, F), p) for _ in range(4)]


# --- greedy -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("temperature", [0, -1.0, 1e-6, 9.9e-6])
@pytest.mark.parametrize("mirostat", [0, 1, 2])
def test_greedy_takes_the_lowest_id_of_the_best_and_no_random_number(temperature, mirostat):
    p = SamplingParams(temperature=temperature, seed=5, mirostat=mirostat, xtc_probability=1, xtc_threshold=0)
    state, mu = random_state(p), p.mu
    assert p.greedy
    assert sample(f32(1, 3, 2, 3, 3), p) == 1
    assert random_state(p) == state
    assert p.mu == mu
    for at in (0, 1, 126, 127, 128, 255, 256, 299):          # every place in a block, and the short last block
        logits = np.zeros(300, F)
        logits[at:] = 1
        assert sample(logits, p) == at


def test_greedy_skips_the_truncations_but_not_penalties_dry_and_bias():
    greedy = {"temperature": 0}
    assert sample(f32(3, 2), SamplingParams(**greedy, repeat_penalty=2), [0]) == 1
    assert sample(f32(3, 2), SamplingParams(**greedy, logit_bias={0: -5})) == 1
    assert sample(f32(3, 2, 1), SamplingParams(**greedy, dry_multiplier=5), [1, 2, 0, 1, 2]) == 1
    assert sample(f32(3, 2), SamplingParams(**greedy, n_tokens=2)) == 0


def test_the_least_temperature_is_not_greedy():
    p = SamplingParams(**OPEN | {"temperature": 1e-5})
    assert not p.greedy
    state = random_state(p)
    assert sample(f32(1, 3, 2), p) == 1
    assert random_state(p) != state
    assert sample(f32(-3e38, 3e38), p) == 1


def test_dynamic_temperature_that_falls_to_zero_leaves_the_best():
    # two candidates, one at p = 0: entropy 0, so the temperature is its lower end
    assert ids_of([0, -500], temperature=1, dynatemp_range=1) == [0]
    assert ids_of([0, -500], temperature=1, dynatemp_range=0.5) == [0, 1]


# --- top-k, ties, min_keep-----------------------------------------------------------------------------------

@pytest.mark.parametrize("top_k", [0, -1, 5, 6, 2**31 - 1])
def test_top_k_off(top_k):
    assert ids_of([1, 5, 2, 5, 3], top_k=top_k) == [0, 1, 2, 3, 4]


def test_top_k_of_one_is_greedy_and_takes_one_draw():
    p, other = SamplingParams(**OPEN | {"top_k": 1}), SamplingParams(**OPEN)
    for _ in range(5):
        assert sample(f32(1, 3, 2, 3), p) == 1
        sample(np.zeros(9, F), other)
    assert random_state(p) == random_state(other)


def test_ties_at_the_border_of_top_k():
    assert ids_of([1, 5, 2, 5, 5], top_k=2) == [1, 3]
    assert ids_of([-0.0, 0.0, -0.0], top_k=2) == [0, 1]
    assert ids_of(np.zeros(1000), top_k=300) == list(range(300))
    logits = np.zeros(1000)
    logits[900:] = 1
    assert ids_of(logits, top_k=150) == [*range(900, 1000), *range(50)]


def test_exact_shares():
    assert ids_of([0, 0, 0, 0], top_p=0.5) == [0, 1]         # reaching top_p is enough
    assert ids_of([0, 0, 0, 0], typical_p=0.5) == [0, 1, 2]  # typical_p must be passed


def test_top_p_at_its_ends():
    assert ids_of([1, 3, 2], top_p=0) == [1]
    assert ids_of(np.zeros(1000), top_p=float(np.nextafter(F(1), F(0)))) == list(range(1000))
    assert ids_of([1, 3, 2], top_p=0.0, min_keep=2) == [1, 2]


def test_min_keep():
    assert ids_of([1, 9, 2], min_p=0.5, min_keep=2) == [1, 2]
    for cut in ({"min_p": 1}, {"top_p": 0.1}, {"typical_p": 0.1}):
        assert sorted(ids_of([1, 9, 2], **cut, min_keep=7)) == [0, 1, 2]
        assert len(ids_of([1, 9, 2], **cut)) == 1


def test_typical_p_is_not_upset_by_a_probability_of_zero():
    ids, q = candidates(f32(0, 0, -300, -INF, 3e38 * 0 - 1e30), SamplingParams(**OPEN | {"typical_p": 0.999}))
    assert ids.tolist() == [0, 1]
    assert q.tolist() == [0.5, 0.5]


# --- what is not a number, infinite, banned------------------------------------------------------------------

@pytest.mark.parametrize("at", [0, 5, 130, 299])
@pytest.mark.parametrize("args", [{}, {"temperature": 0}, {"mirostat": 2}, {"logit_bias": {5: -INF, 130: 2}}])
def test_nan_is_an_error_that_names_the_token(at, args):
    p = SamplingParams(**OPEN | args)
    state = random_state(p)
    logits = np.zeros(300, F)
    logits[at] = np.nan
    for call in (lambda: sample(logits.copy(), p), lambda: candidates(logits, p), lambda: logprobs(logits, top=1)):
        with pytest.raises(ValueError, match=f"the logit of token {at} is not a number"):
            call()
    assert random_state(p) == state


def test_padding_may_hold_anything():
    logits = f32(1, 2, np.nan, INF)
    assert sample(logits, SamplingParams(temperature=0, n_tokens=2)) == 1
    assert logits.tolist() == [1, 2, -INF, -INF]
    assert ids_of([0, 0, 9, 9], n_tokens=2) == [0, 1]
    assert ids_of([0, 0], n_tokens=7) == [0, 1]


@pytest.mark.parametrize("args", [{}, {"temperature": 0}, {"mirostat": 1}, {"mirostat": 2}, {"top_n_sigma": 1}])
def test_infinite_logits_win_by_lowest_id(args):
    p = SamplingParams(**OPEN | args)
    for _ in range(5):
        assert sample(f32(0, INF, 1, INF), p) == 1
    assert candidates(f32(0, INF, 1, INF), p)[1].tolist() == [1]
    assert sample(f32(0, INF, 1), p.copy(logit_bias={1: -INF})) in (0, 2)


def test_banned_tokens_are_never_drawn():
    p = SamplingParams(**OPEN, logit_bias={0: -INF, 3: -INF})
    assert {sample(np.zeros(5, F), p) for _ in range(200)} == {1, 2, 4}
    assert ids_of([0, -INF, 0], top_k=2) == [0, 2]
    assert ids_of([-INF, 0, -INF], min_keep=3, top_p=0.5) == [1]
    assert ids_of([0, -INF], logit_bias={1: 100}) == [0]     # a ban stays one whatever is added


@pytest.mark.parametrize("args", [{}, {"temperature": 0}, {"mirostat": 1}, {"mirostat": 2}])
def test_nothing_left_to_draw_is_an_error(args):
    p = SamplingParams(**OPEN | args)
    with pytest.raises(ValueError, match="no token can be drawn"):
        sample(f32(-INF, -INF), p)
    with pytest.raises(ValueError, match="no token can be drawn"):
        sample(f32(1, 2), p.copy(logit_bias={0: -INF, 1: -INF}))


def test_penalties_alone_do_not_end_a_generation():
    # penalties beyond the range of float32 take all that the bans left
    p = SamplingParams(**OPEN, frequency_penalty=3e38, logit_bias={2: -INF, 3: 1})
    logits = f32(1, 2, 9, -INF)
    assert sample(logits, p, [0, 1] * 10) == 1
    assert logits.tolist() == [1, 2, -INF, -INF]


# --- penalties ----------------------------------------------------------------------------------------------

def changed(logits, recent, **args):
    logits = np.array(logits, F)
    sample(logits, SamplingParams(**OPEN | args), recent)
    return logits.tolist()


def test_penalty_formula():
    assert changed([2, -2, 0, 3], [0, 1, 2], repeat_penalty=2) == [1, -4, 0, 3]
    assert changed([2, 2], [0, 0, 0], frequency_penalty=0.5) == [0.5, 2]
    assert changed([2, 2], [0, 0, 0], presence_penalty=0.5) == [1.5, 2]
    assert changed([0, 2], [0, 0], repeat_penalty=2, frequency_penalty=0.5, presence_penalty=0.25) == [-1.25, 2]
    assert changed([4, 2], [0], repeat_penalty=2, frequency_penalty=1) == [1, 2]          # repeat first


def test_bias_comes_before_the_penalties():
    assert changed([1, 0], [0], repeat_penalty=2, logit_bias={0: 3}) == [2, 0]
    assert changed([1, 0], [0], repeat_penalty=2, logit_bias={0: -INF}) == [-INF, 0]
    assert changed([1, 0], [], logit_bias=[(0, 1), (0, 2)]) == [4, 0]


def test_window():
    args = {"presence_penalty": 1}
    assert changed([0, 0, 0], [0, 1, 2], **args, repeat_last_n=2) == [0, -1, -1]
    assert changed([0, 0, 0], [0, 1, 2], **args, repeat_last_n=0) == [0, 0, 0]
    assert changed([0, 0, 0], [0, 1, 70000], **args) == [-1, -1, 0]           # an id without a logit
    long = np.arange(5000) % 3
    assert changed([0, 0, 0, 0], long, frequency_penalty=1, repeat_last_n=4998) == [-1666, -1666, -1666, 0]


@pytest.mark.parametrize("kind", [list, tuple, collections.deque, np.array, lambda x: np.array(x, np.uint16), iter])
def test_kinds_of_recent_tokens(kind):
    assert changed([0, 0, 0], kind([0, 1, 1]), frequency_penalty=1, repeat_last_n=2) == [0, -2, 0]


# --- DRY ----------------------------------------------------------------------------------------------------

def test_dry_by_hand():
    dry = {"dry_multiplier": 1, "dry_base": 2, "dry_allowed_length": 2}
    # ... 1 2 3 | 1 2: the 3 that followed "1 2" pays m * b^0
    assert changed(np.zeros(5), [1, 2, 3, 1, 2], **dry) == [0, 0, 0, -1, 0]
    assert changed(np.zeros(5), [4, 1, 2, 3, 4, 1, 2], **dry) == [0, 0, 0, -2, 0]
    assert changed(np.zeros(5), [4, 1, 2, 3, 4, 1, 2], **dry, dry_breakers=[[1]]) == [0, 0, 0, 0, 0]
    assert changed(np.zeros(5), [4, 1, 2, 3, 4, 1, 2], **dry, dry_breakers=[[4]]) == [0, 0, 0, -1, 0]
    assert changed(np.zeros(5), [4, 1, 2, 3, 4, 1, 2], **dry, dry_breakers=[[3]]) == [0, 0, 0, 0, 0]
    assert changed(np.zeros(5), [4, 1, 2, 3, 4, 1, 2], **dry, dry_breakers=[[3, 4]]) == [0, 0, 0, -1, 0]
    # two breakers begin at the same token: the longer one ends the scan, whichever comes first
    for breakers in ([[1, 2], [1, 2, 3]], [[1, 2, 3], [1, 2]]):
        text = [1, 2, 3, 5, 6, 7, 1, 2, 3, 5, 6]
        assert changed(np.zeros(8), text, **dry, dry_breakers=breakers) == [0, 0, 0, 0, 0, 0, 0, -1]
    assert changed(np.zeros(5), [1, 2, 3, 1, 2], **dry, dry_penalty_last_n=4) == [0, 0, 0, 0, 0]


def test_dry_exponent_is_bounded():
    # base^exponent stops at the range of float32, so a repeat of any length leaves a number
    logits = changed([0, 0], [0] * 3000, dry_multiplier=0.5, dry_base=3.0, dry_penalty_last_n=3000)
    assert logits[0] == pytest.approx(-0.5 * 3.0**80)
    assert logits[1] == 0


TEXTS = ["a", "\n", "x\n", "\ny", "he", "llo", "l", "o w", "hello", "the", "", " w", "h"]


def decode(flat):
    return SamplingParams(dry_breakers=flat).dry_breakers


def test_breakers_of_strings():
    assert decode(dry_breaker_ids(["\n"], TEXTS)) == [(1,), (2,), (3,)]
    got = decode(dry_breaker_ids(["hello w"], TEXTS))
    # heads: "he" and "the" end with "he", "h" with "h", "hello" with "hello", no other token ends with a beginning;
    # "ello w" cannot be split without a token "e", so "h" begins nothing
    assert got == [(4, 5, 11), (8, 11), (9, 5, 11)]
    assert decode(dry_breaker_ids(["he"], TEXTS)) == [(4,), (8,), (9,)]
    assert decode(dry_breaker_ids(["\n", "\n"], TEXTS)) == [(1,), (2,), (3,)]
    assert dry_breaker_ids([], TEXTS).dtype == np.int32
    assert decode(dry_breaker_ids(["hello w"], TEXTS, tokenize=lambda s: list(range(len(s)))))[0] == (4, 0, 1, 2, 3, 4)


def test_breakers_are_cut_and_tails_bounded():
    letters = [chr(97 + i) for i in range(26)]
    breaker = "abcdefghijklmnopqrstuvwxyz" * 4
    got = decode(dry_breaker_ids([breaker], letters))
    assert got == [(0, *range(1, 21))]
    assert decode(dry_breaker_ids([breaker], [breaker[:40], breaker[:41]])) == [(0,), (1,)]
    assert max(map(len, decode(dry_breaker_ids(["a" * 40], ["a" * n for n in range(50)])))) <= 21


@pytest.mark.parametrize("breakers, error", [([""], ValueError), (["a", 3], TypeError), ("abc", TypeError)])
def test_malformed_breakers_of_strings(breakers, error):
    with pytest.raises(error, match="dry_breakers"):
        dry_breaker_ids(breakers, TEXTS)


# --- arguments ----------------------------------------------------------------------------------------------

BAD_VALUES = {
    "temperature": [INF, math.nan, 1e39, 10**400],
    "top_k": [2**31, -2**31],
    "top_p": [-0.1, 1.1, math.nan],
    "min_p": [-0.1, 1.1, math.nan],
    "typical_p": [-0.1, 1.1, INF],
    "top_n_sigma": [INF, math.nan],
    "repeat_penalty": [0, -1, INF, 1e-60],
    "repeat_last_n": [-1, 2**31],
    "frequency_penalty": [INF, math.nan],
    "presence_penalty": [-INF, math.nan],
    "dry_multiplier": [-1, INF],
    "dry_base": [-1, INF],
    "dry_allowed_length": [-1],
    "dry_penalty_last_n": [-1],
    "dry_breakers": [[[]], [[-1]], [[2**31]], np.array([1], np.int32), np.array([1, 2, 3], np.int32),
                     np.array([-1, 0], np.int32), np.array([1, -1], np.int32)],
    "xtc_probability": [-0.1, 1.1],
    "xtc_threshold": [-0.1, 1.1],
    "dynatemp_range": [-1, INF],
    "dynatemp_exponent": [-1, INF],
    "mirostat": [-1, 3],
    "mirostat_tau": [-1, INF],
    "mirostat_eta": [-1, math.nan],
    "min_keep": [-1, 2**31],
    "logit_bias": [{0: INF}, {0: math.nan}, {-1: 0}, {2**31: 0}],
    "seed": [-2, 2**64],
    "n_tokens": [-1, 2**31],
}


@pytest.mark.parametrize("name, value", [(name, value) for name, values in BAD_VALUES.items() for value in values])
def test_values_out_of_range_name_the_argument(name, value):
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("name", BAD_VALUES)
def test_wrong_types_name_the_argument(name):
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: object()})


def test_arguments_by_keyword_only():
    with pytest.raises(TypeError):
        SamplingParams(0.5)
    with pytest.raises(TypeError):
        SamplingParams(temprature=0.5)


def test_fields_read_back():
    assert repr(SamplingParams(seed=3)) == "SamplingParams(seed=3)"
    args = {"temperature": 0.7, "top_k": 7, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8, "top_n_sigma": 1.5,
            "repeat_penalty": 1.1, "repeat_last_n": 10, "frequency_penalty": 0.3, "presence_penalty": -0.2,
            "dry_multiplier": 0.6, "dry_base": 1.2, "dry_allowed_length": 3, "dry_penalty_last_n": 11,
            "dry_breakers": [(1,), (2, 3)], "xtc_probability": 0.4, "xtc_threshold": 0.2, "dynatemp_range": 0.35,
            "dynatemp_exponent": 1.3, "mirostat": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.15, "min_keep": 2,
            "logit_bias": {5: -INF, 7: 0.1}, "seed": 2**64 - 1, "n_tokens": 12}
    p = SamplingParams(**args)
    read_back = eval(repr(p), {"SamplingParams": SamplingParams, "inf": INF})
    for q in (p, p.copy(), copy.copy(p), copy.deepcopy(p), read_back):
        assert {name: getattr(q, name) for name in args} == args
    assert p.copy(top_k=9).top_k == 9
    assert SamplingParams(dry_breakers=np.array([1, 0, 2, 1, 3], np.int32)).dry_breakers == [(1,), (2, 3)]
    with pytest.raises(AttributeError):
        p.top_k = 3


@pytest.mark.parametrize("seed", [None, -1, 0xFFFFFFFF])
def test_random_seed_is_reported_and_repeats_the_run(seed):
    p, other = SamplingParams(**OPEN | {"seed": seed}), SamplingParams(**OPEN | {"seed": seed})
    assert p.seed != other.seed
    assert 0 <= p.seed < 2**53
    again = SamplingParams(**OPEN | {"seed": p.seed})
    draw = lambda q: [sample(np.zeros(1000, F), q) for _ in range(10)]  # noqa: E731
    assert draw(p) == draw(again) != draw(other)


def test_logits_must_be_usable_in_place():
    p = SamplingParams(**OPEN)
    frozen = np.zeros(4, F)
    frozen.flags.writeable = False
    for logits, error in [([0.0, 1.0], TypeError), (np.zeros(4), TypeError), (np.zeros((2, 2), F), ValueError),
                          (np.zeros(8, F)[::2], ValueError), (frozen, ValueError), (np.zeros(0, F), ValueError)]:
        with pytest.raises(error, match="logits"):
            sample(logits, p)
    assert candidates(frozen, p)[0].tolist() == [0, 1, 2, 3]
    assert logprobs(frozen, [0])[0] == pytest.approx(-math.log(4))
    with pytest.raises(TypeError):
        sample(np.zeros(4, F), None)


@pytest.mark.parametrize("recent, error", [([-1], ValueError), ([2**32], ValueError), ([0.5], TypeError),
                                           (["a"], TypeError), ([[1, 2]], ValueError), ([2**70], ValueError)])
def test_malformed_recent_tokens(recent, error):
    with pytest.raises(error, match="recent_tokens"):
        sample(np.zeros(4, F), SamplingParams(repeat_penalty=2), recent)


def test_bias_outside_the_vocabulary():
    with pytest.raises(ValueError, match="logit_bias: token 4 is outside the vocabulary"):
        sample(np.zeros(4, F), SamplingParams(logit_bias={4: 1}))


def test_logprobs_of_infinite_logits():
    assert logprobs(f32(0, INF, 1), [0, 1]).tolist() == [-INF, 0]
    ids, values = logprobs(f32(INF, 0, INF), top=2)
    assert ids.tolist() == [0, 2]
    assert values.tolist() == pytest.approx([-math.log(2)] * 2)
    with pytest.raises(ValueError, match="-inf"):
        logprobs(f32(-INF, -INF), [0])


@pytest.mark.parametrize("token", [2**32 - 1, 2**63, 2**64, 2**70, -1, -2**63, -2**70])
def test_ids_too_large_for_c(token):
    logits = np.zeros(5, np.float32)
    with pytest.raises(ValueError, match=r"recent_tokens: a token is .*, not in 0\.\.4294967294"):
        sample(logits, SamplingParams(repeat_penalty=2.0), [1, token])
    with pytest.raises(ValueError, match=r"ids: a token is .*, not in 0\.\.4"):
        logprobs(logits, [1, token])
