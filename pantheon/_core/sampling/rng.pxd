# The sampler's random numbers: xoshiro256** (Blackman and Vigna, 2018), its state filled from a 64-bit seed by
# splitmix64.
#
# A state is uint64_t[4], owned by the caller. Every draw is a function of the state alone, so a seeded run depends on
# neither the thread nor the platform.
from libc.stdint cimport uint64_t


cdef inline uint64_t pn_rotl64(uint64_t x, int k) noexcept nogil:
    return (x << k) | (x >> (64 - k))


cdef inline uint64_t pn_splitmix64(uint64_t *counter) noexcept nogil:
    """The next word of the stream that counter stands in; advances it."""
    counter[0] += <uint64_t> 0x9E3779B97F4A7C15
    cdef uint64_t z = counter[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline void pn_rng_fill(uint64_t *state, uint64_t *counter) noexcept nogil:
    """Fills state (4,) with the next four words of a splitmix64 stream; two states filled in a row are independent."""
    cdef int i
    for i in range(4):
        state[i] = pn_splitmix64(counter)
    if not (state[0] | state[1] | state[2] | state[3]):     # the one state that xoshiro never leaves
        state[0] = 1


cdef inline uint64_t pn_rng_next(uint64_t *s) noexcept nogil:
    """64 random bits; advances the state s (4,)."""
    cdef uint64_t result = pn_rotl64(s[1] * 5, 7) * 9
    cdef uint64_t t = s[1] << 17
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = pn_rotl64(s[3], 45)
    return result


cdef inline double pn_rng_uniform(uint64_t *s) noexcept nogil:
    """One draw from [0, 1) with 53 bits."""
    return <double> (pn_rng_next(s) >> 11) * (1.0 / 9007199254740992.0)
