"""pn_admit and its helpers (see admit_steps.pxd for the contract): what a request costs a model, and whether it fits.

The steps of pn_admit: answer FIT unchecked where memwatch is not running; read its record; find the KV type, whether
the model runs from GPU memory, the worst die and the window; clamp the window by the ladder; ask pn_admit_request; map
its answer to FIT, CAPPED or DENIED. pn_admit_reserve decides under memwatch's lock and holds what was granted.
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport getenv, strtol
from libc.string cimport memset

from pantheon._core.memory.admit cimport pn_admit_request
from pantheon._core.memory.cost cimport pn_cost_kv, pn_cost_need
from pantheon._core.memory.ladder cimport pn_ladder_have, pn_ladder_plan_from_state
from pantheon._core.memory.memwatch cimport (
    pn_memwatch_decide_begin,
    pn_memwatch_decide_end,
    pn_memwatch_fresh,
    pn_memwatch_page_bytes,
    pn_memwatch_promise,
    pn_memwatch_running,
    pn_reservation_release,
    pn_reservation_touched,
)
from pantheon._core.memory.state cimport (
    PN_ADMIT_OK,
    PN_MEM_CRITICAL,
    pn_admit_code,
    pn_cost,
    pn_ladder_plan,
    pn_mem_state,
    pn_request,
    pn_reservation,
    pn_verdict,
)
from pantheon._core.registry cimport ops_of, ops_of_state
from pantheon._core.report cimport PN_LOG_WARNING, pn_log, pn_set_error, pn_set_no_memory
from pantheon._core.types cimport (
    PN_ADMIT_CAPPED,
    PN_ADMIT_DENIED,
    PN_ADMIT_FIT,
    PN_KV_DEFAULT,
    PN_KV_F16,
    PN_KV_Q4_0,
    PN_KV_Q8_0,
    PN_MODEL_MAX_DIES,
    PN_QWEN35MOE_MAX_SEQ_CAP,
    pn_admit_status,
    pn_forward_fn,
    pn_kv_type,
    pn_model,
)

cdef enum:
    DEFAULT_MAX_SEQ = 16384              # QWEN35_MAX_SEQ when it is not set

cdef pn_forward_fn cuda_forward = NULL


cdef void pn_admit_set_cuda_forward(pn_forward_fn forward) noexcept nogil:
    global cuda_forward
    cuda_forward = forward


cdef bint pn_admit_gpu_resident(const pn_model *model) noexcept nogil:
    return cuda_forward != NULL and model.forward == cuda_forward


cdef int pn_admit_max_window(const pn_model *model) noexcept nogil:
    cdef const char *text = getenv("QWEN35_MAX_SEQ")
    cdef char *end = NULL
    cdef long value = strtol(text, &end, 10) if text != NULL else 0
    if value < 1 or end[0] != 0:
        value = DEFAULT_MAX_SEQ
    return <int>min(value, <long>PN_QWEN35MOE_MAX_SEQ_CAP, <long>model.config.n_ctx)


cdef int pn_admit_worst_die(const pn_mem_state *st) noexcept nogil:
    cdef int worst = -1, i
    for i in range(<int>st.n_dies):
        if worst < 0 or st.die_free[i] < st.die_free[worst]:
            worst = i
    return worst


cdef void pn_model_cost(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, pn_cost *cost) noexcept nogil:
    cdef int most = pn_admit_max_window(model)
    cost_of_pass(model, n_ctx, kv_type, min(window, most) if window > 0 else most, cost)


cdef void cost_of_pass(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, pn_cost *cost) noexcept nogil:
    memset(cost, 0, sizeof(pn_cost))
    cost.n_ctx = (n_ctx + 7) // 8 * 8
    if ops_of(model).cost == NULL:       # its price is not known: requests are taken unchecked
        cost.kv_type = kv_type
        cost.window = window
        return
    ops_of(model).cost(model, kv_type, window, cost)
    cost.page_bytes = pn_memwatch_page_bytes()
    cost.scratch_held = ops_of(model).work_bytes(model)


cdef pn_kv_type open_kv_type(const pn_model *model, const pn_ladder_plan *plan) noexcept nogil:
    """Rung 2 takes f16 down to q8_0, where the model can have that; a smaller default stays."""
    cdef pn_cost cost
    pn_model_cost(model, 0, PN_KV_DEFAULT, 1, &cost)
    if plan.kv_type != PN_KV_Q8_0 or cost.kv_type != PN_KV_F16:
        return PN_KV_DEFAULT
    pn_model_cost(model, 0, PN_KV_Q8_0, 1, &cost)
    return PN_KV_Q8_0 if cost.kv_type == PN_KV_Q8_0 else PN_KV_DEFAULT


cdef pn_kv_type pn_admit_kv_type(const pn_model *model) noexcept nogil:
    cdef pn_mem_state st
    cdef pn_ladder_plan plan
    if not pn_memwatch_running():
        return PN_KV_DEFAULT
    pn_memwatch_fresh(&st)
    pn_ladder_plan_from_state(&st, &plan)
    return open_kv_type(model, &plan)


cdef int price(const pn_model *model, const pn_request *q, pn_verdict *v) noexcept nogil:
    """Fills v.cost and the KV type; returns the positions that the request's state still has."""
    cdef pn_kv_type kv_type = q.kv_type
    cdef int n_ctx = q.n_ctx, pos = 0, n_fed = q.n_prompt if q.n_prompt > 0 else q.n_new
    if q.state != NULL:
        kv_type = ops_of_state(q.state).state_kv_type(q.state)
        n_ctx = ops_of_state(q.state).state_n_ctx(q.state)
        pos = q.state.pos
    elif kv_type == PN_KV_DEFAULT:
        kv_type = open_kv_type(model, &v.plan)
        v.kv_lowered = kv_type != PN_KV_DEFAULT
    pn_model_cost(model, n_ctx, kv_type, min(v.prefill_window, max(n_fed, 1)), &v.cost)
    if v.cost.whole_prompt:              # nothing to clamp: the prompt is priced as it is
        v.window_asked = v.prefill_window = max(v.window_asked, n_fed)
        cost_of_pass(model, n_ctx, kv_type, max(n_fed, 1), &v.cost)
    v.kv_type = v.cost.kv_type
    v.cost.n_checkpoints = q.n_checkpoints
    if pos > 0:
        v.cost.held_bytes = pn_cost_kv(&v.cost, pos) + v.cost.state_bytes
    if n_ctx == 0:
        n_ctx = model.config.n_ctx
    return (min(n_ctx, v.cost.max_ctx) if v.cost.max_ctx > 0 else n_ctx) - pos


