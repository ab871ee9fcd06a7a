"""The RWKV-7 block: time mix, then channel mix, each with its token shift (see rwkv7.pxd for the contract).

Time mix: u = norm(x) and the same of the token before meet in six mixes; receptance, key and value are products of
three of them, decay, rate, gate and value residual come from low-rank pairs. Then every head updates its state, one
token after the other, and its result, normed and gated, goes through the output matrix.

Ranks split tokens for everything elementwise and heads for the recurrence. The recurrence runs in its token form in
prefill too, so the cut of a prompt changes no bit.
"""
from libc.string cimport memcpy

from pantheon._core.arch.rwkv.structs cimport (
    IN_FF,
    IN_HEADS,
    IN_LORA,
    IN_MIX,
    RX_A,
    RX_G,
    RX_K,
    RX_LORAS,
    RX_LORA_A,
    RX_LORA_G,
    RX_LORA_V,
    RX_LORA_W,
    RX_MIXES,
    RX_R,
    RX_V,
    RX_W,
    pn_rwkv7_block,
    pn_rwkv_ffn,
    rx_job,
    rx_view,
    rx_work,
)
from pantheon._core.arch.rwkv.state cimport rx_of
from pantheon._core.arch.structs cimport pn_stream
from pantheon._core.base.pool cimport pn_counter, pn_counter_next
from pantheon._core.kernels.table cimport PN_RWKV_HEAD, pn_rwkv7_step
from pantheon._core.layers.linear cimport (
    group_prefetch,
    group_product,
    input_prepare,
    pn_team,
    team_barrier,
    team_counter,
    team_range,
)


cdef inline const float *before(const rx_job *job, const rx_view *v, int t, int slot) noexcept nogil:
    """Input of a token shift at the token before t: (n_embd,)."""
    cdef size_t n = job.c.n_embd
    if job.run.one_sequence:
        return v.s.normed + (t - 1) * n if t > 0 else rx_of(job.states[0]).base.recurrent + slot * n
    return rx_of(job.states[t]).base.recurrent + slot * n


cdef void keep_last(rx_job *job, const rx_view *v, int slot) noexcept nogil:
    """What the next token will see as the one before. Every rank has read the old one."""
    cdef int t
    cdef size_t n = job.c.n_embd
    if job.run.one_sequence:
        if v.t0 < v.n_tok == v.t1:
            memcpy(rx_of(job.states[0]).base.recurrent + slot * n, v.s.normed + (v.n_tok - 1) * n, n * sizeof(float))
        return
    for t in range(v.t0, v.t1):
        memcpy(rx_of(job.states[t]).base.recurrent + slot * n, v.s.normed + t * n, n * sizeof(float))


cdef void rwkv_norm(rx_job *job, rx_view *v, const float *ln_w, const float *ln_b) noexcept nogil:
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(v.t0, v.t1):
        job.w.base.k.layer_norm(v.x + t * n, ln_w, ln_b, job.c.norm_eps, job.c.n_embd, v.s.normed + t * n)


cdef void add_delta(rx_job *job, rx_view *v) noexcept nogil:
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(v.t0, v.t1):
        job.w.base.k.add(v.x + t * n, job.work.base.delta + t * n, job.c.n_embd)


# ---- time mix --------------------------------------------------------------------------------------------------------

cdef void mixes(rx_job *job, pn_team *team, rx_view *v, const pn_rwkv7_block *block, int slot) noexcept nogil:
    """The six mixes of the rank's tokens and the forms of them that the matrices read."""
    cdef int i, t
    cdef size_t n = job.c.n_embd
    for t in range(v.t0, v.t1):
        for i in range(RX_MIXES):
            job.w.base.k.lerp(v.s.normed + t * n, before(job, v, t, slot), block.mix[i], job.c.n_embd,
                              v.s.input[IN_MIX + i].f + t * n)
    for i in range(RX_MIXES):
        input_prepare(team, &v.s.input[IN_MIX + i], &block.down[i], v.t0, v.t1)


