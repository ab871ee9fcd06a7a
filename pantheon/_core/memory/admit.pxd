# The decision itself, as a pure function.
from pantheon._core.memory.state cimport pn_admit_code, pn_cost, pn_mem_state

# nogil. Whether a sequence of n_tokens fits what the state has free: all of it (PN_ADMIT_OK), *fit_tokens of it
# (PN_ADMIT_CAP) or none (PN_ADMIT_REJECT, *fit_tokens 0). max_window bounds the tokens of a prefill call: scratch that
# the cost states for a longer one is scaled down to it. Every die that holds a part of the sequence is asked too.
cdef pn_admit_code pn_admit_request(const pn_mem_state *st, const pn_cost *cost, int n_tokens, int max_window,
                                    int *fit_tokens) noexcept nogil