cdef void decide(const pn_model *model, const pn_request *q, const pn_mem_state *st, pn_verdict *v) noexcept nogil:
    """Steps 3 to 6 of pn_admit. st NULL: nothing is known, and everything fits."""
    cdef pn_mem_state seen
    cdef pn_admit_code code
    cdef int pos = q.state.pos if q.state != NULL else 0
    cdef int asked, fit = 0
    memset(&seen, 0, sizeof(seen))
    if st != NULL:
        seen = st[0]
    v.checked = seen.host_total > 0 and ops_of(model).cost != NULL
    v.die = pn_admit_worst_die(&seen) if pn_admit_gpu_resident(model) else -1
    if v.die >= 0:
        seen.level = max(seen.level, seen.die_level[v.die])
    pn_ladder_plan_from_state(&seen, &v.plan)
    seen.host_avail += q.reclaimable_bytes
    v.window_asked = min(q.window, pn_admit_max_window(model)) if q.window > 0 else pn_admit_max_window(model)
    v.prefill_window = min(v.window_asked, v.plan.prefill_window)
    v.n_tokens = q.n_prompt + q.n_new
    asked = min(v.n_tokens, price(model, q, v))
    v.need_bytes = pn_cost_need(&v.cost, pos + asked)
    v.have_bytes = pn_ladder_have(seen.host_avail, seen.host_reserved, seen.host_total)
    v.fit_tokens = asked
    if v.checked:
        code = pn_admit_request(&seen, &v.cost, pos + asked, v.prefill_window, &fit)
        v.fit_tokens = asked if code == PN_ADMIT_OK else max(0, fit - pos)
    if v.fit_tokens == v.n_tokens:
        v.status = PN_ADMIT_FIT
    elif v.fit_tokens < max(1, q.n_prompt):          # the first new token needs no position of its own
        v.status = PN_ADMIT_DENIED
    else:
        v.status = PN_ADMIT_CAPPED


