"""Gated DeltaNet: the recurrent token mixer of the Qwen3.5 family (see deltanet.pxd for the contract).

A unit of work is one key head of one sequence with the value heads that read it: its channels of the convolution and
its matrices S belong to nobody else, so units need no order among them.
"""
from libc.math cimport sqrt
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from pantheon._core.base.carver cimport aligned
from pantheon._core.base.pool cimport pn_counter, pn_counter_next
from pantheon._core.layers.linear cimport pn_team, team_counter, team_range

cdef float L2_EPS = 1e-6                 # the published constant, no hyper-parameter


cdef size_t deltanet_scratch(const pn_deltanet_dims *d) noexcept nogil:
    return 2 * aligned(d.k_dim * sizeof(float)) + 2 * aligned(d.v_dim * sizeof(float))


cdef struct unit_view:                   # one unit of one run
    const pn_deltanet_step *step
    const pn_deltanet_run *run
    const pn_deltanet *w
    int channels
    float *conv                          # (taps - 1, channels) of this layer and sequence
    float *s                             # (n_v_head, k_dim, v_dim)
    float *q                             # (k_dim,) scratch
    float *k                             # (k_dim,) scratch
    float *v                             # (v_dim,) scratch
    float *o                             # (v_dim,) scratch


cdef void convolve(const pn_team *team, const unit_view *u, int t, int channel, int n, float *y) noexcept nogil:
    """y = the convolution of token t of the run for channels [channel, channel + n)."""
    cdef const float *rows[DELTANET_MAX_TAPS]
    cdef int taps = u.step.dims.taps, j, row
    for j in range(taps):
        row = t + j                      # of the saved inputs followed by those of the run
        if row < taps - 1:
            rows[j] = u.conv + <size_t>row * u.channels + channel
        else:
            rows[j] = u.step.qkv + <size_t>(u.run.first + row - (taps - 1)) * u.channels + channel
    team.k.conv_silu(u.w.conv + <size_t>channel * taps, rows, taps, n, y)


cdef void save_inputs(const unit_view *u, int channel, int n) noexcept nogil:
    """The last taps - 1 inputs of channels [channel, channel + n), those of the run included, become the saved ones."""
    cdef int taps = u.step.dims.taps, i, row
    cdef const float *saved
    for i in range(taps - 1):
        row = u.run.n + i                # of the saved inputs followed by those of the run
        if row < taps - 1:
            saved = u.conv + <size_t>row * u.channels
        else:
            saved = u.step.qkv + <size_t>(u.run.first + row - (taps - 1)) * u.channels
        memcpy(u.conv + <size_t>i * u.channels + channel, saved + channel, n * sizeof(float))


cdef inline int value_head(const pn_deltanet_dims *d, int k_head, int i) noexcept nogil:
    """The i-th value head that reads a key head."""
    return k_head * (d.n_v_head // d.n_k_head) + i if d.grouped else k_head + i * d.n_k_head


cdef void unit(const pn_team *team, const unit_view *u, int k_head) noexcept nogil:
    """All tokens of the run through one key head and its value heads."""
    cdef const pn_deltanet_dims *d = u.step.dims
    cdef int k_channels = d.n_k_head * d.k_dim, per = d.n_v_head // d.n_k_head, t, h, i
    cdef size_t token
    cdef float *z
    cdef float decay, rate
    cdef float q_scale = <float>(1.0 / sqrt(<double>d.k_dim))
    for t in range(u.run.n):
        token = u.run.first + t
        convolve(team, u, t, k_head * d.k_dim, d.k_dim, u.q)
        convolve(team, u, t, k_channels + k_head * d.k_dim, d.k_dim, u.k)
        team.k.l2_norm(u.q, L2_EPS, q_scale, d.k_dim, u.q)
        team.k.l2_norm(u.k, L2_EPS, 1.0, d.k_dim, u.k)
        for i in range(per):
            h = value_head(d, k_head, i)
            convolve(team, u, t, 2 * k_channels + h * d.v_dim, d.v_dim, u.v)
            team.k.delta_gates(u.step.alpha + token * d.n_v_head + h, u.step.beta + token * d.n_v_head + h, u.w.a + h,
                               u.w.dt + h, 1, &decay, &rate)
            team.k.delta_step(u.s + <size_t>h * d.k_dim * d.v_dim, u.q, u.k, u.v, decay, rate, d.k_dim, d.v_dim,
                              u.o)
            team.k.rms_norm(u.o, u.w.norm, d.norm_eps, d.v_dim, u.o)
            z = u.step.z + (token * d.n_v_head + h) * d.v_dim
            team.k.silu_mul(z, u.o, d.v_dim)
    save_inputs(u, k_head * d.k_dim, d.k_dim)
    save_inputs(u, k_channels + k_head * d.k_dim, d.k_dim)
    for i in range(per):
        save_inputs(u, 2 * k_channels + value_head(d, k_head, i) * d.v_dim, d.v_dim)


cdef void deltanet_mix(pn_team *team, const pn_deltanet *w, const pn_deltanet_step *step, int slot, bint single,
                       uint8_t *scratch) noexcept nogil:
    cdef const pn_deltanet_dims *d = step.dims
    cdef size_t k_bytes = aligned(d.k_dim * sizeof(float)), v_bytes = aligned(d.v_dim * sizeof(float))
    cdef pn_counter *counter
    cdef unit_view u
    cdef int i = 0, end
    u.step = step
    u.w = w
    u.channels = deltanet_channels(d)
    u.q = <float *>scratch
    u.k = <float *>(scratch + k_bytes)
    u.v = <float *>(scratch + 2 * k_bytes)
    u.o = <float *>(scratch + 2 * k_bytes + v_bytes)
    if single:
        team_range(team, d.n_k_head, 1, &i, &end)
    else:
        counter = team_counter(team)
        i = pn_counter_next(counter)
        end = step.n_runs * d.n_k_head
    while i < end:
        u.run = &step.runs[i // d.n_k_head]
        u.conv = u.run.conv + slot * deltanet_conv_size(d)
        u.s = u.run.s + slot * deltanet_s_size(d)
        unit(team, &u, i % d.n_k_head)
        i = i + 1 if single else pn_counter_next(counter)
