"""The sampler against a reference written from its definition in numpy, step by step and without any shortcut."""
import math
import threading
import time

import numpy as np
import pytest

from pantheon._core.sampling.params import SamplingParams
from pantheon._core.sampling.sampler import candidates, logprobs, sample, scratch_nbytes

F = np.float32
WORD = 2**64 - 1


# --- the reference ------------------------------------------------------------------------------------------

class Xoshiro:
    """xoshiro256** seeded by splitmix64; skip: words of the seeding stream to leave to an earlier generator."""

    def __init__(self, seed, skip=0):
        words = []
        for _ in range(skip + 4):
            seed = (seed + 0x9E3779B97F4A7C15) & WORD
            z = seed
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
            words.append(z ^ (z >> 31))
        self.s = words[skip:]

    def uniform(self):
        s = self.s
        rotl = lambda x, k: (x << k | x >> (64 - k)) & WORD  # noqa: E731
        result = rotl(s[1] * 5 & WORD, 7) * 9 & WORD
        t = s[1] << 17 & WORD
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
        return (result >> 11) / 2**53


def softmax(logits, t=1.0):
    scaled = np.asarray(logits, np.float64) / t
    e = np.exp(scaled - scaled.max())
    return e / e.sum()


def by_logit(cand):
    return sorted(cand, key=lambda c: (-c[1], c[0]))


def ref_penalties(row, p, recent):
    window = list(recent)[-p.repeat_last_n:] if p.repeat_last_n else []
    rp, freq, pres = F(p.repeat_penalty), F(p.frequency_penalty), F(p.presence_penalty)
    for token in set(window):
        if token < len(row):
            x = row[token] * rp if row[token] <= 0 else row[token] / rp
            row[token] = x - F(window.count(token)) * freq - pres


def ref_dry(row, p, recent):
    if p.dry_multiplier == 0 or p.dry_base < 1 or p.dry_penalty_last_n == 0:
        return
    x = list(recent)[-p.dry_penalty_last_n:][::-1]           # x[0] is the most recent
    n, allowed = len(x), p.dry_allowed_length
    if n <= allowed:
        return
    limit = n
    for i in range(n):
        tails = [len(b) - 1 for b in p.dry_breakers or ()
                 if len(b) - 1 <= i and b[0] == x[i] and all(b[1 + j] == x[i - 1 - j] for j in range(len(b) - 1))]
        if tails:
            limit = i - max(tails)
            break
    if limit < allowed:
        return
    longest = {}
    for k in range(1, n):
        r = 0
        while k + r < n and x[r] == x[k + r]:
            r += 1
        r = min(r, limit)
        if r >= allowed:
            longest[x[k - 1]] = max(r, longest.get(x[k - 1], 0))
    alone = {b[0] for b in p.dry_breakers or () if len(b) == 1}
    base = float(F(p.dry_base))
    for token, r in longest.items():
        if token in alone or token >= len(row):
            continue
        exponent = r - allowed
        if base > 1.000001:
            exponent = min(exponent, math.floor(88.7228 / math.log(base)))
        with np.errstate(over="ignore"):
            row[token] -= F(float(F(p.dry_multiplier)) * base**exponent)


