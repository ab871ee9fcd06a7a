"""The ladder: from how much memory is free to what is to be done about it.

rung  from      what
1     WATCH     idle prefix-cache entries go
2     WATCH     new KV caches whose type was left open are q8_0
3     TIGHT     shorter prefill calls
4     TIGHT     idle models go
5     CRITICAL  max_tokens is capped to what fits
6     CRITICAL  new work is denied when nothing is left
"""
import math

from libc.stdint cimport uint64_t
from libc.string cimport memset

from pantheon._core.base.report cimport pn_set_error
from pantheon._core.types cimport (
    PN_KV_DEFAULT,
    PN_KV_Q8_0,
    PN_MEM_CRITICAL,
    PN_MEM_OK,
    PN_MEM_TIGHT,
    PN_MEM_WATCH,
    pn_ladder_plan,
    pn_mem_level,
    pn_mem_state,
)

LEVELS = ("OK", "WATCH", "TIGHT", "CRITICAL")
DEFAULTS = {"watch": 0.20, "tight": 0.12, "critical": 0.06, "leave": 0.02, "keep": 0.02,
            "window": 16384, "window_tight": 8192, "window_critical": 4096}

cdef struct pn_ladder_config:            # fractions of the total
    double enter[4]                      # a level is entered below this free fraction; [0] is unused
    double leave                         # how much more it takes to leave it
    double keep                          # the part that new work never gets
    int window[4]                        # most tokens of one prefill call, per level

cdef pn_ladder_config the_config


def configure(**changes):
    """Sets thresholds of this process, all of them: what is not given gets its default (see DEFAULTS).

    watch > tight > critical > 0 are the free fractions below which a level is entered; leave is how much more it takes
    to leave it; keep, below critical, is the fraction that new work never gets; window, window_tight and
    window_critical are the most tokens of one prefill call. ValueError or TypeError naming the argument.
    """
    unknown = changes.keys() - DEFAULTS.keys()
    if unknown:
        raise TypeError(f"unknown threshold {min(unknown)!r}; known: {', '.join(DEFAULTS)}")
    c = {**DEFAULTS, **changes}
    for name in ("watch", "tight", "critical", "leave", "keep"):
        if not (math.isfinite(c[name]) and 0 <= c[name] < 1):
            raise ValueError(f"{name} is {c[name]}, not in 0..1")
    if not c["watch"] > c["tight"] > c["critical"] > c["keep"]:
        raise ValueError("thresholds are not watch > tight > critical > keep")
    for name in ("window", "window_tight", "window_critical"):
        if not 1 <= c[name] < 2**31:
            raise ValueError(f"{name} is {c[name]}, not in 1..{2**31 - 1}")
    if not c["window"] >= c["window_tight"] >= c["window_critical"]:
        raise ValueError("windows are not window >= window_tight >= window_critical")
    the_config.enter[<int>PN_MEM_WATCH] = c["watch"]
    the_config.enter[<int>PN_MEM_TIGHT] = c["tight"]
    the_config.enter[<int>PN_MEM_CRITICAL] = c["critical"]
    the_config.leave = c["leave"]
    the_config.keep = c["keep"]
    the_config.window[<int>PN_MEM_OK] = the_config.window[<int>PN_MEM_WATCH] = c["window"]
    the_config.window[<int>PN_MEM_TIGHT] = c["window_tight"]
    the_config.window[<int>PN_MEM_CRITICAL] = c["window_critical"]


configure()


cdef pn_mem_level level_of(const pn_ladder_config *c, double free_fraction, pn_mem_level before) noexcept nogil:
    cdef int level = PN_MEM_OK, i
    for i in range(<int>PN_MEM_WATCH, <int>PN_MEM_CRITICAL + 1):
        if free_fraction < c.enter[i] + (c.leave if <int>before >= i else 0.0):
            level = i
    return <pn_mem_level>level


cdef inline double signed_free(uint64_t avail, uint64_t reserved) noexcept nogil:
    return <double>avail - <double>reserved


cdef pn_mem_level pn_ladder_level_of(uint64_t avail, uint64_t reserved, uint64_t total,
                                     pn_mem_level before) noexcept nogil:
    if total == 0:
        return PN_MEM_OK
    return level_of(&the_config, signed_free(avail, reserved) / <double>total, before)


cdef uint64_t pn_ladder_have(uint64_t avail, uint64_t reserved, uint64_t total) noexcept nogil:
    cdef uint64_t kept = <uint64_t>(the_config.keep * <double>total)
    if reserved >= avail or kept >= avail - reserved:
        return 0
    return avail - reserved - kept


cdef uint64_t missing(const pn_mem_state *st, double fraction) noexcept nogil:
    """Bytes that must come back for this free fraction."""
    cdef double bytes = fraction * <double>st.host_total - signed_free(st.host_avail, st.host_reserved)
    return <uint64_t>bytes if bytes > 0 else 0


cdef void pn_ladder_plan_from_state(const pn_mem_state *st, pn_ladder_plan *plan) noexcept nogil:
    cdef const pn_ladder_config *c = &the_config
    cdef int level
    if plan != NULL:
        memset(plan, 0, sizeof(pn_ladder_plan))
    if st == NULL or plan == NULL:
        pn_set_error(b"state or plan is NULL")
        return
    level = <int>min(st.level, <uint64_t>PN_MEM_CRITICAL)
    plan.level = <pn_mem_level>level
    plan.kv_type = PN_KV_DEFAULT
    plan.prefill_window = c.window[level]
    if level >= PN_MEM_WATCH:
        plan.evict_bytes = missing(st, c.enter[<int>PN_MEM_WATCH] + c.leave)
        plan.kv_type = PN_KV_Q8_0
    if level >= PN_MEM_TIGHT:
        plan.unload_bytes = missing(st, c.enter[<int>PN_MEM_TIGHT] + c.leave)
    if level >= PN_MEM_CRITICAL:
        plan.cap = True
        plan.deny = pn_ladder_have(st.host_avail, st.host_reserved, st.host_total) == 0


# ---- for tests -------------------------------------------------------------------------------------------------------

def level(double free_fraction, str before="OK"):
    """The level of a free fraction, given the level before."""
    return LEVELS[<int>level_of(&the_config, free_fraction, <pn_mem_level><int>LEVELS.index(before))]


def plan(str level, *, total, avail, reserved=0):
    """pn_ladder_plan_from_state of a host in this condition, as a dict."""
    cdef pn_mem_state st
    cdef pn_ladder_plan p
    memset(&st, 0, sizeof(st))
    st.host_total, st.host_avail, st.host_reserved, st.level = total, avail, reserved, LEVELS.index(level)
    pn_ladder_plan_from_state(&st, &p)
    return {"level": LEVELS[<int>p.level], "evict_bytes": p.evict_bytes, "q8_0": p.kv_type == PN_KV_Q8_0,
            "prefill_window": p.prefill_window, "unload_bytes": p.unload_bytes, "cap": bool(p.cap),
            "deny": bool(p.deny)}
