/* A thread that calls a function at intervals, and a lock for the function's data, which it takes itself. Used by
 * memwatch.pyx.
 *
 * A fork takes both locks while it holds the GIL: who holds one must not wait for the GIL, so nothing logs under them.
 *
 * Threads do not survive a fork: the child finds the lock free, the record whole and no thread; pn_timer_ensure starts
 * a new one there when somebody first needs it.
 */
#ifndef PN_TIMER_H
#define PN_TIMER_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef void (*pn_timer_tick)(void);

typedef struct pn_timer {
    pthread_mutex_t lock;                    /* the tick's data */
    pthread_mutex_t life;                    /* one start or stop at a time; taken before lock */
    pthread_cond_t wake;
    pthread_t thread;
    int alive;                               /* there is a thread that nobody told to end, in this process */
    _Atomic int forked;                      /* its thread was left behind in the parent */
    uint64_t turn;                           /* a thread ends when this is no longer what it was started with */
    _Atomic int running;                     /* started and not stopped; stays set in the child of a fork */
    _Atomic uint32_t interval_ms;
    pn_timer_tick tick;
} pn_timer;

static inline uint64_t pn_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void pn_timer_init(pn_timer *s, pn_timer_tick tick) {
    pthread_condattr_t attr;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->life, NULL);
    pthread_condattr_init(&attr);
#ifndef __APPLE__
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&s->wake, &attr);
    pthread_condattr_destroy(&attr);
    s->alive = 0;
    atomic_store(&s->forked, 0);
    s->tick = tick;
}

/* Returns after ms, or earlier when woken; the lock is held before and after. */
static inline void pn_timer_nap(pn_timer *s, uint32_t ms) {
    struct timespec t;
#ifdef __APPLE__
    t.tv_sec = ms / 1000;
    t.tv_nsec = (long)(ms % 1000) * 1000000;
    pthread_cond_timedwait_relative_np(&s->wake, &s->lock, &t);
#else
    uint64_t until = pn_monotonic_ns() + (uint64_t)ms * 1000000u;
    t.tv_sec = (time_t)(until / 1000000000u);
    t.tv_nsec = (long)(until % 1000000000u);
    pthread_cond_timedwait(&s->wake, &s->lock, &t);
#endif
}

typedef struct pn_timer_thread {
    pn_timer *timer;
    uint64_t turn;
} pn_timer_thread;

static void *pn_timer_main(void *arg) {
    pn_timer_thread self = *(pn_timer_thread *)arg;
    pn_timer *s = self.timer;
    free(arg);
    pthread_mutex_lock(&s->lock);
    while (s->turn == self.turn) {
        pthread_mutex_unlock(&s->lock);
        s->tick();
        pthread_mutex_lock(&s->lock);
        if (s->turn == self.turn) pn_timer_nap(s, atomic_load(&s->interval_ms));
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Under `life`. The thread takes no signals (those are the program's) and needs a small stack. */
static inline int pn_timer_launch(pn_timer *s) {
    pthread_attr_t attr;
    sigset_t all, before;
    pn_timer_thread *self = malloc(sizeof *self);
    if (!self) return -1;
    self->timer = s;
    self->turn = s->turn;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&s->thread, &attr, pn_timer_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    s->alive = status == 0;
    if (status != 0) free(self);
    return status;
}

/* with_thread 0: only marks the timer as running. 0, or -1 when the system gives no thread; it runs then without. */
static inline int pn_timer_start(pn_timer *s, uint32_t interval_ms, int with_thread) {
    int status = 0;
    pthread_mutex_lock(&s->life);
    atomic_store(&s->interval_ms, interval_ms);
    atomic_store(&s->running, 1);
    if (with_thread && !s->alive) {
        status = pn_timer_launch(s);
    } else if (s->alive) {
        pthread_mutex_lock(&s->lock);
        pthread_cond_signal(&s->wake);       /* the new interval counts from now */
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->life);
    return status == 0 ? 0 : -1;
}

/* Returns when the thread has ended, or another call has told it to and is waiting for that. halt_only: the timer still
 * counts as running, as if the thread had died. No lock is held while it ends: it may be waiting for who waits for the
 * lock. */
static inline void pn_timer_stop(pn_timer *s, int halt_only) {
    pthread_t thread;
    int alive;
    pthread_mutex_lock(&s->life);
    if (!halt_only) atomic_store(&s->running, 0);
    alive = s->alive;
    thread = s->thread;
    s->alive = 0;
    if (alive) {
        pthread_mutex_lock(&s->lock);
        s->turn++;
        pthread_cond_broadcast(&s->wake);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->life);
    if (alive) pthread_join(thread, NULL);
}

/* Starts the thread anew in the child of a fork. */
static inline void pn_timer_ensure(pn_timer *s) {
    if (!atomic_load(&s->forked)) return;
    pthread_mutex_lock(&s->life);
    if (atomic_load(&s->forked) && !s->alive && atomic_load(&s->running)) pn_timer_launch(s);
    atomic_store(&s->forked, 0);
    pthread_mutex_unlock(&s->life);
}

static inline int pn_timer_running(pn_timer *s) { return atomic_load(&s->running); }
static inline uint32_t pn_timer_interval(pn_timer *s) { return atomic_load(&s->interval_ms); }
static inline void pn_timer_lock(pn_timer *s) { pthread_mutex_lock(&s->lock); }
static inline void pn_timer_unlock(pn_timer *s) { pthread_mutex_unlock(&s->lock); }

/* Around a fork nobody else may be inside the locks, or the child would wait for a thread that it does not have. */
static inline void pn_timer_before_fork(pn_timer *s) {
    pthread_mutex_lock(&s->life);
    pthread_mutex_lock(&s->lock);
}

static inline void pn_timer_after_fork(pn_timer *s) {
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->life);
}

static inline void pn_timer_in_child(pn_timer *s) {
    int had_thread = s->alive;
    pn_timer_init(s, s->tick);
    atomic_store(&s->forked, had_thread);
}

#endif