def ref_truncate(cand, n, p, xtc_rng):
    """top-n-sigma ... XTC over a list of (id, logit), of a vocabulary of n."""
    keep = max(1, p.min_keep)
    logit = lambda: np.array([c[1] for c in cand], np.float64)  # noqa: E731
    if p.top_n_sigma > 0:
        floor = F(logit().max() - float(F(p.top_n_sigma)) * logit().std())
        cand = [c for c in cand if c[1] >= floor]
    if 0 < p.top_k < n:
        cand = by_logit(cand)[:p.top_k]
    if p.typical_p < 1:
        cand = by_logit(cand)
        q = softmax(logit())
        info = -np.log(np.maximum(q, 1e-300))
        h = float((q * info).sum())
        order = sorted(range(len(cand)), key=lambda i: abs(info[i] - h))
        total, kept = 0.0, []
        for i in order:
            kept.append(cand[i])
            total += q[i]
            if total > float(F(p.typical_p)) and len(kept) >= keep:
                break
        cand = kept
    if p.top_p < 1:
        cand = by_logit(cand)
        e = np.exp(logit() - logit().max())
        cumulative = np.cumsum(e)
        enough = np.nonzero(cumulative >= float(F(p.top_p)) * e.sum())[0]
        cand = cand[:max(int(enough[0]) + 1 if len(enough) else len(cand), keep)]
    if p.min_p > 0:
        floor = F(max(c[1] for c in cand)) + np.log(F(p.min_p))
        above = [c for c in cand if c[1] >= floor]
        cand = above if len(above) >= keep else by_logit(cand)[:keep]
    if p.xtc_probability > 0 and p.xtc_threshold <= 0.5 and len(cand) >= 2 \
            and xtc_rng.uniform() <= float(F(p.xtc_probability)):
        q = softmax(logit())
        choices = by_logit([c for c, share in zip(cand, q, strict=True) if share >= float(F(p.xtc_threshold))])
        if len(choices) > 1 and len(cand) - (len(choices) - 1) >= p.min_keep:
            cand = [c for c in cand if c not in choices[:-1]]
    return cand


def ref_temperature(cand, p):
    t = float(F(p.temperature))
    if p.dynatemp_range > 0 and len(cand) > 1:
        q = softmax([c[1] for c in cand])
        h = -sum(x * math.log(x) for x in q if x > 0) / math.log(len(cand))
        low, high = max(0.0, t - float(F(p.dynatemp_range))), t + float(F(p.dynatemp_range))
        t = low + (high - low) * h**float(F(p.dynatemp_exponent))
    return t


def ref_logits(logits, p, recent):
    row = logits.copy()
    if p.n_tokens:
        row[p.n_tokens:] = -np.inf
    for token, bias in p.logit_bias.items():
        row[token] += F(bias)
    if p.mirostat == 0:
        ref_penalties(row, p, recent)
        ref_dry(row, p, recent)
    return row


def ref_candidates(logits, p, recent=(), xtc_rng=None):
    """(ids, probabilities) in the order of the draw."""
    row = ref_logits(logits, p, recent)
    cand = [(i, F(x)) for i, x in enumerate(row) if x > -np.inf]
    cand = ref_truncate(cand, p.n_tokens or len(row), p, xtc_rng or Xoshiro(p.seed, skip=4))
    t = ref_temperature(cand, p)
    return [c[0] for c in cand], softmax([c[1] for c in cand], t)


def ref_draw(ids, q, u):
    cumulative = np.cumsum(q)
    i = int(np.argmax(cumulative >= u * cumulative[-1]))
    return ids[i], float(np.abs(cumulative - u).min())


# --- the chain ----------------------------------------------------------------------------------------------

SIZES = [1, 2, 5, 40, 127, 128, 129, 700, 3000]
CHOICES = {
    "temperature": [0.3, 0.8, 1.0, 2.5],
    "top_k": [0, 0, 1, 5, 40, 200, 10000],
    "top_p": [1.0, 1.0, 0.95, 0.5, 0.0],
    "min_p": [0.0, 0.0, 0.05, 0.001, 1.0],
    "typical_p": [1.0, 1.0, 1.0, 0.9, 0.2],
    "top_n_sigma": [-1.0, -1.0, 1.0, 2.5],
    "repeat_penalty": [1.0, 1.3, 0.8],
    "repeat_last_n": [0, 8, 64],
    "frequency_penalty": [0.0, 0.5],
    "presence_penalty": [0.0, -0.4],
    "dry_multiplier": [0.0, 0.8],
    "dry_allowed_length": [0, 1, 2],
    "dry_penalty_last_n": [0, 16, 100],
    "xtc_probability": [0.0, 0.0, 0.5, 1.0],
    "xtc_threshold": [0.1, 0.02, 0.6, 0.0],
    "dynatemp_range": [0.0, 0.0, 0.25],
    "dynatemp_exponent": [1.0, 1.7],
    "min_keep": [0, 0, 3, 20],
}