cdef void down_products(rx_job *job, pn_team *team, pn_stream *s, const pn_rwkv7_block *block) noexcept nogil:
    cdef rx_work *work = job.work
    cdef float *y[2]
    cdef size_t ldy[2]
    ldy[0] = job.c.n_embd
    y[0] = work.r
    group_product(team, &block.down[RX_R], &s.input[IN_MIX + RX_R], y, ldy)
    y[0] = work.k
    group_product(team, &block.down[RX_K], &s.input[IN_MIX + RX_K], y, ldy)
    y[0], y[1], ldy[1] = work.v, work.lora[RX_LORA_V], job.w.n_lora[RX_LORA_V]
    group_product(team, &block.down[RX_V], &s.input[IN_MIX + RX_V], y, ldy)
    y[0], ldy[0] = work.lora[RX_LORA_W], job.w.n_lora[RX_LORA_W]
    group_product(team, &block.down[RX_W], &s.input[IN_MIX + RX_W], y, ldy)
    y[0], ldy[0] = work.lora[RX_LORA_A], job.w.n_lora[RX_LORA_A]
    group_product(team, &block.down[RX_A], &s.input[IN_MIX + RX_A], y, ldy)
    y[0], ldy[0] = work.lora[RX_LORA_G], job.w.n_lora[RX_LORA_G]
    group_product(team, &block.down[RX_G], &s.input[IN_MIX + RX_G], y, ldy)


cdef void activate(rx_job *job, pn_team *team, rx_view *v, const pn_rwkv7_block *block) noexcept nogil:
    """Between the two matrices of each low-rank pair: tanh for the decay, a sigmoid for the gate."""
    cdef int i, t, n
    cdef const float *x
    cdef float *y
    for i in range(RX_LORAS):
        n = job.w.n_lora[i]
        if block.up[i].n == 0:
            continue
        for t in range(v.t0, v.t1):
            x = job.work.lora[i] + <size_t>t * n
            y = v.s.input[IN_LORA + i].f + <size_t>t * n
            if i == RX_LORA_W:
                job.w.base.k.tanh(x, n, y)
            elif i == RX_LORA_G:
                job.w.base.k.sigmoid(x, n, y)
            else:
                memcpy(y, x, n * sizeof(float))
        input_prepare(team, &v.s.input[IN_LORA + i], &block.up[i], v.t0, v.t1)


cdef void up_products(rx_job *job, pn_team *team, pn_stream *s, const pn_rwkv7_block *block) noexcept nogil:
    cdef int i
    cdef float *y[1]
    cdef size_t ldy[1]
    ldy[0] = job.c.n_embd
    for i in range(RX_LORAS):
        if block.up[i].n > 0:
            y[0] = job.work.up[i]
            group_product(team, &block.up[i], &s.input[IN_LORA + i], y, ldy)


cdef void head_step(rx_job *job, rx_view *v, const pn_rwkv7_block *block, int b, int h, int t) noexcept nogil:
    """Head h at token t of the window."""
    cdef rx_work *work = job.work
    cdef size_t c = <size_t>h * PN_RWKV_HEAD, n = job.c.n_embd
    cdef size_t at = t * n + c
    cdef pn_rwkv7_step p
    p.r, p.k, p.v = work.r + at, work.k + at, work.v + at
    p.w, p.a, p.g = work.up[RX_LORA_W] + at, work.up[RX_LORA_A] + at, work.up[RX_LORA_G] + at
    p.w0, p.a0, p.k_k, p.k_a = block.w0 + c, block.a0 + c, block.k_k + c, block.k_a + c
    p.r_k, p.ln_w, p.ln_b = block.r_k + c, block.lnx_w + c, block.lnx_b + c
    p.mix, p.v_first, p.v0 = NULL, NULL, NULL
    if b > 0:
        p.mix, p.v_first, p.v0 = work.up[RX_LORA_V] + at, v.v_first + at, block.v0 + c
    else:
        memcpy(v.v_first + at, p.v, PN_RWKV_HEAD * sizeof(float))
    p.state = (rx_of(job.states[0 if job.run.one_sequence else t]).wkv
               + (<size_t>b * job.c.n_head + h) * (PN_RWKV_HEAD * PN_RWKV_HEAD))
    p.k_out, p.v_out = NULL, NULL
    if job.prompt != NULL:
        p.k_out, p.v_out = job.prompt.k + v.w0 * n + at, job.prompt.v + v.w0 * n + at
    p.y = work.y + at
    job.w.base.k.rwkv7_head(&p)