cdef int check_request(const pn_model *model, const pn_request *q) noexcept nogil:
    if q.n_prompt < 0 or q.n_new < 0 or q.n_prompt > 2147483647 - q.n_new or q.n_prompt + q.n_new < 1:
        pn_set_error(b"%lld prompt tokens and %lld new ones: not in 0..2147483647, one of them at least 1", q.n_prompt,
                     q.n_new)
        return -1
    if not 0 <= q.n_ctx <= model.config.n_ctx:
        pn_set_error(b"n_ctx is %lld, not in 0..%lld", q.n_ctx, model.config.n_ctx)
        return -1
    if q.window < 0 or q.n_checkpoints < 0:
        pn_set_error(b"a window of %lld tokens and %lld checkpoints: not in 0..2147483647", q.window, q.n_checkpoints)
        return -1
    if not <int>PN_KV_DEFAULT <= <int>q.kv_type <= <int>PN_KV_Q4_0:
        pn_set_error(b"kv_type is %lld, not in 0..%lld", <int>q.kv_type, <int>PN_KV_Q4_0)
        return -1
    return 0


cdef void log_clamp(const pn_verdict *v) noexcept nogil:
    if v.prefill_window < v.window_asked:
        pn_log(PN_LOG_WARNING, b"[ladder] CRITICAL -> prefill window clamped %lld -> %lld"
               if v.plan.level == PN_MEM_CRITICAL else b"[ladder] TIGHT -> prefill window clamped %lld -> %lld",
               v.window_asked, v.prefill_window)


cdef pn_admit_status admit(pn_model *model, const pn_request *q, pn_verdict *v, pn_reservation **out) noexcept nogil:
    """out NULL: only asks."""
    cdef pn_mem_state st
    cdef uint64_t dies[PN_MODEL_MAX_DIES]
    cdef int i, fit
    cdef bint granted
    memset(v, 0, sizeof(pn_verdict))
    if out != NULL:
        out[0] = NULL
    if check_request(model, q) != 0:
        v.status = PN_ADMIT_DENIED
        return PN_ADMIT_DENIED
    if not pn_memwatch_running():
        decide(model, q, NULL, v)
        return v.status
    if out == NULL:
        pn_memwatch_fresh(&st)
        decide(model, q, &st, v)
    else:
        pn_memwatch_decide_begin(&st)
        decide(model, q, &st, v)
        granted = v.checked and v.status != PN_ADMIT_DENIED
        if granted:
            fit = v.fit_tokens + (q.state.pos if q.state != NULL else 0)
            for i in range(v.cost.n_dies):
                dies[i] = v.cost.die_state_bytes[i] + v.cost.die_token_bytes[i] * <uint64_t>fit
            out[0] = pn_memwatch_promise(pn_cost_need(&v.cost, fit), dies, v.cost.n_dies)
            if out[0] == NULL:
                v.status = PN_ADMIT_DENIED
        pn_memwatch_decide_end()
        if granted and out[0] == NULL:
            pn_set_no_memory(b"no memory for a reservation", 0, 0)
    if not q.quiet:
        log_clamp(v)
    return v.status


cdef pn_admit_status pn_admit(pn_model *model, int n_tokens, int *fit_tokens_out) noexcept nogil:
    cdef pn_request q
    cdef pn_verdict v
    memset(&q, 0, sizeof(q))
    q.n_new = n_tokens
    if not pn_memwatch_running():
        if fit_tokens_out != NULL:
            fit_tokens_out[0] = n_tokens
        return PN_ADMIT_FIT
    admit(model, &q, &v, NULL)
    if fit_tokens_out != NULL:
        fit_tokens_out[0] = v.fit_tokens
    return v.status


cdef pn_admit_status pn_admit_ask(pn_model *model, const pn_request *request, pn_verdict *v) noexcept nogil:
    return admit(model, request, v, NULL)


cdef pn_admit_status pn_admit_reserve(pn_model *model, const pn_request *request, pn_verdict *v,
                                      pn_reservation **out) noexcept nogil:
    return admit(model, request, v, out)


cdef void pn_admit_release(pn_reservation *reservation) noexcept nogil:
    pn_reservation_release(reservation)


cdef void pn_admit_progress(pn_reservation *reservation, const pn_verdict *v, int pos) noexcept nogil:
    pn_reservation_touched(reservation, pn_cost_need(&v.cost, pos))
