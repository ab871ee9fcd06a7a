# The decision itself, as a pure function; of the C API: engine.pxd explains it.
from pantheon._core.types cimport pn_admit_code, pn_cost, pn_mem_state

cdef pn_admit_code pn_admit_request(const pn_mem_state *st, const pn_cost *cost, int n_tokens, int max_window,
                                    int *fit_tokens) noexcept nogil
