/* The seam between the engine and its hot loops.
 *
 * A level (ref, avx2, ...) is one filled pn_kernels table. ref is plain C and is the definition: every other level gives
 * the same bits for quantised weights, and results of its own, but fixed ones, for float weights. Tables are built from
 * the lowest level up, so a level holds its own function where it has one and the next lower level's elsewhere.
 *
 * No function here allocates, fails, or touches Python. Row pointers into the model file may have any alignment.
 * Arrays made by the engine (activations, caches, workspaces) are 64-byte aligned at their start.
 */
#ifndef PN_KERNELS_H
#define PN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Weight types; the numbers are those of the GGUF file. PN_I2_S is that of forks; PN_T2_ROWS has a number that no file
 * uses: packed ternary of safetensors, where the bit pairs of a byte belong to four rows. */
typedef enum pn_type {
    PN_F32 = 0, PN_F16 = 1, PN_Q4_0 = 2, PN_Q4_1 = 3, PN_Q5_0 = 6, PN_Q5_1 = 7, PN_Q8_0 = 8, PN_Q8_1 = 9,
    PN_Q2_K = 10, PN_Q3_K = 11, PN_Q4_K = 12, PN_Q5_K = 13, PN_Q6_K = 14, PN_Q8_K = 15,
    PN_IQ2_XXS = 16, PN_IQ2_XS = 17, PN_IQ3_XXS = 18, PN_IQ1_S = 19, PN_IQ4_NL = 20, PN_IQ3_S = 21, PN_IQ2_S = 22,
    PN_IQ4_XS = 23, PN_I8 = 24, PN_I16 = 25, PN_I32 = 26, PN_I64 = 27, PN_F64 = 28, PN_IQ1_M = 29, PN_BF16 = 30,
    PN_TQ1_0 = 34, PN_TQ2_0 = 35, PN_I2_S = 36, PN_T2_ROWS = 37, PN_MXFP4 = 39, PN_NVFP4 = 40, PN_Q1_0 = 41, PN_Q2_0 = 42,
    PN_TYPE_COUNT = 43
} pn_type;

/* How a weight type wants its input: as floats, or as int8 codes with one scale per 32, per 256 or per all elements, or as
 * int16 codes with one per 32. With PN_ACT_ROW products are exact integer sums, which the caller multiplies by d[t] and by
 * the scale of the matrix. */
typedef enum pn_act_kind {
    PN_ACT_F32 = 0, PN_ACT_Q32 = 1, PN_ACT_Q256 = 2, PN_ACT_ROW = 3, PN_ACT_WIDE = 4, PN_ACT_KINDS = 5
} pn_act_kind;

/* n_tok input vectors of n elements, prepared once per matrix input and shared by all products that read it. Row t of
 * every array starts at t times its row length. All memory is the caller's. */
typedef struct pn_act {
    int n, n_tok;
    const float *f;  /* (n_tok, n) the input itself */
    int8_t *q;       /* (n_tok, n) codes in [-127, 127] */
    float *d;        /* (n_tok, n/32), (n_tok, n/256) or (n_tok, 1) scale of each block */
    float *s;        /* (n_tok, n/32) d * sum of the block's codes; PN_ACT_Q32 only */
    int32_t *bsum;   /* (n_tok, n/32) or (n_tok, 1) sum of the block's codes; PN_ACT_Q32 and PN_ACT_ROW only */
    int16_t *sum;    /* (n_tok, n/16) sum of every 16 codes; PN_ACT_Q256 only */
    int16_t *wide;   /* (n_tok, n) codes in [-32767, 32767], in place of q; PN_ACT_WIDE only */
} pn_act;

