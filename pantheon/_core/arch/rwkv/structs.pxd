# Weights, buffers, states and runs of RWKV-7 and RWKV-X: no code.
from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.structs cimport IN_OWN, pn_run, pn_sequence, pn_stream, pn_work
from pantheon._core.layers.attention cimport pn_attn_step
from pantheon._core.layers.kvcache cimport pn_llama_kv_cache
from pantheon._core.layers.linear cimport pn_group
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned
from pantheon._core.types cimport pn_config, pn_state

cdef enum:
    RX_WINDOW = 256                      # most tokens that a block works on at once
    RX_COUNTERS = 16                     # most shared work lists of one block
    RX_MIXES = 6                         # token-shift mixes of a time mix, in this order:
    RX_R = 0                             # receptance
    RX_W = 1                             # decay
    RX_K = 2                             # key
    RX_V = 3                             # value
    RX_A = 4                             # in-context rate
    RX_G = 5                             # gate
    RX_LORAS = 4                         # LoRA pairs, in this order:
    RX_LORA_W = 0
    RX_LORA_A = 1
    RX_LORA_G = 2
    RX_LORA_V = 3                        # value residual, not in block 0
    IN_MIX = IN_OWN                      # inputs beside the frame's: the mixes; the first serves all other parts too
    IN_LORA = IN_MIX + RX_MIXES          # of the second matrix of each LoRA, after the activation
    IN_HEADS = IN_LORA + RX_LORAS        # of the output matrices
    IN_FF = IN_HEADS + 1                 # of ffn.value

# ---- weights; vectors are (n_embd,) f32 unless said otherwise, borrowed from the mapping or `owned` ----

cdef struct pn_rwkv_ffn:                 # channel mix
    const float *ln_w
    const float *ln_b
    const float *x_k
    pn_group key                         # (n_ff, n_embd)
    pn_group value                       # (n_embd, n_ff)

cdef struct pn_rwkv7_block:
    const float *ln_w
    const float *ln_b
    const float *mix[RX_MIXES]
    pn_group down[RX_MIXES]              # what reads each mix: receptance; w1; key; value and v1; a1; g1
    pn_group up[RX_LORAS]                # w2, a2, g2, v2 (n_embd, n_lora); n = 0: there is none
    const float *w0
    const float *a0
    const float *v0                      # NULL in block 0
    const float *k_k
    const float *k_a
    const float *r_k
    const float *lnx_w
    const float *lnx_b
    pn_group out                         # (n_embd, n_embd)
    pn_rwkv_ffn ffn

cdef struct pn_rwkvx_attn:
    const float *ln_w
    const float *ln_b
    pn_group qkv                         # receptance, key, value (n_embd, n_embd)
    pn_group q                           # receptance alone, for tokens that are not remembered
    pn_group out
    pn_rwkv_ffn ffn

cdef struct rx_work:                     # buffers of one window
    pn_work base                         # its shared residual stream is a batch's
    float *r                             # (n_tok, n_embd), as are k, v, up, y; r is q in an attention block
    float *k
    float *v
    float *lora[RX_LORAS]                # (n_tok, n_lora) before the activation
    float *up[RX_LORAS]
    float *y                             # result of the heads
    float *ff                            # (n_tok, n_ff)
    float *v_first                       # (n_tok, n_embd) of block 0; a single token's or a batch's

cdef struct pn_rwkvx_model:
    pn_arch_weights base
    pn_rwkv7_block *blocks               # (n_blocks,) those that are run
    int n_blocks
    pn_rwkvx_attn *attn                  # (n_attn,)
    int n_attn                           # 0: plain RWKV-7
    int interval                         # RWKV blocks before each attention block
    int n_lora[RX_LORAS]                 # ranks of the LoRAs; 0: there is none
    pn_matrix embd                       # (n_vocab, n_embd)
    const float *ln0_w                   # norm of an embedding row
    const float *ln0_b
    const float *ln_out_w
    const float *ln_out_b
    pn_group head                        # (n_vocab, n_embd)
    bint full                            # attend to every token so far, instead of to the selected ones
    int keep_tokens                      # tokens that a prompt leaves in memory; 0: keep_ratio holds
    double keep_ratio                    # of the prompt's tokens, in (0, 1]
    char *vocab_path                     # World vocabulary, owned; NULL: not given
    pn_owned owned

# ---- sequence ----

# Its recurrent part is the last input of every token shift (2 n_blocks + n_attn, n_embd): time mix and channel mix of
# each block, then channel mix of the attention blocks; then the heads' states (n_blocks, n_head, 64 keys, 64 values).
# Layer i of its KV cache is attention block i.
cdef struct rx_state:
    pn_sequence base
    const pn_rwkvx_model *w              # borrowed
    int kept                             # memory mode: remembered tokens
    float *wkv                           # the heads' states

# ---- one run ----

cdef struct rx_candidate:
    float loss                           # how badly the state restores the token's values
    int t

cdef struct rx_prompt:                   # what a prompt needs as a whole in memory mode
    int keep                             # tokens that stay
    float *k                             # (n_tok, n_embd) key of the last RWKV-7 block, as its state took it
    float *v                             # (n_tok, n_embd) the value
    rx_candidate *order                  # (n_tok,) scratch of the selection
    int *slot                            # (n_tok,) row in memory, -1 for a token that is forgotten
    pn_llama_kv_cache kv                 # keys and values of all tokens, of one attention block at a time

cdef struct rx_job:
    pn_run run
    const pn_config *c
    pn_rwkvx_model *w
    rx_work *work
    int n_tok                            # of the run
    bint shared                          # ranks split tokens and use the shared stream
    pn_state **states                    # one_sequence: the state; else that of each token
    float *x                             # (n_tok, n_embd) residual stream of a prompt; NULL: the stream's own
    float *v_first                       # (n_tok, n_embd)
    rx_prompt *prompt                    # NULL: no selection
    bint remember                        # attention blocks compute k and v
    pn_attn_step attn                    # of the window under way

cdef struct rx_view:                     # one rank's view of a window
    pn_stream *s
    float *x                             # (n_tok, n_embd)
    float *v_first                       # (n_tok, n_embd)
    int w0                               # first token of the window
    int n_tok                            # of the window
    int t0                               # this rank's tokens for everything but products and heads, from w0 on
    int t1
