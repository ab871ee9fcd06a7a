"""Checks tokenizer.ggml.* once, at load: whoever reads scores, types or a special id later may index with them.

An id at or above the number of tokens is treated as absent, as other readers do: published files carry such ids.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from pantheon._core.files.cursor cimport byte_cursor, cursor_string
from pantheon._core.files.gguf_file cimport GGUF_ARRAY, GGUF_F32, GGUF_I32, GGUF_STRING, GGUF_U32, gguf_kv, gguf_shard
from pantheon._core.files.gguf_shard cimport gguf_shard_find
from pantheon._core.files.gguf_values cimport kv_int, kv_str, path_of, quoted, value_type_name

# Every merge makes a token, and few tokens are made in more than one way: more merges are only there to be worked on.
MERGES_PER_TOKEN = 8

cdef enum:
    TOKEN_BYTE = 6                       # token_type of <0x00> .. <0xFF>
    MOST_TOKENS = 1 << 24
    MOST_WORLD_TOKENS = 1 << 17          # RWKV's vocabulary is one, of 65,530


cpdef int64_t most_tokens(int64_t n_vocab) noexcept:
    """Tokens that a vocabulary for n_vocab logits may have. Some files have more than logits, which are of no use."""
    return min(2 * n_vocab + (1 << 16), <int64_t> MOST_TOKENS)


cdef int refuse_key(const gguf_shard *s, const gguf_kv *kv, str message) except -1:
    raise ValueError(f"{path_of(s.map)}: key {quoted(kv.key, kv.key_len)} {message}")


cdef const gguf_kv *array(const gguf_shard *s, const char *key, int type, int other_type) except? NULL:
    """The array of that element type (or the other), NULL when the key is absent."""
    cdef const gguf_kv *kv = gguf_shard_find(s, key)
    if kv != NULL and (kv.type != GGUF_ARRAY or (kv.elem_type != type and kv.elem_type != other_type)):
        found = kv.elem_type if kv.type == GGUF_ARRAY else kv.type
        refuse_key(s, kv, f"must be an array of {(<bytes> value_type_name(type)).decode()}, not "
                          f"{'an array of ' if kv.type == GGUF_ARRAY else ''}"
                          f"{(<bytes> value_type_name(found)).decode()}")
    return kv


cdef const uint8_t *per_token(const gguf_shard *s, const gguf_kv *kv, int64_t n_tokens) except? NULL:
    if kv == NULL:
        return NULL
    if kv.count != <uint64_t> n_tokens:
        refuse_key(s, kv, f"has {kv.count} elements for {n_tokens} tokens")
    return kv.data


cdef int at_most(const gguf_shard *s, const gguf_kv *kv, int64_t most) except -1:
    """Before anything is made of the array."""
    if kv.count > <uint64_t> most:
        refuse_key(s, kv, f"has {kv.count} elements, more than the {most} that the vocabulary can use")
    return 0


cdef int32_t special(const gguf_shard *s, const char *key, int64_t n_tokens) except -2:
    cdef const gguf_kv *kv = gguf_shard_find(s, key)
    cdef int64_t id = 0
    if kv == NULL:
        return -1
    if kv.type == GGUF_ARRAY:
        refuse_key(s, kv, "must be a single token id")
    kv_int(s.map, kv, 0, &id)
    return <int32_t> id if 0 <= id < n_tokens else -1


cdef bint is_hex(uint8_t c) noexcept nogil:
    return c"0" <= c <= c"9" or c"A" <= c <= c"F" or c"a" <= c <= c"f"


cdef int64_t bad_byte_token(const gguf_shard *s, const ft_vocabulary *v) noexcept nogil:
    """First token of type byte that is not <0xHH>, or -1: its two digits become an index of a table of 256."""
    cdef byte_cursor c
    cdef const uint8_t *text
    cdef uint64_t length = 0
    cdef int32_t type
    cdef int64_t i
    c.base = s.map.data
    c.size = s.map.size
    c.pos = v.tokens - s.map.data
    for i in range(v.n_tokens):
        text = cursor_string(&c, &length)
        if text == NULL:
            return i
        memcpy(&type, v.types + 4 * i, 4)
        if type == TOKEN_BYTE and not (length == 6 and memcmp(text, b"<0x", 3) == 0 and is_hex(text[3])
                                       and is_hex(text[4]) and text[5] == c">"):
            return i
    return -1


cdef int fill(const gguf_shard *s, const gguf_kv *tokens, ft_vocabulary *v) except -1:
    cdef const gguf_kv *kv
    cdef const gguf_kv *model = gguf_shard_find(s, "tokenizer.ggml.model")
    cdef int64_t bad = -1
    cdef str kind = None if model == NULL else kv_str(s.map, model)
    if tokens.count == 0:
        refuse_key(s, tokens, "is empty")
    at_most(s, tokens, MOST_WORLD_TOKENS if kind == "rwkv" else MOST_TOKENS)
    v.n_tokens = tokens.count
    v.tokens = tokens.data
    kv = array(s, "tokenizer.ggml.scores", GGUF_F32, GGUF_I32)
    v.scores = per_token(s, kv, v.n_tokens)
    if kv != NULL:
        v.scores_type = kv.elem_type
    v.types = per_token(s, array(s, "tokenizer.ggml.token_type", GGUF_I32, GGUF_I32), v.n_tokens)
    kv = array(s, "tokenizer.ggml.merges", GGUF_STRING, GGUF_STRING)
    if kv != NULL:
        at_most(s, kv, v.n_tokens * <int64_t> MERGES_PER_TOKEN)
        v.n_merges = kv.count
        v.merges = kv.data
    kv = array(s, "tokenizer.ggml.suppress_tokens", GGUF_I32, GGUF_U32)
    if kv != NULL:
        at_most(s, kv, v.n_tokens)
    v.bos = special(s, "tokenizer.ggml.bos_token_id", v.n_tokens)
    v.eos = special(s, "tokenizer.ggml.eos_token_id", v.n_tokens)
    v.eot = special(s, "tokenizer.ggml.eot_token_id", v.n_tokens)
    v.eom = special(s, "tokenizer.ggml.eom_token_id", v.n_tokens)
    v.unk = special(s, "tokenizer.ggml.unknown_token_id", v.n_tokens)
    v.sep = special(s, "tokenizer.ggml.seperator_token_id", v.n_tokens)      # spelt so in the format
    v.pad = special(s, "tokenizer.ggml.padding_token_id", v.n_tokens)
    v.mask = special(s, "tokenizer.ggml.mask_token_id", v.n_tokens)
    if kind == "llama" and v.types != NULL:
        with nogil:
            bad = bad_byte_token(s, v)
        if bad >= 0:
            refuse_key(s, tokens, f"has at index {bad} a byte token that is not <0x00> .. <0xFF>")
    return 0


cdef int gguf_vocab_new(const gguf_shard *s, ft_vocabulary **out) except -1:
    cdef const gguf_kv *tokens = array(s, "tokenizer.ggml.tokens", GGUF_STRING, GGUF_STRING)
    cdef ft_vocabulary *v
    out[0] = NULL
    if tokens == NULL:
        return 0
    v = <ft_vocabulary *> calloc(1, sizeof(ft_vocabulary))
    if v == NULL:
        raise MemoryError(f"{path_of(s.map)}: no memory for the vocabulary")
    try:
        fill(s, tokens, v)
    except BaseException:
        free(v)
        raise
    out[0] = v
    return 0
