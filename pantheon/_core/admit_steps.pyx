"""pn_admit and its helpers (see admit_steps.pxd for the contract): what a request costs a model, and whether it fits.

The steps of pn_admit: answer FIT unchecked where memwatch is not running; read its record; find the KV type, whether
the model runs from GPU memory, the worst die and the window; clamp the window by the ladder; ask pn_admit_request; map
its answer to FIT, CAPPED or DENIED. pn_admit_reserve decides under memwatch's lock and holds what was granted.
"""
from libc.stdint cimport uint64_t
from libc.string cimport memset

from pantheon._core.arch.ops cimport pn_arch_weights, pn_run_sizes
from pantheon._core.base.report cimport pn_log, pn_set_error, pn_set_no_memory
from pantheon._core.memory.admit cimport pn_admit_request
from pantheon._core.memory.cost cimport pn_cost_die, pn_cost_kv, pn_cost_need
from pantheon._core.memory.environment cimport environment_max_seq, environment_warn
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
from pantheon._core.registry cimport ops_of, ops_of_state
from pantheon._core.types cimport (
    PN_ADMIT_CAPPED,
    PN_ADMIT_DENIED,
    PN_ADMIT_FIT,
    PN_ADMIT_OK,
    PN_KV_DEFAULT,
    PN_KV_F16,
    PN_KV_Q4_0,
    PN_KV_Q8_0,
    PN_LOG_WARNING,
    PN_MEM_CRITICAL,
    PN_MODEL_MAX_DIES,
    pn_admit_code,
    pn_admit_status,
    pn_cost,
    pn_forward_fn,
    pn_kv_type,
    pn_ladder_plan,
    pn_mem_state,
    pn_model,
    pn_request,
    pn_reservation,
    pn_verdict,
)

cdef pn_forward_fn cuda_forward = NULL


cdef void pn_admit_set_cuda_forward(pn_forward_fn forward) noexcept nogil:
    global cuda_forward
    cuda_forward = forward


cdef bint pn_admit_gpu_resident(const pn_model *model) noexcept nogil:
    return known(model) and cuda_forward != NULL and model.forward == cuda_forward


cdef bint known(const pn_model *model) noexcept nogil:
    if model == NULL:
        pn_set_error(b"model is NULL")
    return model != NULL


cdef inline int max_window(const pn_model *model) noexcept nogil:
    return min(environment_max_seq(), model.config.n_ctx)


cdef int pn_admit_max_window(const pn_model *model) noexcept nogil:
    if not known(model):
        return -1
    environment_warn()
    return max_window(model)


cdef int pn_admit_worst_die(const pn_mem_state *st) noexcept nogil:
    cdef int worst = -1, i
    if st == NULL:
        pn_set_error(b"state is NULL")
        return -1
    for i in range(<int>min(st.n_dies, <uint64_t>PN_MODEL_MAX_DIES)):
        if worst < 0 or st.die_free[i] < st.die_free[worst]:
            worst = i
    return worst


cdef void set_tokens(pn_cost *cost, int n) noexcept nogil:
    """What the price of n tokens is."""
    cdef int i
    cost.kv_bytes = pn_cost_kv(cost, n)
    for i in range(cost.n_dies):
        cost.per_die[i] = pn_cost_die(cost, i, n)


cdef void admit_price(const pn_model *model, int n_ctx, pn_kv_type kv_type, int window, int batch, bint all_logits,
                      pn_cost *cost) noexcept nogil:
    cdef pn_run_sizes sizes = [window, batch, all_logits]
    memset(cost, 0, sizeof(pn_cost))
    cost.n_ctx = (n_ctx + 7) // 8 * 8
    if ops_of(model).cost == NULL:       # its price is not known: requests are taken unchecked
        cost.kv_type = kv_type
        cost.window = window
        return
    ops_of(model).cost(model, kv_type, &sizes, cost)
    cost.logits_bytes = (<uint64_t>max(batch, window if all_logits else 1)
                         * <uint64_t>model.config.n_vocab * sizeof(float))
    cost.page_bytes = pn_memwatch_page_bytes()
    cost.scratch_held = (<const pn_arch_weights *>model.weights).work_bytes


cdef int pn_cost_of(const pn_model *model, int n_prompt, int n_new, int window, pn_kv_type kv_type,
                    pn_cost *out) noexcept nogil:
    if not known(model):
        return -1
    if out == NULL:
        pn_set_error(b"out is NULL")
        return -1
    memset(out, 0, sizeof(pn_cost))
    if check_tokens(n_prompt, n_new) != 0 or check_kv_type(kv_type) != 0:
        return -1
    if n_prompt + n_new > model.config.n_ctx:
        pn_set_error(b"%d tokens are more than the model's context of %d", n_prompt + n_new, model.config.n_ctx)
        return -1
    if window < 0:
        pn_set_error(b"a window of %d tokens: not in 0..2147483647", window)
        return -1
    environment_warn()
    window = min(window if window > 0 else max_window(model), max_window(model), max(n_prompt, 1))
    admit_price(model, 0, kv_type, window, 1, False, out)
    if out.whole_prompt:                 # however long it is
        admit_price(model, 0, kv_type, max(n_prompt, 1), 1, False, out)
    set_tokens(out, n_prompt + n_new)
    return 0


cdef pn_kv_type kv_type_used(const pn_model *model, pn_kv_type kv_type) noexcept nogil:
    """Type of the cache that a model makes when asked for this one."""
    cdef pn_cost cost
    admit_price(model, 0, kv_type, 1, 1, False, &cost)
    return cost.kv_type