def random_case(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice(SIZES))
    logits = (rng.standard_normal(n) * rng.choice([0.1, 1.0, 4.0])).astype(F)
    if rng.random() < 0.3:
        logits = np.round(logits * 2) / 2                    # many ties
    if rng.random() < 0.3 and n > 1:
        logits[rng.integers(0, n, n // 3)] = -np.inf
    args = {name: values[rng.integers(len(values))] for name, values in CHOICES.items()}
    args = {name: value for name, value in args.items() if rng.random() < 0.6} | {"seed": seed}
    if rng.random() < 0.4:
        banned = {int(i): -math.inf for i in rng.integers(0, n, 2)}
        args["logit_bias"] = {int(i): float(F(rng.normal())) for i in rng.integers(0, n, 5)} | banned
    if rng.random() < 0.2 and n > 4:
        args["n_tokens"] = n - 2
    args["dry_breakers"] = [(3,), (4, 5), (4, 5, 6), (6, 7, 8)][:rng.integers(5)]
    recent = rng.integers(0, min(n + 3, 9), rng.integers(0, 120)).tolist()
    p = SamplingParams(**args)
    if not np.isfinite(ref_logits(logits, p, recent)).any():
        return random_case(seed + 100_000)
    return logits.astype(F), p, recent


@pytest.mark.parametrize("block", range(12))
def test_candidates_are_those_of_the_reference(block):
    for seed in range(block * 50, block * 50 + 50):
        logits, p, recent = random_case(seed)
        before = logits.copy()
        ids, q = candidates(logits, p, recent)
        want_ids, want_q = ref_candidates(logits, p, recent)
        assert np.array_equal(before, logits)
        if p.typical_p < 1:                                  # scores that differ in the last bit may swap places
            order, want_order = np.argsort(ids), np.argsort(want_ids)
            ids, q, want_ids, want_q = ids[order], q[order], np.array(want_ids)[want_order], want_q[want_order]
        assert ids.tolist() == list(want_ids), (seed, p)
        np.testing.assert_allclose(q, want_q, rtol=2e-4, atol=1e-9, err_msg=f"{seed} {p}")


def test_drawn_tokens_and_logits_are_those_of_the_reference():
    compared = 0
    for seed in range(200):
        logits, p, recent = random_case(seed)
        if p.typical_p < 1:
            continue
        draws, xtc = Xoshiro(p.seed), Xoshiro(p.seed, skip=4)
        for _ in range(4):
            ids, q = ref_candidates(logits, p, recent, xtc)
            want, margin = ref_draw(ids, q, draws.uniform())
            used = logits.copy()
            got = sample(used, p, recent)
            assert np.array_equal(used, ref_logits(logits, p, recent)), (seed, p)
            if margin > 1e-5:
                compared += 1
                assert got == want, (seed, p)
    assert compared > 500


def test_large_vocabulary():
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal(151_936) * 2.5).astype(F)
    recent = rng.integers(0, logits.size, 500)
    cases = [{}, {"top_k": 0}, {"top_k": 0, "min_p": 0}, {"top_k": 2000, "top_p": 1, "min_p": 0},
             {"top_k": 0, "top_p": 1, "min_p": 0}, {"top_k": 0, "typical_p": 0.4, "min_p": 0}]
    for args in cases:
        p = SamplingParams(seed=1, repeat_penalty=1.2, repeat_last_n=500, dry_multiplier=1, **args)
        ids, q = candidates(logits, p, recent)
        want_ids, want_q = ref_candidates(logits, p, recent.tolist())
        if p.typical_p < 1:
            # float32 scores of 150,000 candidates have equals where float64 has none: the border may shift by a few
            assert len(set(ids.tolist()) ^ set(want_ids)) <= 0.001 * len(ids)
            continue
        assert ids.tolist() == want_ids
        np.testing.assert_allclose(q, want_q, rtol=1e-4, atol=1e-12)
    assert sample(logits.copy(), SamplingParams(temperature=0)) == int(np.argmax(logits))


# --- draw ---------------------------------------------------------------------------------------------------

def chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


def test_draw_follows_the_probabilities():
    n, draws = 8, 20_000
    logits = np.linspace(1, -2, n).astype(F)
    p = SamplingParams(temperature=0.7, top_k=0, top_p=1, min_p=0, seed=11)
    counts = np.bincount([sample(logits.copy(), p) for _ in range(draws)], minlength=n)
    assert chi_square(counts, draws * softmax(logits, 0.7)) < 24.3          # 0.999 quantile, 7 degrees of freedom


def test_draw_over_many_candidates_follows_the_probabilities():
    n, draws = 1000, 20_000                                  # more than one block of the running sum
    logits = np.repeat(np.linspace(0, 3, 10), 100).astype(F)
    p = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=5)
    drawn = np.array([sample(logits.copy(), p) for _ in range(draws)])
    groups = np.bincount(drawn // 100, minlength=10)
    assert chi_square(groups, draws * softmax(logits).reshape(10, 100).sum(1)) < 27.9    # 9 degrees of freedom
    assert len(set(drawn.tolist())) > 0.9 * n


def run(seed, steps=50, n=500, **args):
    logits = np.random.default_rng(1).standard_normal((steps, n)).astype(F)
    p = SamplingParams(seed=seed, top_k=0, xtc_probability=0.5, **args)
    recent = []
    for row in logits:
        recent.append(sample(row, p, recent))
    return recent


def test_same_seed_same_tokens_in_any_thread():
    want = run(7)
    assert run(7) == want
    assert run(8) != want
    got = [None] * 4

    def work(i):
        run(i, n=200 + 300 * i)                              # another vocabulary first: scratch of another size
        got[i] = run(7)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [want] * 4


def test_scratch_is_freed_when_its_thread_ends():
    run(1)
    before = scratch_nbytes()
    held = []

    def work():
        run(1, steps=1, n=200_000)
        held.append(scratch_nbytes())

    for _ in range(3):
        t = threading.Thread(target=work)
        t.start()
        t.join()
    assert min(held) > before + 200_000 * 4
    for _ in range(200):                                     # join may return before the system's thread is gone
        if scratch_nbytes() <= before:
            break
        time.sleep(0.01)
    assert scratch_nbytes() <= before


def test_reset_and_copy():
    logits = np.random.default_rng(2).standard_normal(50).astype(F)
    p = SamplingParams(seed=3, top_k=0, top_p=1, min_p=0, mirostat=2)
    draw = lambda q: [sample(logits.copy(), q) for _ in range(20)]  # noqa: E731
    first = draw(p)
    middle = p.copy()
    assert middle.mu == p.mu != 10
    second = draw(p)
    assert draw(middle) == second != first
    p.reset()
    assert p.mu == 10
    assert draw(p) == first
    assert draw(p.copy(seed=3, mirostat_tau=5.0)) == first


# --- XTC ----------------------------------------------------------------------------------------------------

def test_xtc_leaves_the_least_likely_of_the_top_choices():
    logits = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], F))
    args = {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1, "xtc_probability": 1, "seed": 1}
    ids = lambda **more: candidates(logits, SamplingParams(**args | more))[0].tolist()  # noqa: E731
    assert ids(xtc_threshold=0.15) == [0, 2, 4]
    assert ids(xtc_threshold=0.3) == [0, 1, 2, 3, 4]         # one top choice: nothing to leave out
    assert ids(xtc_threshold=0.51) == [0, 1, 2, 3, 4]        # off
    assert ids(xtc_threshold=0.15, min_keep=4) == [0, 1, 2, 3, 4]
    assert ids(xtc_threshold=0.15, min_keep=3) == [0, 2, 4]
    assert ids(xtc_threshold=0.15, xtc_probability=0) == [0, 1, 2, 3, 4]


