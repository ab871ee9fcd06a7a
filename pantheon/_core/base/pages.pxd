# Large buffers straight from the system: zero where they were never touched, and the system's again once freed. The C
# allocator keeps what is freed below a threshold that grows with use, and admission counts on freed memory being free.
cdef extern from *:
    """
    #include <stddef.h>
    #include <sys/mman.h>
    #ifndef PN_PAGES
    #define PN_PAGES
    static inline void *pn_pages_new(size_t n) {
        void *p = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    static inline void pn_pages_free(void *p, size_t n) {
        if (p != NULL) munmap(p, n ? n : 1);
    }
    #endif
    """
    # n bytes, aligned to a page; NULL when there is no memory.
    void *pn_pages_new(size_t n) nogil
    # n as given to pn_pages_new; NULL is allowed.
    void pn_pages_free(void *p, size_t n) nogil
