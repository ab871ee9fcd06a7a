/* A record of 64-bit words that one writer at a time publishes and any number of readers copy without waiting.
 *
 * The writer makes the sequence odd, stores the words, makes it even. A reader copies the words and keeps the copy only
 * if it saw the same even sequence before and after. Every word is an atomic of its own: a word stored with release and
 * loaded with acquire carries the odd sequence along, so a reader that got one new word cannot miss the change. That
 * needs no fences, costs plain loads and stores on x86, and is a program without data races also to a sanitizer.
 */
#ifndef PN_SEQLOCK_H
#define PN_SEQLOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { PN_SEQLOCK_WORDS = 96 };

typedef struct pn_seqlock {
    _Alignas(64) _Atomic uint64_t sequence;
    _Alignas(64) _Atomic uint64_t words[PN_SEQLOCK_WORDS];
} pn_seqlock;

/* n <= PN_SEQLOCK_WORDS. Callers take turns: one writer at a time. */
static inline void pn_seqlock_write(pn_seqlock *s, const uint64_t *words, size_t n) {
    uint64_t sequence = atomic_load_explicit(&s->sequence, memory_order_relaxed);
    atomic_store_explicit(&s->sequence, sequence + 1, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) atomic_store_explicit(&s->words[i], words[i], memory_order_release);
    atomic_store_explicit(&s->sequence, sequence + 2, memory_order_release);
}

/* Returns how often the record had been published when it was copied; 0: never, and the words are zero. */
static inline uint64_t pn_seqlock_read(pn_seqlock *s, uint64_t *words, size_t n) {
    for (unsigned tries = 1;; tries++) {
        uint64_t before = atomic_load_explicit(&s->sequence, memory_order_acquire);
        if (tries % 64 == 0) sched_yield();      /* the writer lost its core in the middle */
        if (before & 1) continue;
        for (size_t i = 0; i < n; i++) words[i] = atomic_load_explicit(&s->words[i], memory_order_acquire);
        if (atomic_load_explicit(&s->sequence, memory_order_relaxed) == before) return before / 2;
    }
}

#endif
