# The kernel table: kernels.h for Cython, and the level in force. The header says what each function does.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

cdef extern from "kernels.h" nogil:
    ctypedef enum pn_type:
        PN_F32, PN_F16, PN_Q4_0, PN_Q4_1, PN_Q5_0, PN_Q5_1, PN_Q8_0, PN_Q8_1
        PN_Q2_K, PN_Q3_K, PN_Q4_K, PN_Q5_K, PN_Q6_K, PN_Q8_K
        PN_IQ2_XXS, PN_IQ2_XS, PN_IQ3_XXS, PN_IQ1_S, PN_IQ4_NL, PN_IQ3_S, PN_IQ2_S, PN_IQ4_XS
        PN_I8, PN_I16, PN_I32, PN_I64, PN_F64, PN_IQ1_M, PN_BF16
        PN_TQ1_0, PN_TQ2_0, PN_I2_S, PN_T2_ROWS, PN_MXFP4, PN_NVFP4, PN_Q1_0, PN_Q2_0
        PN_TYPE_COUNT

    ctypedef enum pn_act_kind:
        PN_ACT_F32, PN_ACT_Q32, PN_ACT_Q256, PN_ACT_ROW, PN_ACT_WIDE, PN_ACT_KINDS

    ctypedef enum pn_kv_kind:
        PN_KVK_F16, PN_KVK_F32, PN_KVK_Q8_0, PN_KVK_Q4_0, PN_KVK_COUNT

    enum:
        PN_PANEL
        PN_TILE_TOK
        PN_ATTN_TILE
        PN_DELTA_COLUMNS
        PN_RWKV_HEAD

    ctypedef struct pn_act:
        int n
        int n_tok
        const float *f
        int8_t *q
        float *d
        float *s
        int32_t *bsum
        int16_t *sum
        int16_t *wide

    ctypedef struct pn_type_ops:
        const char *name
        int block
        int block_bytes
        pn_act_kind act
        const char *level
        void (*dequant)(const uint8_t *row, float *out, int64_t n) noexcept nogil
        void (*dot8)(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os) noexcept nogil
        void (*dot1)(const uint8_t *row, const pn_act *x, int t, float *out) noexcept nogil
        int packed_rows
        size_t (*panel_bytes)(int n) noexcept nogil
        void (*unpack)(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel) noexcept nogil
        size_t (*pack_bytes)(int n, int n_tok) noexcept nogil
        void (*pack_x)(const pn_act *x, int t0, int n_tok, uint8_t *packed) noexcept nogil
        void (*tile)(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy) noexcept nogil
        void (*tile_part)(const uint8_t *panel, int n_panels, const uint8_t *packed, int n_all, int k0, int n,
                          int n_tok, float *y, size_t ldy) noexcept nogil
        int tile_tok
        int pack_tok

    ctypedef struct pn_attn_rows:
        int n
        int head_dim
        float scale
        const float *q
        size_t ldq
        const int *first
        const int *last
        float *m
        float *s
        float *acc

    ctypedef struct pn_kv_ops:
        const char *name
        size_t (*k_bytes)(int n_ctx, int head_dim) noexcept nogil
        size_t (*v_bytes)(int n_ctx, int head_dim) noexcept nogil
        void (*store_k)(uint8_t *k, int pos, int head_dim, const float *x) noexcept nogil
        void (*store_v)(uint8_t *v, int pos, int head_dim, const float *x) noexcept nogil
        void (*attn_tile)(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile) noexcept nogil

    ctypedef struct pn_rwkv7_step:
        const float *r
        const float *k
        const float *v
        const float *w
        const float *a
        const float *g
        const float *mix
        const float *v_first
        const float *w0
        const float *a0
        const float *v0
        const float *k_k
        const float *k_a
        const float *r_k
        const float *ln_w
        const float *ln_b
        float *state
        float *k_out
        float *v_out
        float *y

    ctypedef void (*pn_quantize_fn)(pn_act *x, int t) noexcept nogil

    ctypedef struct pn_kernels:
        const char *level
        int token_step
        pn_type_ops type[PN_TYPE_COUNT]
        pn_kv_ops kv[PN_KVK_COUNT]
        pn_quantize_fn quantize[PN_ACT_KINDS]
        void (*rms_norm)(const float *x, const float *w, float eps, int n, float *y) noexcept nogil
        void (*layer_norm)(const float *x, const float *w, const float *b, float eps, int n, float *y) noexcept nogil
        void (*add)(float *x, const float *y, int n) noexcept nogil
        void (*scale_add)(float *x, const float *y, float a, int n) noexcept nogil
        void (*silu_mul)(float *gate, const float *up, int n) noexcept nogil
        void (*gelu_tanh)(float *x, int n) noexcept nogil
        void (*softmax)(float *x, int n) noexcept nogil
        void (*rope_norm)(float *x, int n_head, int head_dim, const float *cs, int n_pair) noexcept nogil
        void (*rope_neox)(float *x, int n_head, int head_dim, const float *cs, int n_pair) noexcept nogil
        void (*attn_finish)(float *acc, float s, int head_dim) noexcept nogil
        int (*argmax)(const float *x, int n) noexcept nogil
        void (*sigmoid_mul)(float *x, const float *gate, int n) noexcept nogil
        void (*l2_norm)(const float *x, float eps, float scale, int n, float *y) noexcept nogil
        void (*conv_silu)(const float *w, const float *const *rows, int taps, int n, float *y) noexcept nogil
        void (*delta_gates)(const float *alpha, const float *beta, const float *a, const float *dt, int n, float *decay,
                            float *rate) noexcept nogil
        void (*delta_step)(float *state, const float *q, const float *k, const float *v, float decay, float rate,
                           int dk, int dv, float *o) noexcept nogil
        void (*lerp)(const float *a, const float *b, const float *t, int n, float *y) noexcept nogil
        void (*tanh)(const float *x, int n, float *y) noexcept nogil
        void (*sigmoid)(const float *x, int n, float *y) noexcept nogil
        void (*relu_sqr)(float *x, int n) noexcept nogil
        void (*rwkv7_head)(const pn_rwkv7_step *step) noexcept nogil
        float (*rwkv7_loss)(const float *state, const float *k, const float *v) noexcept nogil
        pn_type_ops group8
        void (*group8_quantize)(const float *x, int n, uint8_t *row) noexcept nogil

# nogil: the table in force, the highest level that this machine runs or the one that PANTHEON_CPU named. Never NULL.
cdef const pn_kernels *pn_kernels_active() noexcept nogil

# GIL: 0, or ValueError when PANTHEON_CPU names a level that this machine cannot run. Whoever loads a model asks first.
cdef int pn_kernels_check() except -1

# GIL: the table of one level, for tests that compare levels. ValueError: this build or machine does not have it.
cdef const pn_kernels *pn_kernels_level(str level) except NULL
