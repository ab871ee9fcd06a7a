/* The vocabulary of a GGUF file as pointers into its mapping: enough to know the special ids without Python, and to
 * check at load what a tokenizer built later will rely on. Nothing in it is aligned; numbers are to be copied out. */
#ifndef PN_FT_TOKENIZER_H
#define PN_FT_TOKENIZER_H

#include <stdint.h>

struct ft_tokenizer {
    int64_t n_tokens;      /* > 0 */
    const uint8_t *tokens; /* n_tokens strings: u64 length, bytes */
    const uint8_t *scores; /* (n_tokens,) f32 or i32; NULL without */
    int scores_type;       /* gguf_value_type of the scores */
    const uint8_t *types;  /* (n_tokens,) i32, TokenType of text/vocab.py; NULL without */
    int64_t n_merges;
    const uint8_t *merges; /* n_merges strings "left right"; NULL without */
    /* token ids in [0, n_tokens), -1 where the file names none */
    int32_t bos, eos, eot, eom, unk, sep, pad, mask;
};
typedef struct ft_tokenizer ft_tokenizer;

#endif
