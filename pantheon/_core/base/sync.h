/* Waiting for other threads: spin for a moment, then sleep in the kernel. Used by pool.pyx only. */
#ifndef PN_SYNC_H
#define PN_SYNC_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* About a quarter of a millisecond: longer than the gaps inside a step and between the steps of one sequence, short
 * enough that an idle process, or one whose other thread lost its core, gives the core back. */
enum { PN_SPIN = 6000 };

static inline void pn_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* A counter that others wait on. 64 bytes, so that spinning on one does not slow its neighbours. */
typedef struct pn_event {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} pn_event;

static inline void pn_event_advance(pn_event *e) {
    atomic_fetch_add_explicit(&e->value, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&e->sleepers, memory_order_seq_cst)) {
#ifdef __linux__
        syscall(SYS_futex, &e->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
#endif
    }
}

/* Returns once the value is no longer `seen`. */
static inline void pn_event_wait(pn_event *e, uint32_t seen) {
    for (int i = 0; i < PN_SPIN; i++) {
        if (atomic_load_explicit(&e->value, memory_order_acquire) != seen) return;
        pn_pause();
    }
    atomic_fetch_add_explicit(&e->sleepers, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&e->value, memory_order_seq_cst) == seen) {
#ifdef __linux__
        syscall(SYS_futex, &e->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
        struct timespec nap = {0, 50000};
        nanosleep(&nap, NULL);
#endif
    }
    atomic_fetch_sub_explicit(&e->sleepers, 1, memory_order_seq_cst);
}

static inline uint32_t pn_event_value(pn_event *e) {
    return atomic_load_explicit(&e->value, memory_order_acquire);
}

typedef struct pn_barrier {
    pn_event generation;
    _Alignas(64) _Atomic uint32_t arrived;
} pn_barrier;

static inline void pn_barrier_wait(pn_barrier *b, uint32_t n) {
    if (n < 2) return;
    uint32_t generation = atomic_load_explicit(&b->generation.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) == n - 1) {
        atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
        pn_event_advance(&b->generation);
    } else {
        pn_event_wait(&b->generation, generation);
    }
}

/* Work counter: ranks take the next piece as they become free. */
typedef _Atomic int32_t pn_counter;

static inline int pn_counter_next(pn_counter *c) { return atomic_fetch_add_explicit(c, 1, memory_order_relaxed); }
static inline void pn_counter_zero(pn_counter *c) { atomic_store_explicit(c, 0, memory_order_relaxed); }

/* Threads of the pool take no signals: those belong to the program's own threads. */
static inline int pn_thread_start(pthread_t *thread, void *(*body)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) pthread_detach(*thread);
    return status;
}

#endif
