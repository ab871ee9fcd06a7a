/* Loaded before everything else (LD_PRELOAD): counts what Pantheon's own modules allocate, and lets one of it fail.
 *
 * An allocation is the engine's when it is called from a module below pantheon/_core/. What Python and its libraries
 * allocate goes through untouched. glibc only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { SLOTS = 1 << 17 };                    /* of the table of live allocations; far more than there are */

static struct { void *p; size_t n; } slots[SLOTS];
static atomic_flag table = ATOMIC_FLAG_INIT;
static _Atomic int armed;
static _Atomic long countdown;               /* engine allocations until one fails; 0: none does */
static _Atomic long count, live_bytes, peak_bytes;

static int is_engine(void *caller) {
    Dl_info info;
    return armed && dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "/pantheon/_core/");
}

static int refused(void) {
    atomic_fetch_add(&count, 1);
    if (atomic_load(&countdown) > 0 && atomic_fetch_sub(&countdown, 1) == 1) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

static size_t home(const void *p) { return ((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u % SLOTS; }

static void enter(void *p, size_t n) {
    if (!p) return;
    while (atomic_flag_test_and_set(&table)) {}
    size_t i = home(p);
    while (slots[i].p) i = (i + 1) % SLOTS;
    slots[i].p = p;
    slots[i].n = n;
    live_bytes += (long)n;
    if (live_bytes > peak_bytes) peak_bytes = live_bytes;
    atomic_flag_clear(&table);
}

/* Forgets p if it is the engine's; slots behind it are put where they are found again. */
static void leave(void *p) {
    if (!p || !armed) return;
    while (atomic_flag_test_and_set(&table)) {}
    size_t i = home(p);
    while (slots[i].p && slots[i].p != p) i = (i + 1) % SLOTS;
    if (slots[i].p) {
        live_bytes -= (long)slots[i].n;
        slots[i].p = NULL;
        for (size_t j = (i + 1) % SLOTS; slots[j].p; j = (j + 1) % SLOTS) {
            void *q = slots[j].p;
            size_t n = slots[j].n, k = home(q);
            slots[j].p = NULL;
            while (slots[k].p) k = (k + 1) % SLOTS;
            slots[k].p = q;
            slots[k].n = n;
        }
    }
    atomic_flag_clear(&table);
}

#define COUNTED(allocate, n)                                        \
    if (!is_engine(__builtin_return_address(0))) return allocate;   \
    if (refused()) return NULL;                                     \
    void *p = allocate;                                             \
    enter(p, n);                                                    \
    return p;

void *malloc(size_t n) { COUNTED(__libc_malloc(n), n) }
void *calloc(size_t m, size_t n) { COUNTED(__libc_calloc(m, n), m * n) }
void *aligned_alloc(size_t a, size_t n) { COUNTED(__libc_memalign(a, n), n) }
void *memalign(size_t a, size_t n) { COUNTED(__libc_memalign(a, n), n) }

void *realloc(void *old, size_t n) {
    int engine = is_engine(__builtin_return_address(0));
    if (engine && refused()) return NULL;
    void *p = __libc_realloc(old, n);
    if (p) leave(old);
    if (engine) enter(p, n);
    return p;
}

void free(void *p) {
    leave(p);
    __libc_free(p);
}

/* Files are mapped as ever: only anonymous memory is counted. */
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    int engine = flags & MAP_ANONYMOUS && is_engine(__builtin_return_address(0));
    if (engine && refused()) return MAP_FAILED;
    void *p = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    if (engine && p != MAP_FAILED) enter(p, n);
    return p;
}

/* What Python's headers make of mmap. */
void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void *p, size_t n) {
    leave(p);
    return (int)syscall(SYS_munmap, p, n);
}

/* ---- for the test ---- */

/* From now on allocations are counted. The first call is before the engine has anything that it frees later. */
void allocations_arm(void) { armed = 1; }
long allocations_live(void) { return live_bytes; }
/* Most that was live since the last call. */
long allocations_peak(void) { return atomic_exchange(&peak_bytes, live_bytes); }
/* The k-th allocation from now on fails, 0: none. Returns how many there were since the last call. */
long allocations_fail(long k) {
    atomic_store(&countdown, k);
    return atomic_exchange(&count, 0);
}
