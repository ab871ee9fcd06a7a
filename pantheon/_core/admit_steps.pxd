# pn_admit and its helpers: what a request costs a model, and what the machine lets it have. engine.pxd has them all.
from pantheon._core.memory.state cimport pn_cost, pn_mem_state, pn_request, pn_reservation, pn_verdict
from pantheon._core.types cimport pn_admit_status, pn_forward_fn, pn_kv_type, pn_model

# nogil. Whether n_tokens fit into memory, before any work on them: FIT, CAPPED with how many fit in *fit_tokens_out
# (which may be NULL), or DENIED. FIT, unchecked, while memwatch is not running. Only asks: nothing is held. DENIED and
# pn_last_error() without a model and for fewer than one token.
cdef pn_admit_status pn_admit(pn_model *model, int n_tokens, int *fit_tokens_out) noexcept nogil
# nogil. The same for a request in full; v has the numbers and what the ladder asks for. DENIED and pn_last_error() for
# numbers that no request can have, contexts beyond the model's among them.
cdef pn_admit_status pn_admit_ask(pn_model *model, const pn_request *request, pn_verdict *v) noexcept nogil
# nogil. Asks and holds: with FIT and CAPPED *out is a reservation of what v.fit_tokens need, for the caller to release
# when the request has ended and its memory is freed. *out is NULL with DENIED, and with FIT when nothing was checked.
cdef pn_admit_status pn_admit_reserve(pn_model *model, const pn_request *request, pn_verdict *v,
                                      pn_reservation **out) noexcept nogil
# nogil. NULL is allowed.
cdef void pn_admit_release(pn_reservation *reservation) noexcept nogil
# nogil. The sequence holds pos tokens by now: what they touched is no longer promised but used. v: of the reserve.
# NULL, and a reservation that was released, are allowed.
cdef void pn_admit_progress(pn_reservation *reservation, const pn_verdict *v, int pos) noexcept nogil
# nogil. The price of one sequence of n_prompt + n_new tokens in a state that is made for just as many, fed by prefill
# calls of window tokens (0: as many as the model takes). 0, or -1 with pn_last_error().
cdef int pn_cost_of(const pn_model *model, int n_prompt, int n_new, int window, pn_kv_type kv_type,
                    pn_cost *out) noexcept nogil
# nogil. The same of a state of n_ctx positions (0: the prices alone) and of prefill calls of window tokens, with logits
# of all of them or of the last, and forward_batch calls of `batch` sequences. The numbers are valid.
cdef void admit_price(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, int batch, bint all_logits,
                      pn_cost *cost) noexcept nogil
# nogil. KV type for a new state whose type was left open: what the ladder asks for now, else PN_KV_DEFAULT. This one
# and the next take no model for an error: PN_KV_DEFAULT, false or -1, and pn_last_error().
cdef pn_kv_type pn_admit_kv_type(const pn_model *model) noexcept nogil
# nogil. The helpers of pn_admit: does the model run from GPU memory; most tokens of a prefill call (QWEN35_MAX_SEQ, the
# context); the die with the least free memory, -1 without one.
cdef bint pn_admit_gpu_resident(const pn_model *model) noexcept nogil
# nogil. What the GPU path says when it comes up: models with this forward run from GPU memory. NULL: none does.
cdef void pn_admit_set_cuda_forward(pn_forward_fn forward) noexcept nogil
cdef int pn_admit_max_window(const pn_model *model) noexcept nogil
cdef int pn_admit_worst_die(const pn_mem_state *st) noexcept nogil