/* One weight type at one level. dot8, dot1 and tile give the same bits for the same row and input. */
typedef struct pn_type_ops {
    const char *name;       /* "Q4_K"; NULL: the type is unknown to the engine */
    int block, block_bytes; /* elements and bytes of a block */
    pn_act_kind act;        /* input of dot8, dot1 and tile */
    const char *level;      /* that the product functions come from */
    /* n elements (a multiple of block) of one row to f32 */
    void (*dequant)(const uint8_t *row, float *out, int64_t n);
    /* out[r * os] = row r . token t of x, for the 8 rows at w + r * stride */
    void (*dot8)(const uint8_t *w, size_t stride, const pn_act *x, int t, float *out, size_t os);
    /* the same for one row: what is left when rows run out */
    void (*dot1)(const uint8_t *row, const pn_act *x, int t, float *out);
    int packed_rows; /* 0; else the rows in one stored row: no dot8, and dot1 writes that many results */
    /* Matrix x matrix, NULL where a level has none. A panel is PN_PANEL rows unpacked once, panel_bytes(n) long and 64-byte
     * aligned; pack_x prepares n_tok tokens from t0 on, pack_bytes(n, n_tok) long; tile writes y[t * ldy + r] for
     * r < PN_PANEL, t < n_tok. Rows past n_rows are unpacked as zeros. */
    size_t (*panel_bytes)(int n);
    void (*unpack)(const uint8_t *w, size_t row_bytes, int n_rows, int n, uint8_t *panel);
    size_t (*pack_bytes)(int n, int n_tok);
    void (*pack_x)(const pn_act *x, int t0, int n_tok, uint8_t *packed);
    void (*tile)(const uint8_t *panel, const uint8_t *packed, int n, int n_tok, float *y, size_t ldy);
    /* A tile of columns [k0, k0 + n) out of n_all, k0 a multiple of 256, and of several panels that follow one another:
     * panels hold those columns only, packed input all of them; where k0 > 0 the sums go on from y. For levels that a
     * cache cannot feed otherwise; NULL in others. */
    void (*tile_part)(const uint8_t *panel, int n_panels, const uint8_t *packed, int n_all, int k0, int n, int n_tok,
                      float *y, size_t ldy);
    /* Most tokens of one tile and of one pack_x; fewer are fine. tile_tok is a multiple of pack_tok: a tile of more tokens
     * reads units of pack_tok that lie pack_bytes(n, pack_tok) apart, rounded up to 64. Types with the same pack_x share
     * packed input. */
    int tile_tok, pack_tok;
} pn_type_ops;

enum { PN_PANEL = 16, PN_TILE_TOK = 96 }; /* rows of a panel; no tile_tok is larger */

/* KV cache types. One cache head is a K area and a V area of n_ctx positions (a multiple of 8), head_dim D wide.
 *   K f16/f32: [pos/8][D][8]. K q8_0/q4_0: per group of 8 positions and per 32 dims: 8 f16 scales, then codes [32][8]
 *   (q4_0: dims d and d+16 of the block share a byte, d in the low nibble).
 *   V f16/f32: [pos][D]. V q8_0/q4_0: GGUF blocks of 32 along D. */
typedef enum pn_kv_kind { PN_KVK_F16 = 0, PN_KVK_F32 = 1, PN_KVK_Q8_0 = 2, PN_KVK_Q4_0 = 3, PN_KVK_COUNT = 4 } pn_kv_kind;

enum { PN_ATTN_TILE = 64 };
enum { PN_DELTA_COLUMNS = 32 };

/* Query rows that read one cache head: the heads of a group times the tokens of a chunk. */
typedef struct pn_attn_rows {
    int n;               /* rows */
    int head_dim;        /* D, a multiple of 8 */
    float scale;         /* multiplies q . k */
    const float *q;      /* row r at q + r * ldq, (D,) */
    size_t ldq;
    const int *first;    /* (n,) lowest position that row r may see */
    const int *last;     /* (n,) highest one, inclusive */
    float *m, *s;        /* (n,) running maximum and sum; -INFINITY and 0 before the first tile */
    float *acc;          /* (n, D) running weighted sum of V; 0 before the first tile */
} pn_attn_rows;

typedef struct pn_kv_ops {
    const char *name;    /* "f16", "f32", "q8_0", "q4_0" */
    /* bytes of n_ctx positions of one head */
    size_t (*k_bytes)(int n_ctx, int head_dim);
    size_t (*v_bytes)(int n_ctx, int head_dim);
    void (*store_k)(uint8_t *k, int pos, int head_dim, const float *x);
    void (*store_v)(uint8_t *v, int pos, int head_dim, const float *x);
    /* Scores positions [tile * 64, tile * 64 + 64) that each row may see, reduces them to the tile's own (max, sum,
     * weighted V), and merges that into the row's running (m, s, acc). Rows that see nothing of the tile stay as they are.
     * Calling it for tiles 0, 1, ... in order is the definition of attention; the bits do not depend on n. */
    void (*attn_tile)(const pn_attn_rows *rows, const uint8_t *k, const uint8_t *v, int tile);
} pn_kv_ops;

enum { PN_RWKV_HEAD = 64 };

/* One head of one token of an RWKV-7 time mix, from the matrix products to the input of the output matrix. Arrays are
 * (64,) f32 unless said otherwise. */
typedef struct pn_rwkv7_step {
    const float *r, *k, *v;     /* receptance, key, value as multiplied */
    const float *w, *a, *g;     /* decay, in-context rate (without their biases) and gate, from their LoRAs */
    const float *mix, *v_first; /* value residual, from its LoRA, and block 0's v; NULL in block 0 */
    const float *w0, *a0, *v0, *k_k, *k_a, *r_k, *ln_w, *ln_b; /* weights of the head; v0 only with mix */
    float *state;               /* (64 keys, 64 values), updated */
    float *k_out, *v_out;       /* key and value as the state took them; NULL: not wanted */
    float *y;
} pn_rwkv7_step;

