# The distinct tokens of a window of recent tokens, counted and chained; and the record of changed logits.
from libc.stdint cimport uint32_t

from pantheon._core.sampling.scratch cimport pn_scratch, pn_slot

# Fills s.slots, s.table and s.older from the last n of recent (n_recent,), n <= s.window_cap. Positions count back from
# the last token.
cdef void pn_window_build(pn_scratch *s, const uint32_t *recent, int n_recent, int n) noexcept nogil
# The slot of a token, NULL when it is not in the window. Valid until the next pn_window_build.
cdef pn_slot *pn_window_find(pn_scratch *s, uint32_t token) noexcept nogil


cdef inline void pn_touch(pn_scratch *s, const float *logits, uint32_t id) noexcept nogil:
    """Records a logit before it is changed. s.touched was sized for one record per bias and two per recent token."""
    s.touched[s.n_touched].id = id
    s.touched[s.n_touched].before = logits[id]
    s.n_touched += 1