cdef pn_kv_type open_kv_type(const pn_model *model, const pn_ladder_plan *plan) noexcept nogil:
    """Rung 2 takes f16 down to q8_0, where the model can have that; a smaller default stays."""
    if (plan.kv_type == PN_KV_Q8_0 and kv_type_used(model, PN_KV_DEFAULT) == PN_KV_F16
            and kv_type_used(model, PN_KV_Q8_0) == PN_KV_Q8_0):
        return PN_KV_Q8_0
    return PN_KV_DEFAULT


cdef pn_kv_type pn_admit_kv_type(const pn_model *model) noexcept nogil:
    cdef pn_mem_state st
    cdef pn_ladder_plan plan
    if not known(model) or not pn_memwatch_running():
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
    admit_price(model, n_ctx, kv_type, min(v.prefill_window, max(n_fed, 1)), max(q.batch, 1), q.all_logits, &v.cost)
    if v.cost.whole_prompt:              # nothing to clamp: the prompt is priced as it is
        v.window_asked = v.prefill_window = max(v.window_asked, n_fed)
        admit_price(model, n_ctx, kv_type, max(n_fed, 1), max(q.batch, 1), q.all_logits, &v.cost)
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
    v.window_asked = min(q.window, max_window(model)) if q.window > 0 else max_window(model)
    v.prefill_window = min(v.window_asked, v.plan.prefill_window)
    v.n_tokens = q.n_prompt + q.n_new
    asked = min(v.n_tokens, price(model, q, v))
    set_tokens(&v.cost, pos + asked)
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


cdef int check_tokens(int n_prompt, int n_new) noexcept nogil:
    if n_prompt < 0 or n_new < 0 or n_prompt > 2147483647 - n_new or n_prompt + n_new < 1:
        pn_set_error(b"%d prompt tokens and %d new ones: not in 0..2147483647, one of them at least 1", n_prompt, n_new)
        return -1
    return 0


cdef int check_kv_type(pn_kv_type kv_type) noexcept nogil:
    if not <int>PN_KV_DEFAULT <= <int>kv_type <= <int>PN_KV_Q4_0:
        pn_set_error(b"kv_type is %d, not in 0..%d", <int>kv_type, <int>PN_KV_Q4_0)
        return -1
    return 0


cdef int check_request(const pn_model *model, const pn_request *q) noexcept nogil:
    if not known(model):
        return -1
    if q == NULL:
        pn_set_error(b"request is NULL")
        return -1
    if check_tokens(q.n_prompt, q.n_new) != 0 or check_kv_type(q.kv_type) != 0:
        return -1
    if q.state != NULL and q.state.config != &model.config:
        pn_set_error(b"the state belongs to another model")
        return -1
    if not 0 <= q.n_ctx <= model.config.n_ctx:
        pn_set_error(b"n_ctx is %d, not in 0..%d", q.n_ctx, model.config.n_ctx)
        return -1
    if q.window < 0 or q.n_checkpoints < 0:
        pn_set_error(b"a window of %d tokens and %d checkpoints: not in 0..2147483647", q.window, q.n_checkpoints)
        return -1
    if q.batch < 0:
        pn_set_error(b"a batch of %d sequences: not in 0..2147483647", q.batch)
        return -1
    return 0


cdef void log_clamp(const pn_verdict *v) noexcept nogil:
    cdef const char *level
    if v.prefill_window < v.window_asked:
        level = b"CRITICAL" if v.plan.level == PN_MEM_CRITICAL else b"TIGHT"
        pn_log(PN_LOG_WARNING, b"[ladder] %s -> prefill window clamped %d -> %d", level, v.window_asked,
               v.prefill_window)


cdef pn_admit_status admit(pn_model *model, const pn_request *q, pn_verdict *v, pn_reservation **out) noexcept nogil:
    """out NULL: only asks."""
    cdef pn_mem_state st
    cdef uint64_t dies[PN_MODEL_MAX_DIES]
    cdef int i, fit
    cdef bint granted
    if out != NULL:
        out[0] = NULL
    if v == NULL:
        pn_set_error(b"verdict is NULL")
        return PN_ADMIT_DENIED
    memset(v, 0, sizeof(pn_verdict))
    if check_request(model, q) != 0:
        v.status = PN_ADMIT_DENIED
        return PN_ADMIT_DENIED
    environment_warn()                   # before the lock
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
                dies[i] = pn_cost_die(&v.cost, i, fit)
            out[0] = pn_memwatch_promise(pn_cost_need(&v.cost, fit), dies, v.cost.n_dies)
            if out[0] == NULL:
                v.status = PN_ADMIT_DENIED
        pn_memwatch_decide_end()
        if granted and out[0] == NULL:
            pn_set_no_memory(b"no memory for a reservation")
    if not q.quiet:
        log_clamp(v)
    return v.status


cdef pn_admit_status pn_admit(pn_model *model, int n_tokens, int *fit_tokens_out) noexcept nogil:
    cdef pn_request q
    cdef pn_verdict v
    memset(&q, 0, sizeof(q))
    q.n_new = n_tokens
    if fit_tokens_out != NULL:
        fit_tokens_out[0] = 0
    if check_request(model, &q) != 0:
        return PN_ADMIT_DENIED
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
    if out == NULL:
        pn_set_error(b"out is NULL: there is nowhere to put a reservation")
        if v != NULL:
            memset(v, 0, sizeof(pn_verdict))
            v.status = PN_ADMIT_DENIED
        return PN_ADMIT_DENIED
    return admit(model, request, v, out)


cdef void pn_admit_release(pn_reservation *reservation) noexcept nogil:
    pn_reservation_release(reservation)


cdef void pn_admit_progress(pn_reservation *reservation, const pn_verdict *v, int pos) noexcept nogil:
    if v == NULL or pos < 0:
        pn_set_error(b"verdict is NULL, or position %d is negative", pos)
        return
    pn_reservation_touched(reservation, pn_cost_need(&v.cost, pos))
