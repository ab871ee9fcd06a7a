# A hash index from names to positions in an array: open addressing, linear probing, at most half full.
#
# The names come from a file that may be hostile, so the hash is SipHash-1-3 under a key drawn per index: nobody can
# choose names that all fall into one run of slots.
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp


cdef extern from *:
    """
    #ifndef PN_NAME_HASH
    #define PN_NAME_HASH
    #include <stdint.h>
    #include <string.h>
    #include <sys/random.h>

    #define PN_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define PN_SIP_ROUND(a, b, c, d) do { \\
        a += b; b = PN_ROTL(b, 13); b ^= a; a = PN_ROTL(a, 32); \\
        c += d; d = PN_ROTL(d, 16); d ^= c; \\
        a += d; d = PN_ROTL(d, 21); d ^= a; \\
        c += b; b = PN_ROTL(b, 17); b ^= c; c = PN_ROTL(c, 32); } while (0)

    /* Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; one round per word, three at the end. */
    static inline uint64_t pn_name_hash(const uint64_t key[2], const char *name, size_t len) {
        uint64_t a = key[0] ^ 0x736f6d6570736575ULL, b = key[1] ^ 0x646f72616e646f6dULL;
        uint64_t c = key[0] ^ 0x6c7967656e657261ULL, d = key[1] ^ 0x7465646279746573ULL;
        uint64_t word, last = (uint64_t)len << 56;
        size_t i, tail = len & 7;
        for (i = 0; i + 8 <= len; i += 8) {
            memcpy(&word, name + i, 8);
            d ^= word;
            PN_SIP_ROUND(a, b, c, d);
            a ^= word;
        }
        word = 0;
        memcpy(&word, name + i, tail);
        last |= word;
        d ^= last;
        PN_SIP_ROUND(a, b, c, d);
        a ^= last;
        c ^= 0xff;
        PN_SIP_ROUND(a, b, c, d);
        PN_SIP_ROUND(a, b, c, d);
        PN_SIP_ROUND(a, b, c, d);
        return a ^ b ^ c ^ d;
    }

    /* A key that cannot be had leaves zeros: look-up still works, only the protection is gone. */
    static inline void pn_name_key(uint64_t key[2]) {
        if (getrandom(key, 16, GRND_NONBLOCK) != 16) key[0] = key[1] = 0;
    }
    #endif
    """
    uint64_t pn_name_hash(const uint64_t *key, const char *name, size_t length) noexcept nogil
    void pn_name_key(uint64_t *key) noexcept nogil


# GIL. A name as the file's bytes and as str. Names come from JSON too, where half a surrogate pair is a character: each
# str has bytes of its own and the way back, so that what a directory lists can be looked up.
cdef inline bytes name_bytes(str name):
    return name.encode("utf-8", "surrogatepass")


cdef inline str name_text(const char *name):
    return (<bytes>name).decode("utf-8", "surrogatepass")


# GIL. The same in a message: one line, of characters that can be printed.
cdef inline str name_shown(str name):
    return repr(name[:200])[1:-1]


cdef struct name_slot:
    const char *name                     # (len,) borrowed; NULL: the slot is free
    size_t len
    int64_t item


cdef struct name_index:                  # all zero: empty and valid
    name_slot *slots                     # (n_slots,) owned
    size_t n_slots                       # 0 or a power of two
    size_t used
    uint64_t key[2]


cdef inline void name_index_free(name_index *t) noexcept nogil:
    free(t.slots)
    t.slots = NULL
    t.n_slots = 0
    t.used = 0


# The slot that holds the name, or the free one where it belongs. The index has at least one free slot.
cdef inline name_slot *name_index_slot(const name_index *t, const char *name, size_t length) noexcept nogil:
    cdef size_t i = pn_name_hash(t.key, name, length) & (t.n_slots - 1)
    while t.slots[i].name != NULL:
        if t.slots[i].len == length and memcmp(t.slots[i].name, name, length) == 0:
            break
        i = (i + 1) & (t.n_slots - 1)
    return &t.slots[i]


# Position of the name, or -1.
cdef inline int64_t name_index_find(const name_index *t, const char *name, size_t length) noexcept nogil:
    cdef name_slot *slot
    if t.n_slots == 0:
        return -1
    slot = name_index_slot(t, name, length)
    return -1 if slot.name == NULL else slot.item


cdef inline bint name_index_grow(name_index *t) noexcept nogil:
    cdef name_index wider
    cdef size_t i
    wider.n_slots = 64 if t.n_slots == 0 else 2 * t.n_slots
    wider.used = t.used
    wider.slots = <name_slot *> calloc(wider.n_slots, sizeof(name_slot))
    if wider.slots == NULL:
        return False
    if t.n_slots == 0:
        pn_name_key(t.key)
    wider.key[0] = t.key[0]
    wider.key[1] = t.key[1]
    for i in range(t.n_slots):
        if t.slots[i].name != NULL:
            name_index_slot(&wider, t.slots[i].name, t.slots[i].len)[0] = t.slots[i]
    free(t.slots)
    t[0] = wider
    return True


# 1: added. 0: the name was there already. -1: no memory. The name must outlive the index.
cdef inline int name_index_add(name_index *t, const char *name, size_t length, int64_t item) noexcept nogil:
    cdef name_slot *slot
    if 2 * t.used >= t.n_slots and not name_index_grow(t):
        return -1
    slot = name_index_slot(t, name, length)
    if slot.name != NULL:
        return 0
    slot.name = name
    slot.len = length
    slot.item = item
    t.used += 1
    return 1