def test_xtc_acts_with_its_probability_and_independently_of_the_draw():
    logits = np.log(np.array([0.4, 0.35, 0.25], F))
    p = SamplingParams(top_k=0, top_p=1, min_p=0, temperature=1, xtc_probability=0.3, xtc_threshold=0.3, seed=9)
    draws = 20_000
    counts = np.bincount([sample(logits.copy(), p) for _ in range(draws)], minlength=3)
    acted = np.array([0, 0.35, 0.25]) / 0.6
    assert chi_square(counts, draws * (0.3 * acted + 0.7 * np.array([0.4, 0.35, 0.25]))) < 13.8  # 2 degrees


# --- mirostat -----------------------------------------------------------------------------------------------

def ref_mirostat(logits, p, mu, u):
    """One step: (token, new mu, distance of the draw from its nearest border)."""
    order = by_logit([(i, x) for i, x in enumerate(logits) if x > -np.inf])
    ids = [c[0] for c in order]
    q = softmax([c[1] for c in order], float(F(p.temperature)))
    n = len(ids)
    if p.mirostat == 1:
        i = np.arange(min(100, n) - 1)
        t, b = np.log((i + 2) / (i + 1)), np.log(q[i] / q[i + 1])
        s = (t * b).sum() / (t * t).sum()
        e = s - 1
        k = ((e * 2**mu) / (1 - len(logits) ** -e)) ** (1 / s) if s > 0 else math.nan
        kept = n if math.isnan(k) else min(n, max(1, int(k)))
    else:
        kept = max(1, int(np.argmax(np.append(-np.log2(q), np.inf) > mu)))
    q = q[:kept] / q[:kept].sum()
    token, margin = ref_draw(ids[:kept], q, u)
    surprise = -math.log2(q[ids.index(token)])
    mu = float(F(F(mu) - F(float(F(p.mirostat_eta)) * (surprise - float(F(p.mirostat_tau))))))
    return token, mu, margin, kept


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_mirostat_follows_its_formulas(version, temperature):
    rng = np.random.default_rng(version)
    p = SamplingParams(mirostat=version, temperature=temperature, mirostat_tau=3.0, mirostat_eta=0.3, seed=21,
                       repeat_penalty=5.0, logit_bias={0: -math.inf, 1: 0.5})
    draws, mu, lengths = Xoshiro(21), 6.0, set()
    for _ in range(200):
        logits = (rng.standard_normal(400) * 2).astype(F)
        changed = logits.copy()
        changed[0], changed[1] = -np.inf, changed[1] + F(0.5)
        ids, q = candidates(logits, p)
        want, mu, margin, kept = ref_mirostat(changed, p, mu, draws.uniform())
        assert len(ids) == kept
        assert margin > 1e-6                                 # holds for these seeds: the comparison below is safe
        assert sample(logits, p, [1, 2, 3]) == want          # and no penalty
        assert np.array_equal(logits, changed)
        assert p.mu == pytest.approx(mu, abs=2e-4)
        mu = p.mu
        lengths.add(kept)
    assert len(lengths) > 20