typedef struct pn_kernels {
    const char *level;
    int token_step; /* ranks split tokens at multiples of this: of every type's pack_tok */
    pn_type_ops type[PN_TYPE_COUNT];
    pn_kv_ops kv[PN_KVK_COUNT];

    /* Fills row t of x (codes, scales, sums) from x->f for one kind of input; n is a multiple of 32, of 256, or any. */
    void (*quantize[PN_ACT_KINDS])(pn_act *x, int t);

    /* y = x * rsqrt(mean(x^2) + eps) * w;   y = (x - mean) * rsqrt(var + eps) * w + b.  x and y may be the same. */
    void (*rms_norm)(const float *x, const float *w, float eps, int n, float *y);
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, int n, float *y);
    void (*add)(float *x, const float *y, int n);               /* x += y */
    void (*scale_add)(float *x, const float *y, float a, int n); /* x += a * y: fma per element */
    void (*silu_mul)(float *gate, const float *up, int n);      /* gate = silu(gate) * up */
    void (*gelu_tanh)(float *x, int n);
    void (*softmax)(float *x, int n);                           /* in place, maximum subtracted */
    /* Rotates n_head heads of head_dim, head h at x + h * head_dim. cs holds n_pair (cos, sin) pairs, already multiplied by
     * the attention factor. norm: pair p = elements (2p, 2p+1); neox: (p, p + n_pair). The rest passes through. */
    void (*rope_norm)(float *x, int n_head, int head_dim, const float *cs, int n_pair);
    void (*rope_neox)(float *x, int n_head, int head_dim, const float *cs, int n_pair);
    /* acc /= s: the end of attention */
    void (*attn_finish)(float *acc, float s, int head_dim);
    /* index of the largest element, lowest index on ties */
    int (*argmax)(const float *x, int n);

    void (*sigmoid_mul)(float *x, const float *gate, int n);    /* x *= sigmoid(gate) */
    /* y = x * (scale / sqrt(sum(x^2) + eps)).  x and y may be the same. */
    void (*l2_norm)(const float *x, float eps, float scale, int n, float *y);
    /* One token of a depthwise causal convolution of n channels: y[c] = silu(sum_j w[c * taps + j] * rows[j][c]); row
     * taps - 1 is the token itself. */
    void (*conv_silu)(const float *w, const float *const *rows, int taps, int n, float *y);
    /* Gates of n heads of a gated delta rule: decay = exp(a * softplus(alpha + dt)) with a <= 0, rate = sigmoid(beta). */
    void (*delta_gates)(const float *alpha, const float *beta, const float *a, const float *dt, int n, float *decay,
                        float *rate);
    /* One token of the gated delta rule of one head, state S (dk, dv):
     * S *= decay;  S += k (rate * (v - S^T k))^T;  o = S^T q. Sums run over the rows of S from 0 on. S is stored in
     * groups of PN_DELTA_COLUMNS columns, the last one of what is left, each with its rows one after the other. */
    void (*delta_step)(float *state, const float *q, const float *k, const float *v, float decay, float rate, int dk,
                       int dv, float *o);
    /* y = a + (b - a) * t;   y = tanh(x);   y = sigmoid(x);   x = max(x, 0)^2. Input and output may be the same. */
    void (*lerp)(const float *a, const float *b, const float *t, int n, float *y);
    void (*tanh)(const float *x, int n, float *y);
    void (*sigmoid)(const float *x, int n, float *y);
    void (*relu_sqr)(float *x, int n);
    void (*rwkv7_head)(const pn_rwkv7_step *step);
    /* sum over j of (v[j] - sum_i state[j][i] * k[i])^2: how badly the state restores one token's values */
    float (*rwkv7_loss)(const float *state, const float *k, const float *v);
    /* int8 with one scale per 32 weights, made at load: f32 scale, 32 codes. Not a type of any file. */
    pn_type_ops group8;
    void (*group8_quantize)(const float *x, int n, uint8_t *row);
} pn_kernels;

/* Levels of this build from lowest to highest; NULL name ends the list. */
typedef struct pn_level {
    const char *name;
    int supported; /* this processor and system can run it */
} pn_level;

const pn_level *pn_kernels_levels(void);
const pn_kernels *pn_kernels_get(const char *level); /* NULL: unknown or unsupported */
const pn_kernels *pn_kernels_best(void);             /* highest supported level */

#endif
