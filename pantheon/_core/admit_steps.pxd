# pn_admit and its helpers: what a request costs a model, and what the machine lets it have.
from pantheon._core.types cimport (
    pn_admit_status,
    pn_cost,
    pn_forward_fn,
    pn_kv_type,
    pn_mem_state,
    pn_model,
    pn_request,
    pn_reservation,
    pn_verdict,
)

# Of the C API: engine.pxd explains them.
cdef pn_admit_status pn_admit(pn_model *model, int n_tokens, int *fit_tokens_out) noexcept nogil
cdef pn_admit_status pn_admit_ask(pn_model *model, const pn_request *request, pn_verdict *v) noexcept nogil
cdef pn_admit_status pn_admit_reserve(pn_model *model, const pn_request *request, pn_verdict *v,
                                      pn_reservation **out) noexcept nogil
cdef void pn_admit_progress(pn_reservation *reservation, const pn_verdict *v, int pos) noexcept nogil
cdef void pn_admit_release(pn_reservation *reservation) noexcept nogil
cdef pn_kv_type pn_admit_kv_type(const pn_model *model) noexcept nogil
cdef bint pn_admit_gpu_resident(const pn_model *model) noexcept nogil
cdef int pn_admit_max_window(const pn_model *model) noexcept nogil
cdef int pn_admit_worst_die(const pn_mem_state *st) noexcept nogil
cdef int pn_cost_of(const pn_model *model, int n_prompt, int n_new, int window, pn_kv_type kv_type,
                    pn_cost *out) noexcept nogil

# nogil. pn_cost_of for a state of n_ctx positions (0: the prices alone) and for prefill calls of window tokens, with
# logits of all of them or of the last, and forward_batch calls of `batch` sequences. The numbers are valid.
cdef void admit_price(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, int batch, bint all_logits,
                      pn_cost *cost) noexcept nogil
# nogil. What the GPU path says when it comes up: models with this forward run from GPU memory. NULL: none does.
cdef void pn_admit_set_cuda_forward(pn_forward_fn forward) noexcept nogil
