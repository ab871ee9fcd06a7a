# The structs of memory-aware admission. No code, no extern header: `cimport pantheon` needs only this and types.pxd.
#
# memwatch publishes a pn_mem_state; the ladder turns it into a pn_ladder_plan; an architecture prices a request as a
# pn_cost; admit compares the two; a granted request holds a pn_reservation until it ends.
from libc.stdint cimport uint64_t

from pantheon._core.types cimport PN_MODEL_MAX_DIES, pn_admit_status, pn_kv_type, pn_state

ctypedef enum pn_mem_level:
    PN_MEM_OK = 0
    PN_MEM_WATCH = 1
    PN_MEM_TIGHT = 2
    PN_MEM_CRITICAL = 3

ctypedef enum pn_admit_code:             # of the pure decision, pn_admit_request
    PN_ADMIT_OK = 0
    PN_ADMIT_CAP = 1
    PN_ADMIT_REJECT = 2

cdef enum:
    PN_COST_AREAS = 4

cdef struct pn_mem_state:                # nothing but 64-bit words: the seqlock copies it word by word
    uint64_t seq                         # how many samples and changes came before, from 1 on
    uint64_t stamp_ns                    # CLOCK_MONOTONIC of the sample
    uint64_t host_total                  # bytes, the container's where it has a limit; 0: the system does not say
    uint64_t host_avail                  # bytes
    uint64_t host_rss                    # bytes of this process
    uint64_t host_reserved               # promised to running requests and not yet touched when the sample was taken
    uint64_t level                       # pn_mem_level of the host
    uint64_t n_dies                      # 0 without a GPU driver
    uint64_t die_total[PN_MODEL_MAX_DIES]
    uint64_t die_free[PN_MODEL_MAX_DIES]
    uint64_t die_reserved[PN_MODEL_MAX_DIES]
    uint64_t die_level[PN_MODEL_MAX_DIES]

cdef struct pn_ladder_plan:              # what a level asks for; acting on it is the caller's job
    pn_mem_level level
    uint64_t evict_bytes                 # rung 1: of idle prefix-cache entries, to be OK again
    pn_kv_type kv_type                   # rung 2: of new caches whose type was left open; PN_KV_DEFAULT: as ever
    int prefill_window                   # rung 3: most tokens of one prefill call
    uint64_t unload_bytes                # rung 4: of idle models, to be no longer TIGHT
    bint cap                             # rung 5: max_tokens is what fits
    bint deny                            # rung 6: nothing is left for new work

cdef struct pn_cost_area:                # memory of which there is one group per 8 positions
    uint64_t n                           # areas, each rounded up to 64 bytes
    uint64_t group_bytes                 # of 8 positions

cdef struct pn_cost:                     # the price of one sequence; pn_cost_kv and its like add it up
    uint64_t kv_bytes                    # KV of the tokens that were asked for
    uint64_t state_bytes                 # what is fixed per sequence: arena, recurrent and conv state
    uint64_t scratch_bytes               # work buffers of a pass, shared by the model's sequences
    uint64_t logits_bytes                # of all rows that one call gives
    int n_dies                           # dies that hold a part of the sequence
    uint64_t per_die[PN_MODEL_MAX_DIES]  # bytes on each, of the tokens that were asked for
    uint64_t die_state_bytes[PN_MODEL_MAX_DIES]      # of them: what is fixed,
    uint64_t die_token_bytes[PN_MODEL_MAX_DIES]      # and what a token takes
    pn_kv_type kv_type                   # never PN_KV_DEFAULT, except where there is no KV cache
    int n_ctx                            # positions of the state; 0: made for exactly the tokens that are asked for
    int window                           # tokens of one pass over the weights that scratch is for
    uint64_t page_bytes                  # what touching a byte takes; counts where a state has more positions than used
    int max_ctx                          # most positions of a state; 0: the model's context
    bint whole_prompt                    # the prompt is one pass, however long: it must not be cut
    double row_share                     # part of the positions that the areas have rows for; 0: all of them
    int rows_max                         # most rows; 0: any
    int n_areas
    pn_cost_area areas[PN_COST_AREAS]    # what grows per token: KV
    uint64_t checkpoint_bytes            # of one checkpoint of a recurrent state; 0: going back is truncating
    int n_checkpoints                    # that the request takes
    uint64_t held_bytes                  # of all that, already touched by the state that goes on
    uint64_t scratch_held                # already allocated by the model

cdef struct pn_request:
    int n_prompt                         # tokens to be fed, at least 0
    int n_new                            # most tokens to be generated, at least 0; n_prompt + n_new is at least 1
    int n_ctx                            # positions that the state is to have; 0: as many as asked for
    int window                           # most tokens of one prefill call; 0: as many as the model takes
    pn_kv_type kv_type                   # PN_KV_DEFAULT: left open
    int n_checkpoints                    # checkpoints that it will take, at least 0
    int batch                            # sequences of its forward_batch calls, itself included; 0 or 1: it runs alone
    bint all_logits                      # its prefill calls want the logits of every token
    bint quiet                           # no log line: the caller asks more than once for the same work
    uint64_t reclaimable_bytes           # what the caller would free first: evicted cache entries, unloaded models
    const pn_state *state                # the sequence that goes on, borrowed; NULL: a new one

cdef struct pn_verdict:
    pn_admit_status status
    bint checked                         # False: memwatch is off or knows nothing, and the answer is FIT
    int n_tokens                         # tokens asked for
    int fit_tokens                       # how many of them fit
    uint64_t need_bytes                  # for n_tokens, beyond what is held already
    uint64_t have_bytes                  # what new work may take
    pn_kv_type kv_type                   # of the cache
    bint kv_lowered                      # rung 2 chose it
    int window_asked
    int prefill_window                   # most tokens of one prefill call
    int die                              # the die that decided; -1: the host
    pn_ladder_plan plan
    pn_cost cost                         # the prices behind it

cdef extern from *:
    """
    #ifndef PN_OPAQUE_RESERVATION
    #define PN_OPAQUE_RESERVATION
    typedef struct pn_reservation pn_reservation;    /* body in memwatch.pyx */
    #endif
    """
    ctypedef struct pn_reservation:
        pass
