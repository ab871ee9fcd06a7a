# Scratch memory of the sampler: one per thread, grown to the largest vocabulary and window seen, freed when the thread
# ends.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    PN_MASS_BUCKETS = 4096

ctypedef enum pn_cand_order:             # what the candidates are ordered by
    PN_ORDER_ID = 0                      # rising id
    PN_ORDER_LOGIT = 1                   # falling logit, then rising id
    PN_ORDER_SCORE = 2                   # rising typicality score, then as PN_ORDER_LOGIT

cdef struct pn_touched:                  # a logit that was changed before the truncations, in order of the changes
    uint32_t id
    float before

cdef struct pn_slot:                     # one distinct token of a window of recent tokens
    uint32_t token
    int32_t count                        # occurrences in the window
    int32_t first                        # its most recent position (0 = the last token)
    int32_t last                         # its oldest position so far, the end of the chain through pn_scratch.older
    int32_t repeat                       # DRY: longest repeat that it would continue, -1 = none
    bint breaker                         # DRY: it is a breaker on its own

cdef struct pn_scratch:
    # candidates: the arrays hold cap + 1 elements; n of them are in use
    int n
    pn_cand_order order
    float max                            # largest logit when pn_cand_exp ran
    double sum                           # of e, when pn_cand_exp ran
    int cap
    uint32_t *id
    float *logit
    float *e                             # exp((logit - max) / T)
    uint64_t *key                        # order of the logit above, id or index below
    uint64_t *key2
    float *block_max                     # (ceil(cap / PN_SCAN_BLOCK),) maxima of the scan
    double *mass                         # (PN_MASS_BUCKETS,)
    # window of recent tokens
    int window_cap
    int n_slots
    pn_slot *slots                       # (window_cap,) distinct tokens in order of first appearance, newest first
    int32_t *table                       # (table_size,) slot + 1, 0 = free; open addressing
    int table_size                       # power of two, at least 2 * window_cap
    int table_mask                       # of the part in use
    int32_t *older                       # (window_cap,) next older position of the same token, -1 = none
    int32_t *suffix                      # (window_cap,) DRY: length of the repeat that ends at a position
    # what to undo if nothing is left
    int n_touched
    int touched_cap
    pn_touched *touched
    size_t nbytes                        # all of the above

# This thread's scratch, empty, large enough for the sizes; NULL with pn_last_error(): no memory, or an absurd size.
cdef pn_scratch *pn_scratch_get(int n_vocab, int n_window, int64_t n_touched) noexcept nogil
cdef int64_t pn_scratch_total() noexcept nogil           # bytes held by all threads of the process
