"""Tensors of an RWKV model by name and expected shape (see tensors.pxd for the contract)."""
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from pantheon._core.kernels.table cimport PN_BF16, PN_F16, PN_F32, PN_Q8_0, pn_kernels, pn_kernels_active
from pantheon._core.base.pool cimport fw_pool_get, fw_pool_run
from pantheon._core.load.source cimport Source, source_tensor, type_text
from pantheon._core.layers.matrix cimport owned_calloc, pn_matrix
from pantheon._core.base.threads import default_threads
from pantheon._core.types cimport tm_tensor

cdef struct quantize_job:
    const pn_kernels *k
    const pn_matrix *source
    uint8_t *out                         # (rows, cols / 32 * 36)
    int bad                              # set when a rank met a number that is not finite, or no memory


cdef void quantize_rows(void *arg, int rank, int n) noexcept nogil:
    """This rank's rows of a matrix, to int8 with one scale per 32."""
    cdef quantize_job *job = <quantize_job *>arg
    cdef const pn_matrix *m = job.source
    cdef int r, i
    cdef size_t row_bytes = <size_t>m.cols // job.k.group8.block * job.k.group8.block_bytes
    cdef int last = <int>(<int64_t>m.rows * (rank + 1) // n)
    cdef float sum
    cdef float *row = <float *>malloc(m.cols * sizeof(float))
    if row == NULL:
        job.bad = 2
        return
    for r in range(<int>(<int64_t>m.rows * rank // n), last):
        m.ops.dequant(m.data + r * m.row_bytes, row, m.cols)
        sum = 0
        for i in range(m.cols):
            sum += row[i] * 0            # 0, or NaN where something is not finite
        if not isfinite(sum):
            job.bad = 1
            break
        job.k.group8_quantize(row, m.cols, job.out + r * row_bytes)
    free(row)


cdef tm_tensor *find(Source f, str name, str wanted) except NULL:
    cdef tm_tensor *t = source_tensor(f, f.prefix + name)
    if t == NULL:
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} of {wanted} is missing")
    if t.type not in (<int>PN_F32, <int>PN_F16, <int>PN_BF16, <int>PN_Q8_0):
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} has type {type_text(t)}, which is neither F32 nor "
                         "F16 nor BF16")
    return t


cdef tm_tensor *find_floats(Source f, str name, str wanted) except NULL:
    cdef tm_tensor *t = find(f, name, wanted)
    if t.type == <int>PN_Q8_0:
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} is Q8_0, which only the large matrices may be")
    return t


cdef tuple rwkv_shape(Source f, str name, str wanted):
    cdef tm_tensor *t = find(f, name, wanted)
    if t.ne[2] != 1 or t.ne[3] != 1:
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} is no matrix")
    return t.ne[1], t.ne[0]


cdef const float *rwkv_vector(Source f, str name, int n) except NULL:
    cdef tm_tensor *t = find_floats(f, name, f"{n} elements")
    cdef float *copy
    count = <object>t.ne[0] * <object>t.ne[1] * <object>t.ne[2] * <object>t.ne[3]
    if count != n:
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} has {count} elements, expected {n}")
    if t.type == <int>PN_F32 and <size_t>t.data % sizeof(float) == 0:
        return <const float *>t.data
    copy = <float *>owned_calloc(f.owned, n * sizeof(float))
    pn_kernels_active().type[t.type].dequant(<const uint8_t *>t.data, copy, n)
    return copy


cdef pn_matrix rwkv_matrix(Source f, str name, int rows, int cols, bint may_quantize) except *:
    wanted = f"shape ({rows}, {cols})"
    cdef tm_tensor *t = find(f, name, wanted)
    cdef pn_matrix m
    shape = rwkv_shape(f, name, wanted)
    if shape != (rows, cols):
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} has shape {shape}, expected ({rows}, {cols})")
    memset(&m, 0, sizeof(pn_matrix))
    m.ops = &pn_kernels_active().type[t.type]
    m.data = <const uint8_t *>t.data
    m.row_bytes = <size_t>(cols // m.ops.block) * m.ops.block_bytes
    m.rows = rows
    m.cols = cols
    if may_quantize and f.opts != NULL and f.opts.quantize:
        return quantized(f, name, &m)
    return m


cdef pn_matrix quantized(Source f, str name, const pn_matrix *source) except *:
    cdef pn_matrix m = source[0]
    cdef quantize_job job
    if m.cols % 32 != 0:
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} has rows of {m.cols}, which is no multiple of 32: "
                         "it cannot be quantised")
    m.ops = &pn_kernels_active().group8
    m.row_bytes = <size_t>m.cols // m.ops.block * m.ops.block_bytes
    job.out = <uint8_t *>owned_calloc(f.owned, m.rows * m.row_bytes)
    m.data = job.out
    job.k = pn_kernels_active()
    job.source = source
    job.bad = 0
    fw_pool_run(fw_pool_get(), quantize_rows, &job, default_threads())
    if job.bad == 2:
        raise MemoryError(f"{f.path}: no memory to quantise tensor {f.prefix}{name}")
    if job.bad:
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} holds numbers that are not finite: it cannot be "
                         "quantised")
    return m


cdef pn_matrix rwkv_lora(Source f, str name, int n, int rank, bint down) except *:
    cdef str wanted = f"{n} by {rank}" if rank > 0 else f"{n} by fewer"
    cdef tm_tensor *t = find_floats(f, name, wanted)
    cdef pn_matrix m
    cdef int64_t stored_rows, stored_cols
    cdef bint out_in
    stored_rows, stored_cols = rwkv_shape(f, name, wanted)
    # the side that is n: the rows of (in, out) when down, of (out, in) when up
    other = stored_cols if stored_rows == n else stored_rows
    if n not in (stored_rows, stored_cols) or not 0 < other < n or (rank > 0 and other != rank):
        raise ValueError(f"{f.path}: tensor {f.prefix}{name} has shape ({stored_rows}, {stored_cols}), "
                         f"expected {wanted}")
    out_in = (stored_cols == n) == down
    memset(&m, 0, sizeof(pn_matrix))
    m.ops = &pn_kernels_active().type[t.type]
    m.rows = other if down else n
    m.cols = n if down else other
    m.row_bytes = <size_t>m.cols * m.ops.block_bytes
    m.data = <const uint8_t *>t.data
    if not out_in:
        m.data = transposed(f, <const uint8_t *>t.data, stored_rows, stored_cols, m.ops.block_bytes)
    return m


cdef const uint8_t *transposed(Source f, const uint8_t *x, int64_t rows, int64_t cols, int item) except NULL:
    """(cols, rows) of a (rows, cols) matrix with items of 2 or 4 bytes, in memory of `owned`."""
    cdef uint8_t *y = <uint8_t *>owned_calloc(f.owned, rows * cols * item)
    cdef int64_t r, c
    for r in range(rows):
        for c in range(cols):
            memcpy(y + (c * rows + r) * item, x + (r * cols + c) * item, 2)
            if item == 4:
                memcpy(y + (c * rows + r) * 4 + 2, x + (r * cols + c) * 4 + 2, 2)
    return y
