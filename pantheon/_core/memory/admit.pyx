"""The decision itself, as a pure function (see admit.pxd for the contract)."""
from libc.stdint cimport uint64_t
from libc.string cimport memset

from pantheon._core.base.report cimport pn_set_error
from pantheon._core.memory.cost cimport pn_cost_fit, pn_cost_need
from pantheon._core.memory.ladder cimport pn_ladder_have
from pantheon._core.types cimport (
    PN_ADMIT_CAP,
    PN_ADMIT_OK,
    PN_ADMIT_REJECT,
    PN_MODEL_MAX_DIES,
    pn_admit_code,
    pn_cost,
    pn_mem_state,
)


cdef pn_admit_code pn_admit_request(const pn_mem_state *st, const pn_cost *cost, int n_tokens, int max_window,
                                    int *fit_tokens) noexcept nogil:
    cdef pn_cost c
    cdef uint64_t have
    cdef int fit, i
    if fit_tokens != NULL:
        fit_tokens[0] = 0
    if st == NULL or cost == NULL or fit_tokens == NULL:
        pn_set_error(b"state, cost or fit_tokens is NULL")
        return PN_ADMIT_REJECT
    c = cost[0]
    if 0 < max_window < c.window:
        c.scratch_bytes = c.scratch_bytes // c.window * max_window + c.window
    fit = pn_cost_fit(&c, pn_ladder_have(st.host_avail, st.host_reserved, st.host_total), n_tokens)
    for i in range(min(c.n_dies, <int>PN_MODEL_MAX_DIES)):
        have = 0
        if <uint64_t>i < st.n_dies:
            have = pn_ladder_have(st.die_free[i], st.die_reserved[i], st.die_total[i])
        if have < c.die_state_bytes[i]:
            fit = 0
        elif c.die_token_bytes[i] > 0:
            fit = <int>min(<uint64_t>fit, (have - c.die_state_bytes[i]) // c.die_token_bytes[i])
    fit_tokens[0] = fit
    if n_tokens < 1 or fit < 1:
        return PN_ADMIT_REJECT
    return PN_ADMIT_OK if fit == n_tokens else PN_ADMIT_CAP


# ---- for tests -------------------------------------------------------------------------------------------------------

def request(n_tokens, max_window, *, total, avail, reserved=0, group_bytes=64, areas=1, state_bytes=0, scratch_bytes=0,
            window=1, logits_bytes=0, held_bytes=0, scratch_held=0, dies=()):
    """pn_admit_request of a made-up host and cost: ("OK", "CAP" or "REJECT", fit_tokens, need_bytes of n_tokens).

    dies: (total, free, reserved, state_bytes, token_bytes) of each.
    """
    cdef pn_mem_state st
    cdef pn_cost c
    cdef int fit = 0, code, i
    memset(&st, 0, sizeof(st))
    memset(&c, 0, sizeof(c))
    st.host_total, st.host_avail, st.host_reserved = total, avail, reserved
    c.n_areas = 1
    c.areas[0].n, c.areas[0].group_bytes = areas, group_bytes
    c.state_bytes, c.scratch_bytes, c.logits_bytes, c.window = state_bytes, scratch_bytes, logits_bytes, window
    c.held_bytes, c.scratch_held = held_bytes, scratch_held
    st.n_dies = c.n_dies = len(dies)
    for i in range(len(dies)):
        st.die_total[i], st.die_free[i], st.die_reserved[i], c.die_state_bytes[i], c.die_token_bytes[i] = dies[i]
    code = pn_admit_request(&st, &c, n_tokens, max_window, &fit)
    return ("OK", "CAP", "REJECT")[code], fit, pn_cost_need(&c, n_tokens)
