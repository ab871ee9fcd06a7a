"""Per-thread scratch of the sampler. See scratch.pxd for the layout and who may use it."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from pantheon._core.base.report cimport pn_set_error, pn_set_no_memory

cdef extern from *:
    """
    #include <pthread.h>

    /* A pthread key rather than _Thread_local: its destructor frees the memory when the thread ends. */
    static pthread_key_t pn_scratch_key;
    static int64_t pn_scratch_live;

    static int pn_scratch_make_key(void (*free_it)(void *)) { return pthread_key_create(&pn_scratch_key, free_it); }
    static void *pn_scratch_load(void) { return pthread_getspecific(pn_scratch_key); }
    static int pn_scratch_store(void *p) { return pthread_setspecific(pn_scratch_key, p); }
    static void pn_scratch_count(int64_t d) { __atomic_fetch_add(&pn_scratch_live, d, __ATOMIC_RELAXED); }
    static int64_t pn_scratch_counted(void) { return __atomic_load_n(&pn_scratch_live, __ATOMIC_RELAXED); }
    """
    int pn_scratch_make_key(void (*destructor)(void *) noexcept nogil) nogil
    void *pn_scratch_load() nogil
    int pn_scratch_store(void *p) nogil
    void pn_scratch_count(int64_t d) nogil
    int64_t pn_scratch_counted() nogil

cdef enum:
    MAX_VOCAB = 1 << 26                  # keeps every size below far from overflow
    MAX_WINDOW = 1 << 26
    BLOCK = 128                          # PN_SCAN_BLOCK


cdef void free_candidates(pn_scratch *s) noexcept nogil:
    free(s.id)
    free(s.logit)
    free(s.e)
    free(s.key)
    free(s.key2)
    free(s.block_max)
    free(s.mass)
    s.id = NULL
    s.logit = s.e = s.block_max = NULL
    s.key = s.key2 = NULL
    s.mass = NULL
    s.cap = 0


cdef void free_window(pn_scratch *s) noexcept nogil:
    free(s.slots)
    free(s.table)
    free(s.older)
    free(s.suffix)
    s.slots = NULL
    s.table = s.older = s.suffix = NULL
    s.window_cap = s.table_size = 0


cdef void recount(pn_scratch *s) noexcept nogil:
    cdef size_t nbytes = sizeof(pn_scratch) + <size_t> s.touched_cap * sizeof(pn_touched)
    if s.cap:
        nbytes += <size_t> (s.cap + 1) * 28 + <size_t> (s.cap // BLOCK + 1) * 4 + PN_MASS_BUCKETS * sizeof(double)
    nbytes += <size_t> s.window_cap * (sizeof(pn_slot) + 8) + <size_t> s.table_size * 4
    pn_scratch_count(<int64_t> nbytes - <int64_t> s.nbytes)
    s.nbytes = nbytes


cdef void destroy(void *p) noexcept nogil:
    cdef pn_scratch *s = <pn_scratch *> p
    free_candidates(s)
    free_window(s)
    free(s.touched)
    pn_scratch_count(-<int64_t> s.nbytes)
    free(s)


cdef pn_scratch *own() noexcept nogil:
    """This thread's scratch, made on its first call; NULL when there is no memory for it."""
    cdef pn_scratch *s = <pn_scratch *> pn_scratch_load()
    if s == NULL:
        s = <pn_scratch *> calloc(1, sizeof(pn_scratch))
        if s == NULL:
            return NULL
        if pn_scratch_store(s) != 0:
            free(s)
            return NULL
        recount(s)
    return s


cdef bint grow_candidates(pn_scratch *s, int n_vocab) noexcept nogil:
    cdef size_t n = <size_t> n_vocab + 1
    free_candidates(s)                   # nothing in it outlives a call, so nothing is copied
    s.id = <uint32_t *> malloc(n * 4)
    s.logit = <float *> malloc(n * 4)
    s.e = <float *> malloc(n * 4)
    s.key = <uint64_t *> malloc(n * 8)
    s.key2 = <uint64_t *> malloc(n * 8)
    s.block_max = <float *> malloc((<size_t> n_vocab // BLOCK + 1) * 4)
    s.mass = <double *> malloc(PN_MASS_BUCKETS * sizeof(double))
    if not (s.id and s.logit and s.e and s.key and s.key2 and s.block_max and s.mass):
        free_candidates(s)
        return False
    s.cap = n_vocab
    return True


cdef bint grow_window(pn_scratch *s, int n_window) noexcept nogil:
    cdef int size = 16
    while size < 2 * n_window:
        size *= 2
    free_window(s)
    s.slots = <pn_slot *> malloc(<size_t> n_window * sizeof(pn_slot))
    s.table = <int32_t *> malloc(<size_t> size * 4)
    s.older = <int32_t *> malloc(<size_t> n_window * 4)
    s.suffix = <int32_t *> malloc(<size_t> n_window * 4)
    if not (s.slots and s.table and s.older and s.suffix):
        free_window(s)
        return False
    s.window_cap = n_window
    s.table_size = size
    return True


cdef pn_scratch *pn_scratch_get(int n_vocab, int n_window, int64_t n_touched) noexcept nogil:
    cdef pn_scratch *s = own()
    cdef bint ok = True
    if s == NULL:
        pn_set_no_memory(b"no memory for the sampler's scratch")
        return NULL
    if n_vocab > MAX_VOCAB or n_window > MAX_WINDOW or n_touched > 2 * MAX_WINDOW + MAX_VOCAB:
        pn_set_error(b"the vocabulary or the window of recent tokens is too large to sample from")
        return NULL
    if n_vocab > s.cap:
        ok = grow_candidates(s, n_vocab)
    if ok and n_window > s.window_cap:
        ok = grow_window(s, n_window if n_window > 256 else 256)
    if ok and n_touched > s.touched_cap:
        free(s.touched)
        s.touched = <pn_touched *> malloc(<size_t> n_touched * sizeof(pn_touched))
        s.touched_cap = <int> n_touched if s.touched else 0
        ok = s.touched != NULL
    recount(s)
    if not ok:
        pn_set_no_memory(b"no memory for the sampler's scratch")
        return NULL
    s.n = s.n_touched = s.n_slots = 0
    s.order = PN_ORDER_ID
    return s


cdef int64_t pn_scratch_total() noexcept nogil:
    return pn_scratch_counted()


if pn_scratch_make_key(destroy) != 0:    # before any other function can be called
    raise MemoryError("no thread-specific data key left for the sampler")