# --- DRY ----------------------------------------------------------------------------------------------------

def test_dry_against_the_naive_search():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))                          # few tokens: long and nested repeats
        recent = rng.integers(0, n, rng.integers(0, 200)).tolist()
        if seed % 3 == 0:
            recent = (recent[:7] * 30)[:150]
        breakers = [(0,), (1, 2), (1, 2, 3, 1), (2, 2)][rng.integers(0, 4):rng.integers(1, 5)]
        p = SamplingParams(temperature=0, dry_multiplier=0.7, dry_base=[1.75, 1.0, 3.0][seed % 3],
                           dry_allowed_length=int(rng.integers(0, 5)), dry_penalty_last_n=int(rng.integers(1, 220)),
                           dry_breakers=breakers)
        logits = np.zeros(n + 1, F)
        want = ref_logits(logits, p, recent)
        sample(logits, p, recent)
        np.testing.assert_allclose(logits, want, rtol=1e-6, err_msg=f"{seed} {p} {recent}")


# --- logprobs -----------------------------------------------------------------------------------------------

def test_logprobs():
    logits = (np.random.default_rng(4).standard_normal(1000) * 5).astype(F)
    logits[7] = -np.inf
    x = logits.astype(np.float64)
    want = x - (x.max() + math.log(np.exp(x - x.max()).sum()))
    np.testing.assert_allclose(logprobs(logits, [3, 7, 999]), want[[3, 7, 999]], rtol=1e-6, atol=1e-6)
    ids, values = logprobs(logits, top=5)
    assert ids.tolist() == np.argsort(-x, kind="stable")[:5].tolist()
    np.testing.assert_allclose(values, want[ids], atol=1e-6)
    assert len(logprobs(logits, top=5000)[0]) == 999
    assert logprobs(logits, []).shape == (0,)
    with pytest.raises(ValueError, match="a token is 1000, not in 0..999"):
        logprobs(logits, [1000])
    with pytest.raises(ValueError, match="top"):
        logprobs(logits, top=0)
    with pytest.raises(TypeError):
        logprobs(logits)
