"""Logit bias and the repetition penalties. They change a few logits, and record each one before they do."""
from libc.math cimport INFINITY
from libc.stdint cimport uint32_t

from pantheon._core.base.report cimport pn_set_error
from pantheon._core.sampling.scratch cimport pn_scratch, pn_slot
from pantheon._core.sampling.window cimport pn_touch, pn_window_build
from pantheon._core.types cimport pn_sampling_params


cdef int pn_apply_bias(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params) noexcept nogil:
    cdef int i
    cdef uint32_t id
    cdef float bias
    for i in range(params.n_bias):
        id = params.bias[i].token
        bias = params.bias[i].bias
        if id >= <uint32_t> n_vocab:
            pn_set_error(b"logit_bias: token %u is outside the vocabulary", id)
            return -1
        if bias != bias:
            pn_set_error(b"logit_bias: the bias of token %u is not a number", id)
            return -1
        pn_touch(s, logits, id)
        if logits[id] == -INFINITY or logits[id] != logits[id]:
            continue                     # a ban stays one whatever is added; a NaN is reported by the scan
        logits[id] = -INFINITY if bias == -INFINITY else logits[id] + bias
    return 0


cdef void pn_apply_penalties(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params,
                             const uint32_t *recent, int n_recent) noexcept nogil:
    cdef int n = params.penalty_last_n if params.penalty_last_n < n_recent else n_recent
    cdef pn_slot *slot
    cdef float x
    cdef int i
    if n <= 0 or (params.repeat_penalty == 1 and params.frequency_penalty == 0 and params.presence_penalty == 0):
        return
    pn_window_build(s, recent, n_recent, n)
    for i in range(s.n_slots):
        slot = &s.slots[i]
        if slot.token >= <uint32_t> n_vocab:
            continue                     # a placeholder, of an image for instance, has no logit
        pn_touch(s, logits, slot.token)
        x = logits[slot.token]
        if x == -INFINITY:
            continue
        x = x * params.repeat_penalty if x <= 0 else x / params.repeat_penalty
        logits[slot.token] = x - slot.count * params.frequency_penalty - params.presence_penalty


cdef void pn_undo_penalties(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params) noexcept nogil:
    cdef int i
    for i in range(s.n_touched - 1, -1, -1):
        logits[s.touched[i].id] = s.touched[i].before
    s.n_touched = 0
    for i in range(params.n_bias):
        if params.bias[i].bias == -INFINITY:
            logits[params.bias[i].token] = -INFINITY
