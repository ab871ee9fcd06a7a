/* How much memory this process may still take, read from /proc and from the cgroups that it is in.
 *
 * available = min(MemAvailable, min over the cgroup chain of (limit - (current - inactive_file - active_file))). Page
 * cache is the system's to take back, and a mapped model is page cache: counting it as used would refuse the very model
 * that is running. The chain goes from the process's own cgroup to the root, because a parent may be tighter.
 *
 * Both roots are parameters, so that tests can show it a made-up machine. Nothing here allocates or takes a lock.
 */
#ifndef PN_HOSTMEM_H
#define PN_HOSTMEM_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#define PN_NO_LIMIT ((uint64_t)1 << 60)      /* v1 writes "none" as a huge number */

typedef struct pn_host_memory {
    uint64_t total;                          /* the least of mem_total and the limits of the chain */
    uint64_t avail;
    uint64_t mem_total;
    uint64_t mem_avail;                      /* MemAvailable */
    uint64_t rss;                            /* of this process */
    uint64_t anon;                           /* of this process: what is not backed by files */
    uint64_t limit;                          /* of the cgroup that leaves least; 0: no cgroup has one */
    uint64_t used;                           /* in that cgroup, without page cache */
    int version;                             /* of that cgroup, 1 or 2; 0: none */
    char cgroup[512];                        /* its folder below the mount, cut where it is longer */
} pn_host_memory;

/* The whole of a small file, NUL-terminated and cut at size - 1 bytes; 0, or -1 when it cannot be read. */
static int pn_read_file(const char *path, char *text, size_t size) {
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    while (used < size - 1) {
        ssize_t n = read(fd, text + used, size - 1 - used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        used += (size_t)n;
    }
    close(fd);
    text[used] = 0;
    return 0;
}

/* The number after `key` at the start of a line; 0 when it is there. */
static int pn_line_value(const char *text, const char *key, uint64_t *value) {
    size_t n = strlen(key);
    for (const char *line = text; *line;) {
        if (strncmp(line, key, n) == 0 && (line[n] == ':' || line[n] == ' ')) {
            *value = strtoull(line + n + 1, NULL, 10);
            return 0;
        }
        line = strchr(line, '\n');
        if (!line) break;
        line++;
    }
    return -1;
}

static int pn_file_number(const char *folder, const char *name, uint64_t *value) {
    char path[4352], text[64], *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (pn_read_file(path, text, sizeof text) != 0) return -1;
    if (strncmp(text, "max", 3) == 0) {
        *value = UINT64_MAX;
        return 0;
    }
    *value = strtoull(text, &end, 10);
    return end == text ? -1 : 0;
}

/* One cgroup of the chain: lowers total and avail of m if it has a limit. */
static void pn_cgroup_apply(pn_host_memory *m, const char *folder, int version, size_t mount) {
    static const char *const names[2][4] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
        {"memory.max", "memory.current", "inactive_file", "active_file"},
    };
    const char *const *name = names[version - 1];
    uint64_t limit, current, inactive = 0, active = 0, avail;
    char path[4352], text[16384];
    if (pn_file_number(folder, name[0], &limit) != 0 || limit >= PN_NO_LIMIT) return;
    if (pn_file_number(folder, name[1], &current) != 0) return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (pn_read_file(path, text, sizeof text) == 0) {
        if (pn_line_value(text, name[2], &inactive) != 0) pn_line_value(text, "inactive_file", &inactive);
        if (pn_line_value(text, name[3], &active) != 0) pn_line_value(text, "active_file", &active);
    }
    current = current > inactive ? current - inactive : 0;
    current = current > active ? current - active : 0;
    avail = limit > current ? limit - current : 0;
    if (limit < m->total) m->total = limit;
    if (m->version == 0 || avail < m->limit - (m->used < m->limit ? m->used : m->limit)) {
        m->limit = limit;
        m->used = current;
        m->version = version;
        snprintf(m->cgroup, sizeof m->cgroup, "%s", folder[mount] ? folder + mount : "/");
    }
    if (avail < m->avail) m->avail = avail;
}

/* Every cgroup from base + path up to base. Folders that are not there are passed over: in a container the path is
 * often that of the host. */
static void pn_cgroup_chain(pn_host_memory *m, const char *base, const char *path, int version) {
    char folder[4224];
    size_t mount = strlen(base), n = mount + strlen(path);
    if (n + 1 >= sizeof folder) return;
    memcpy(folder, base, mount);
    memcpy(folder + mount, path, n - mount + 1);
    for (;;) {
        while (n > mount && folder[n - 1] == '/') folder[--n] = 0;
        pn_cgroup_apply(m, folder, version, mount);
        if (n <= mount) break;
        while (n > mount && folder[n - 1] != '/') folder[--n] = 0;
    }
}

static int pn_names_memory(const char *controllers, size_t n) {
    while (n) {
        const char *comma = memchr(controllers, ',', n);
        size_t length = comma ? (size_t)(comma - controllers) : n;
        if (length == 6 && memcmp(controllers, "memory", 6) == 0) return 1;
        if (!comma) break;
        controllers = comma + 1;
        n -= length + 1;
    }
    return 0;
}

/* Lines "number:controllers:path" of /proc/self/cgroup. */
static void pn_cgroups(pn_host_memory *m, const char *proc, const char *root) {
    char path[4352], text[16384], base[4224];
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    if (pn_read_file(path, text, sizeof text) != 0) return;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second) continue;
        if (second == first + 1 && strncmp(line, "0:", 2) == 0) {
            pn_cgroup_chain(m, root, second + 1, 2);
        } else if (pn_names_memory(first + 1, (size_t)(second - first - 1))) {
            snprintf(base, sizeof base, "%s/memory", root);
            pn_cgroup_chain(m, base, second + 1, 1);
        }
    }
}

/* 0, or -1 when there is no <proc>/meminfo that says anything. */
static int pn_host_memory_read(const char *proc, const char *root, pn_host_memory *m) {
    char path[4352], text[16384];
    uint64_t part, resident = 0, shared = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    memset(m, 0, sizeof *m);
    snprintf(path, sizeof path, "%s/meminfo", proc);
    if (pn_read_file(path, text, sizeof text) != 0 || pn_line_value(text, "MemTotal", &m->mem_total) != 0) return -1;
    if (pn_line_value(text, "MemAvailable", &m->mem_avail) != 0) {
        static const char *const parts[] = {"MemFree", "Buffers", "Cached"};   /* Linux before 3.14 */
        for (int i = 0; i < 3; i++)
            if (pn_line_value(text, parts[i], &part) == 0) m->mem_avail += part;
    }
    m->mem_total *= 1024;
    m->mem_avail *= 1024;
    m->total = m->mem_total;
    m->avail = m->mem_avail;
    snprintf(path, sizeof path, "%s/self/statm", proc);
    if (pn_read_file(path, text, sizeof text) == 0) {
        char *at = text;
        strtoull(at, &at, 10);
        resident = strtoull(at, &at, 10);
        shared = strtoull(at, &at, 10);
    }
    m->rss = resident * page;
    m->anon = resident > shared ? (resident - shared) * page : 0;
    pn_cgroups(m, proc, root);
    return 0;
}

/* Bytes that touching one byte of fresh memory may take. */
static uint64_t pn_touch_bytes(const char *setting) {
    char text[128];
    if (pn_read_file(setting, text, sizeof text) == 0 && strstr(text, "[always]")) return (uint64_t)2 << 20;
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Gives freed memory back to the system, where the allocator kept it. */
static void pn_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

#endif
