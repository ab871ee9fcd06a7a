/* How fast memory can be read: the access pattern of decode without its arithmetic. */
#ifndef PN_PROBE_READ_H
#define PN_PROBE_READ_H

#include <stddef.h>
#include <stdint.h>

enum { PN_PROBE_STREAMS = 8 };

typedef int64_t pn_probe_vec __attribute__((vector_size(16), aligned(16)));

/* Reads n bytes (a multiple of 8 * 64, 64-byte aligned) as 8 streams far apart, every byte of them, and returns
 * something that depends on all. */
static inline int64_t pn_probe_read(const uint8_t *p, size_t n)
{
    const size_t length = n / PN_PROBE_STREAMS;
    pn_probe_vec sum[4] = {{0}};
    for (size_t i = 0; i < length; i += 64)
        for (int s = 0; s < PN_PROBE_STREAMS; s++) {
            const pn_probe_vec *v = (const pn_probe_vec *)(p + s * length + i);
            sum[0] ^= v[0];
            sum[1] ^= v[1];
            sum[2] ^= v[2];
            sum[3] ^= v[3];
        }
    sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
    return sum[0][0] ^ sum[0][1];
}

#endif
