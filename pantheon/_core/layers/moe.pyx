"""Mixture-of-experts feed-forward (see moe.pxd for the contract)."""
from libc.string cimport memcpy, memset

import numpy as np

from pantheon._core.base.phases cimport PHASE_PRODUCTS, phase_enter
from pantheon._core.kernels.table cimport pn_kernels, pn_kernels_active
from pantheon._core.layers.linear cimport (
    group_product,
    input_prepare,
    matrix_rows,
    pn_group,
    pn_input,
    pn_team,
    team_barrier,
    team_range,
)
from pantheon._core.layers.moe_grouped cimport grouped_experts
from pantheon._core.layers.moe_weights cimport pn_moe, pn_moe_rank, pn_moe_work


# ---- router ----------------------------------------------------------------------------------------------------------

cdef void moe_route(const pn_kernels *k, const pn_moe *moe, float *logits, int *chosen, float *weights) noexcept nogil:
    cdef int n = 0, e, i
    cdef float total = 0
    k.softmax(logits, moe.n_experts)
    for e in range(moe.n_experts):
        if n == moe.n_used:
            if not logits[e] > logits[chosen[n - 1]]:
                continue
            n -= 1
        i = n
        while i > 0 and logits[e] > logits[chosen[i - 1]]:
            chosen[i] = chosen[i - 1]
            i -= 1
        chosen[i] = e
        n += 1
    for i in range(n):
        weights[i] = logits[chosen[i]]
        total += weights[i]
    if moe.renormalise:
        total = max(total, <float>6.103515625e-05)           # 2^-14
        for i in range(n):
            weights[i] /= total
    for i in range(n):
        weights[i] *= moe.scale


def route(logits, int n_used, bint renormalise=True, float scale=1.0):
    """The experts of one token and their weights, as two lists, from the router's logits (n_experts,).

    n_used is in 1..n_experts; renormalise and scale as in pn_moe.
    """
    values = np.array(logits, np.float32)
    cdef float[::1] v = values
    cdef int[::1] chosen
    cdef float[::1] weights
    cdef pn_moe moe
    if not 1 <= n_used <= v.shape[0]:
        raise ValueError(f"n_used is {n_used}, not in 1..{v.shape[0]}")
    chosen = np.zeros(n_used, np.intc)
    weights = np.zeros(n_used, np.float32)
    memset(&moe, 0, sizeof(moe))
    moe.n_experts = v.shape[0]
    moe.n_used = n_used
    moe.renormalise = renormalise
    moe.scale = scale
    moe_route(pn_kernels_active(), &moe, &v[0], &chosen[0], &weights[0])
    return list(chosen), list(weights)


cdef void route_token(const pn_team *team, const pn_moe *moe, const pn_moe_work *work, int t, float *logits,
                      int *chosen, float *weights) noexcept nogil:
    """Choice and weights of token t, the shared expert's behind those of the routed ones; logits: scratch."""
    cdef float gate[2]
    memcpy(logits, work.logits + <size_t>t * moe.n_experts, moe.n_experts * sizeof(float))
    moe_route(team.k, moe, logits, chosen, weights)
    if moe.n_ff_shared > 0:
        gate[0], gate[1] = work.shared_logit[t], 0
        team.k.softmax(gate, 2)                              # sigmoid
        weights[moe.n_used] = gate[0]


cdef void route_product(pn_team *team, const pn_moe *moe, const pn_input *x, const pn_moe_work *work) noexcept nogil:
    cdef float *y[2]
    cdef size_t ldy[2]
    y[0], y[1] = work.logits, work.shared_logit
    ldy[0], ldy[1] = moe.n_experts, 1
    group_product(team, &moe.router, x, y, ldy)
    team_barrier(team)


cdef void moe_prepare(const pn_team *team, const pn_moe *moe, pn_input *x, int t0, int t1) noexcept nogil:
    input_prepare(team, x, &moe.router, t0, t1)
    input_prepare(team, x, &moe.reads, t0, t1)


cdef inline void add_weighted(const pn_team *team, float *y, const float *out, float weight, bint first,
                              int n) noexcept nogil:
    if first:
        memset(y, 0, n * sizeof(float))
    team.k.scale_add(y, out, weight, n)


# ---- a single token --------------------------------------------------------------------------------------------------