cdef void heads(rx_job *job, pn_team *team, rx_view *v, const pn_rwkv7_block *block, int b) noexcept nogil:
    cdef int n_head = job.c.n_head, h, h0, h1, t, unit
    cdef pn_counter *counter
    if not job.shared:
        team_range(team, n_head, 1, &h0, &h1)
        for h in range(h0, h1):
            head_step(job, v, block, b, h, 0)
        return
    counter = team_counter(team)
    unit = pn_counter_next(counter)
    if job.run.one_sequence:
        while unit < n_head:
            for t in range(v.n_tok):
                head_step(job, v, block, b, unit, t)
            unit = pn_counter_next(counter)
        return
    while unit < n_head * v.n_tok:
        head_step(job, v, block, b, unit % n_head, unit // n_head)
        unit = pn_counter_next(counter)


cdef void rwkv7_block(rx_job *job, pn_team *team, rx_view *v, int b) noexcept nogil:
    cdef pn_rwkv7_block *block = &job.w.blocks[b]
    cdef pn_stream *s = v.s
    cdef float *y[1]
    cdef size_t ldy[1]
    rwkv_norm(job, v, block.ln_w, block.ln_b)
    if job.shared:
        team_barrier(team)
    mixes(job, team, v, block, 2 * b)
    if job.shared:
        team_barrier(team)
        keep_last(job, v, 2 * b)
    down_products(job, team, s, block)
    team_barrier(team)
    if not job.shared and team.rank == 0:
        keep_last(job, v, 2 * b)
    activate(job, team, v, block)
    if job.shared:
        team_barrier(team)
    up_products(job, team, s, block)
    if not job.shared:
        group_prefetch(team, &block.out)
    team_barrier(team)
    heads(job, team, v, block, b)
    team_barrier(team)
    input_prepare(team, &s.input[IN_HEADS], &block.out, v.t0, v.t1)
    if job.shared:
        team_barrier(team)
    y[0], ldy[0] = job.work.base.delta, job.c.n_embd
    group_product(team, &block.out, &s.input[IN_HEADS], y, ldy)
    if not job.shared:
        group_prefetch(team, &block.ffn.key)
    team_barrier(team)
    rwkv_channel_mix(job, team, v, &block.ffn, 2 * b + 1)


# ---- channel mix -----------------------------------------------------------------------------------------------------

cdef void rwkv_channel_mix(rx_job *job, pn_team *team, rx_view *v, const pn_rwkv_ffn *ffn, int slot) noexcept nogil:
    cdef rx_work *work = job.work
    cdef pn_stream *s = v.s
    cdef size_t n = job.c.n_embd, n_ff = job.c.n_ff
    cdef int t, r0, r1
    cdef float *y[1]
    cdef size_t ldy[1]
    add_delta(job, v)
    rwkv_norm(job, v, ffn.ln_w, ffn.ln_b)
    if job.shared:
        team_barrier(team)
    for t in range(v.t0, v.t1):
        job.w.base.k.lerp(s.normed + t * n, before(job, v, t, slot), ffn.x_k, job.c.n_embd,
                          s.input[IN_MIX].f + t * n)
    input_prepare(team, &s.input[IN_MIX], &ffn.key, v.t0, v.t1)
    if job.shared:
        team_barrier(team)
        keep_last(job, v, slot)
    y[0], ldy[0] = work.ff, n_ff
    group_product(team, &ffn.key, &s.input[IN_MIX], y, ldy)
    if job.shared:
        team_barrier(team)
        for t in range(v.t0, v.t1):
            job.w.base.k.relu_sqr(work.ff + t * n_ff, job.c.n_ff)
    else:
        team_range(team, job.c.n_ff, 8, &r0, &r1)    # the rows that this rank computed
        job.w.base.k.relu_sqr(work.ff + r0, r1 - r0)
        group_prefetch(team, &ffn.value)
        team_barrier(team)
        if team.rank == 0:
            keep_last(job, v, slot)
    input_prepare(team, &s.input[IN_FF], &ffn.value, v.t0, v.t1)
    if job.shared:
        team_barrier(team)
    y[0], ldy[0] = work.base.delta, job.c.n_embd
    group_product(team, &ffn.value, &s.input[IN_FF], y, ldy)
    team_barrier(team)
    add_delta(job, v)
