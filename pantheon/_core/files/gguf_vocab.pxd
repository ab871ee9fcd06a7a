# The vocabulary view of a GGUF file: body of the opaque ft_tokenizer.
from libc.stdint cimport int32_t, int64_t, uint8_t

from pantheon._core.files.gguf_file cimport gguf_shard

cdef extern from "files/ft_tokenizer.h":
    ctypedef struct ft_vocabulary "ft_tokenizer":    # fields are described in the header
        int64_t n_tokens
        const uint8_t *tokens
        const uint8_t *scores
        int scores_type
        const uint8_t *types
        int64_t n_merges
        const uint8_t *merges
        int32_t bos, eos, eot, eom, unk, sep, pad, mask

# GIL; *out is set to the checked view, malloc'ed and the caller's, or to NULL when the file has no tokens. It borrows
# from the mapping of s. Raises ValueError naming file and key.
cdef int gguf_vocab_new(const gguf_shard *s, ft_vocabulary **out) except -1
# GIL or not; how many tokens are of use, or at least usual, for that many logits
cpdef int64_t most_tokens(int64_t n_vocab) noexcept