cdef void single_gate_up(const pn_team *team, const pn_group *g, const pn_input *x, int r0, int r1, float *gate,
                         float *up) noexcept nogil:
    """gate = silu(gate) * up of those of an expert's features that lie in [r0, r1)."""
    r0, r1 = max(r0, 0), min(r1, g.m[0].rows)
    if r0 < r1:
        matrix_rows(&g.m[0], &x.act[<int>g.m[0].ops.act], 0, 1, r0, r1, gate, 0)
        matrix_rows(&g.m[1], &x.act[<int>g.m[1].ops.act], 0, 1, r0, r1, up, 0)
        team.k.silu_mul(gate + r0, up + r0, r1 - r0)


cdef inline void single_down(const pn_group *g, const pn_input *x, int t, int r0, int r1, float *out) noexcept nogil:
    matrix_rows(&g.m[0], &x.act[<int>g.m[0].ops.act], t, t + 1, r0, r1, out, 0)


cdef void step_single(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y) noexcept nogil:
    """One token: the ranks share the features of all chosen experts, then the rows of the result."""
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef int units = (moe.n_ff + 7) // 8                     # of 8 features, of a routed expert
    cdef int n = moe.n_used, n_embd = moe.reads.cols
    cdef int i, u0, u1, r0, r1
    route_product(team, moe, x, work)
    route_token(team, moe, work, 0, own.logits, own.chosen, own.weights)

    phase_enter(team.rank, PHASE_PRODUCTS)
    team_range(team, n * units + (moe.n_ff_shared + 7) // 8, 1, &u0, &u1)
    for i in range(n):
        single_gate_up(team, &moe.gate_up[own.chosen[i]], x, 8 * (u0 - i * units), 8 * (u1 - i * units),
                       work.gate + <size_t>i * moe.n_ff, work.up + <size_t>i * moe.n_ff)
    if moe.n_ff_shared > 0:
        single_gate_up(team, &moe.gate_up[moe.n_experts], x, 8 * (u0 - n * units), 8 * (u1 - n * units),
                       work.gate_shared, work.up_shared)
    team_barrier(team)

    input_prepare(team, &own.ff, &moe.down_reads, 0, n)
    if moe.n_ff_shared > 0:
        input_prepare(team, &own.ff_shared, &moe.shared_reads, 0, 1)
    phase_enter(team.rank, PHASE_PRODUCTS)
    team_range(team, n_embd, 8, &r0, &r1)
    for i in range(n if r0 < r1 else 0):
        single_down(&moe.down[own.chosen[i]], &own.ff, i, r0, r1, work.out + <size_t>i * n_embd)
        add_weighted(team, y + r0, work.out + <size_t>i * n_embd + r0, own.weights[i], i == 0, r1 - r0)
    if moe.n_ff_shared > 0 and r0 < r1:
        single_down(&moe.down[moe.n_experts], &own.ff_shared, 0, r0, r1, work.out + <size_t>n * n_embd)
        add_weighted(team, y + r0, work.out + <size_t>n * n_embd + r0, own.weights[n], False, r1 - r0)
    team_barrier(team)


# ---- several tokens --------------------------------------------------------------------------------------------------

cdef void step_several(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y, int t0,
                       int t1) noexcept nogil:
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef size_t n_embd = moe.reads.cols
    cdef const float *weights
    cdef int t, i
    route_product(team, moe, x, work)
    for t in range(t0, t1):
        route_token(team, moe, work, t, own.logits, work.chosen + <size_t>t * moe.n_used,
                    work.weights + <size_t>t * (moe.n_used + 1))
    team_barrier(team)
    grouped_experts(team, moe, x, work)
    for t in range(t0, t1):
        weights = work.weights + <size_t>t * (moe.n_used + 1)
        for i in range(moe.n_used):
            add_weighted(team, y + t * n_embd, work.out + own.row[t * moe.n_used + i] * n_embd, weights[i], i == 0,
                         moe.reads.cols)
        if moe.n_ff_shared > 0:
            add_weighted(team, y + t * n_embd, work.out + (own.first[moe.n_experts] + <size_t>t) * n_embd,
                         weights[moe.n_used], False, moe.reads.cols)


cdef void moe_step(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y, int t0,
                   int t1) noexcept nogil:
    if x.n_tok == 1:
        step_single(team, moe, x, work, y)
    else:
        step_several(team, moe, x, work, y, t0, t1)
