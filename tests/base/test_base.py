"""Arena, thread pool, thread default, log lines."""
import logging
import os
import signal
import threading

import pytest

from pantheon._core.base import arena, logging_bridge, pool, threads
from pantheon._core.memory.host import host_memory

# L, E, F, H, G, D, V, n_ctx, window, X, K -> bytes; BYTES come from the formula in Python's integers
CONFIGS = [
    (32, 4096, 11008, 32, 32, 128, 32000, 4096, 0, 0, 0),
    (32, 4096, 14336, 32, 8, 128, 128256, 8192, 0, 0, 0),
    (32, 4096, 14336, 32, 8, 128, 32000, 32768, 4096, 0, 0),
    (32, 4096, 14336, 32, 8, 128, 32000, 32768, 1024, 0, 0),
    (32, 4096, 14336, 32, 8, 128, 32000, 32768, 0, 8, 2),
    (24, 896, 4864, 14, 2, 64, 151936, 32768, 0, 0, 0),
    (28, 1536, 8960, 12, 2, 128, 151936, 32768, 0, 0, 0),
    (30, 576, 1536, 9, 3, 64, 49152, 8192, 0, 0, 0),
    (28, 1024, 3072, 16, 8, 128, 151936, 40960, 0, 0, 0),
    (48, 2048, 768, 32, 4, 128, 151936, 40960, 0, 128, 8),
    (32, 2560, 10240, 32, 32, 80, 51200, 2048, 0, 0, 0),
    (32, 3072, 8192, 32, 32, 96, 32064, 4096, 2047, 0, 0),
    (2, 64, 128, 4, 2, 16, 256, 128, 16, 4, 2),
]
BYTES = [10734820, 11830500, 11349220, 10857700, 18563300, 3380100, 5937140, 1623340, 3397620, 7076580, 8398820,
         7898500, 15860]


@pytest.mark.parametrize(("config", "expected"), list(zip(CONFIGS, BYTES, strict=True)))
def test_arena_size(config, expected):
    names = ("n_layer", "n_embd", "n_ff", "n_head", "n_kv_head", "head_dim", "n_vocab", "n_ctx", "sliding_window",
             "n_experts", "n_experts_used")
    assert arena.arena_size(**dict(zip(names, config, strict=True))) == expected


def test_arena_is_a_bump_allocator():
    a = arena.Arena(100)                 # rounded up to 112
    first = a.alloc(1)
    second = a.alloc(17)
    assert first % 16 == second % 16 == 0
    assert second - first == (32 if a.debug else 16)
    assert (a.size, a.used, a.high_water) == (112, 48, 48)
    assert a.alloc(65) is None
    assert a.alloc(2**63) is None
    assert a.used == 48
    assert a.alloc(64) is not None
    assert a.alloc(0) is None
    a.reset()
    assert (a.used, a.high_water) == (0, 112)
    assert a.alloc(5) == first


def test_arena_finds_an_overrun_in_the_debug_build():
    a = arena.Arena(256)
    a.alloc(32)
    second = a.alloc(10)
    a.alloc(32)
    a.write(second, 16)
    assert a.overrun == 0
    a.write(second, 17)                  # inside the arena in either build
    assert a.overrun == (2 if a.debug else 0)


def test_a_child_of_a_process_whose_other_threads_grow_arenas():
    """It finds the memory from before or the one from after, never what was just freed."""
    grown, stop = [arena.Arena(16)], threading.Event()

    def grow():
        while not stop.is_set():
            grown[0] = arena.Arena(16)
            grown[0].grow(1 << 24, 1 << 18)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                a = grown[0]
                a.reset()
                a.write(a.alloc(a.size), a.size)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_ranks_meet_at_barriers(n):
    hits, torn = pool.probe(n, 2000)
    assert hits == [2000] + [2000 if pool.threads_built() else 0] * (n - 1)
    assert torn == 0


def test_an_idle_pool_uses_no_cpu():
    import time

    pool.probe(2, 100)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.25


@pytest.mark.parametrize(("affinity", "quota", "cores", "expected"), [
    (16, 2.0, 16, 2), (16, 7.65, 16, 7), (16, 0.5, 16, 1), (16, None, 16, 16), (3, None, 16, 3), (16, None, 4, 4),
    (None, None, None, 1), (4, None, None, 4),
])
def test_thread_count(affinity, quota, cores, expected):
    assert threads.thread_count(affinity, quota, cores)[0] == expected


def test_quota_of_the_tightest_cgroup(tmp_path):
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (root / "a/b").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/a/b\n")
    assert threads.cgroup_quota(proc, root) is None
    (root / "a/b/cpu.max").write_text("max 100000\n")
    assert threads.cgroup_quota(proc, root) is None
    (root / "a/cpu.max").write_text("765000 100000\n")
    assert threads.cgroup_quota(proc, root) == 7.65
    (root / "a/b/cpu.max").write_text("200000 100000\n")
    assert threads.cgroup_quota(proc, root) == 2.0
    (root / "cpu/x").mkdir(parents=True)
    (proc / "self/cgroup").write_text("4:cpu,cpuacct:/x\n")
    (root / "cpu/x/cpu.cfs_quota_us").write_text("-1")
    (root / "cpu/x/cpu.cfs_period_us").write_text("100000")
    assert threads.cgroup_quota(proc, root) is None
    (root / "cpu/x/cpu.cfs_quota_us").write_text("50000")
    assert threads.cgroup_quota(proc, root) == 0.5


@pytest.mark.parametrize("groups", [b"", b"0", b"0:", b":::", b"\n\n", b"x", b"0::/\0", b"0::/\xff", b"4:cpu",
                                    b"4:cpu:/../..", b"\xff\xfe:cpu:/", b"0::" + b"/a" * 50])
@pytest.mark.parametrize("limit", [b"", b"x", b"x y", b"1", b"1 0", b"0 1", b"-1 1", b"1 2 3", b"\xff 1", b"1 1e400",
                                   b"1 " + b"9" * 5000, "\u0663 1".encode(), b"max"])
def test_quotas_that_are_none(tmp_path, groups, limit):
    """What the system says must not keep a model from loading."""
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (root / "cpu").mkdir(parents=True)
    (proc / "self/cgroup").write_bytes(groups)
    (root / "cpu.max").write_bytes(limit)
    (root / "cpu/cpu.cfs_quota_us").write_bytes(limit)
    (root / "cpu/cpu.cfs_period_us").write_bytes(limit)
    assert threads.cgroup_quota(proc, root) in (None, 0.5, 1.0)
    (proc / "cpuinfo").write_bytes(limit + groups)
    assert threads.physical_cores(proc / "cpuinfo") is None
    (proc / "meminfo").write_bytes(b"MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    for name in ("memory.max", "memory.current", "memory.stat"):
        (root / name).write_bytes(limit)
    assert host_memory(proc, root)["total"] <= 102400


def test_log_lines_reach_the_python_logger(caplog, capfd):
    with caplog.at_level(logging.INFO, logger="pantheon"):
        logging_bridge.emit(logging.WARNING, "100 % h\u00e9llo")
        logging_bridge.uninstall()
        logging_bridge.emit(logging.WARNING, "not heard")
        logging_bridge.install()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", "100 % h\u00e9llo")]
    assert capfd.readouterr() == ("", "")
