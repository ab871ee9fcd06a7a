# What a run works with, of any architecture: no code.
#
# A run is one pass over the weights, executed by all ranks of the pool together (linear.pxd): of a single token, of a
# chunk of a prompt, or of one token each of several sequences. pn_run is the run, pn_pass is what one rank sees of it,
# pn_work are its buffers, pn_sequence is what one sequence keeps from run to run.
from libc.stdint cimport uint8_t, uint32_t

from pantheon._core.base.carver cimport carver
from pantheon._core.base.pool cimport pn_counter
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.layers.attention cimport pn_attn_step
from pantheon._core.layers.kvcache cimport pn_llama_kv_cache
from pantheon._core.layers.linear cimport pn_input, pn_reads, pn_team
from pantheon._core.layers.moe_weights cimport pn_moe_reads, pn_moe_work
from pantheon._core.types cimport pn_config, pn_kv_type, pn_model, tm_tensor

cdef enum:
    RUN_WINDOW = 512                     # most tokens of any run
    MAX_INPUTS = 16                      # inputs of a stream, by number:
    IN_HEAD = 0                          # of the LM head: the norm of the tokens whose logits are wanted
    IN_EMBD = 1                          # of a layer's parts: the norm of the residual stream
    IN_OWN = 2                           # from here on an architecture has its own
    WORK_WORDS = 64                      # most 8-byte words of an architecture's work struct

# ---- buffers ----

# What norms and matrix inputs work on. Shared for several tokens; for a single one every rank has its own, which saves
# barriers.
cdef struct pn_stream:
    float *x                             # (n_tok, n_embd) residual stream
    float *normed                        # (n_tok, n_embd)
    float *angles                        # (n_tok, n_angles) cos and sin of the rotation
    pn_input *input                      # (n_inputs,)

cdef struct pn_rank:                     # private to one rank
    pn_stream single
    uint8_t *mixer                       # scratch of attention or of what stands in its place
    uint8_t *panel                       # scratch of products
    uint8_t *gated                       # scratch of a gated feed-forward

cdef struct pn_work:                     # buffers of a run; an architecture's own work struct starts with it
    int n_tok                            # most tokens
    int n_out                            # most tokens whose logits are wanted
    int n_ranks
    int n_inputs
    float *delta                         # (n_tok, n_embd) what the next residual addition adds
    pn_moe_work *moe                     # of the layers with experts, else NULL
    pn_llama_kv_cache **caches           # (n_tok,) of the attention step
    int *pos                             # (n_tok,) the same
    pn_counter *counters                 # (n_counters,)
    int n_counters
    pn_stream shared
    pn_rank *ranks                       # (n_ranks,)

cdef struct pn_layout_input:
    pn_reads reads
    bint given                           # its floats are the next two; else each stream has room for them
    float *shared                        # (n_tok, n)
    float *single                        # (1, n)

cdef struct pn_layout:                   # a work struct in the making, see work.pxd
    carver m
    const pn_config *c
    const void *w                        # the architecture's weights
    int n_tok
    int n_out
    int n_ranks
    pn_layout_input input[MAX_INPUTS]
    pn_moe_reads moe
    int n_angles                         # floats of one token
    int n_counters                       # most that a run of several tokens takes before the LM head
    size_t mixer                         # bytes of a rank's scratch, these three
    size_t panel
    size_t gated

# ---- runs ----

cdef struct pn_run:
    pn_model *model
    pn_work *work
    const uint32_t *tokens               # (n_tok,)
    const float *embd_override           # (n_embd,) or NULL: in place of the only token's row
    int n_tok
    int first_out                        # logits are wanted for tokens first_out.. to the last
    bint one_sequence                    # all tokens belong to one; else each to its own
    float *logits                        # (n_tok - first_out, n_vocab)
    bint stop                            # set by rank 0 when the caller wants to stop

cdef struct pn_pass:                     # one rank's view of a run, its own
    pn_run *run
    const pn_config *c
    const pn_kernels *k
    pn_team team
    pn_stream *s                         # what this rank works on
    int n_tok                            # these two as in the run, but once a layer has narrowed it to its last token
    int first_out
    int t0                               # tokens [t0, t1) are this rank's
    int t1
    pn_attn_step attn                    # but for q and out

# ---- sequences ----

cdef struct pn_kept:                     # what a sequence of a model keeps
    int n_ctx                            # positions that fit
    int kv_layers                        # layers with keys and values
    int kv_rows                          # positions that these have room for
    pn_kv_type kv_type                   # may be PN_KV_DEFAULT
    size_t recurrent                     # floats that every token rewrites
    bint arena                           # its single tokens are run in an arena of its own, else in the model's buffers

cdef struct pn_sequence:                 # what pn_state.kv_cache points to
    pn_llama_kv_cache kv                 # first: of a transformer it is all
    int n_ctx
    bint used                            # the recurrent part is not zero
    bint broken                          # a run stopped in the middle of a chunk: layers stand at different positions
    float *recurrent                     # inside `memory`
    size_t recurrent_bytes
    float *logits                        # (n_vocab,) of the last forward, inside `memory` or the arena
    tm_tensor logits_view
    pn_work *single                      # buffers of single tokens, inside the arena; NULL: none yet
    void *memory                         # owned
    size_t nbytes                        # of memory and this struct but for the cache; 0 without memory
