"""What /proc and the cgroup tree say, on made-up machines."""
import sys
from types import SimpleNamespace

import pytest

import pantheon
from pantheon._core.base import pool, threads
from pantheon._core.memory import memwatch
from pantheon._core.memory.host import host_memory

GIB = 1 << 30


def test_without_a_limit_it_is_the_machine(tree):
    tree.memory(16 * GIB, 5 * GIB)
    tree.process(rss=3 * GIB, shared=2 * GIB)
    host = tree.host()
    assert (host["total"], host["available"]) == (16 * GIB, 5 * GIB)
    assert (host["rss"], host["anonymous"]) == (3 * GIB, 1 * GIB)
    assert host["cgroup_limit"] is None and host["cgroup"] is None


def test_page_cache_is_not_used_memory(tree):
    """6 GiB of page cache under a limit of 8 GiB: 7 GiB are free, not 1."""
    tree.memory(64 * GIB, 50 * GIB)
    tree.groups("0::/box\n")
    tree.v2("box", 8 * GIB, 7 * GIB, inactive=4 * GIB, active=2 * GIB)
    host = tree.host()
    assert (host["total"], host["available"]) == (8 * GIB, 7 * GIB)
    assert (host["cgroup_limit"], host["cgroup_used"], host["cgroup_version"]) == (8 * GIB, 1 * GIB, 2)
    assert host["cgroup"] == "/box"


def test_a_limit_of_max_is_none(tree):
    tree.memory(16 * GIB, 5 * GIB)
    tree.groups("0::/box\n")
    tree.v2("box", "max", 7 * GIB)
    assert (tree.host()["total"], tree.host()["available"]) == (16 * GIB, 5 * GIB)


def test_a_tighter_parent_counts(tree):
    tree.memory(64 * GIB, 60 * GIB)
    tree.groups("0::/pod/box\n")
    tree.v2("pod/box", 32 * GIB, 1 * GIB)
    tree.v2("pod", 8 * GIB, 6 * GIB, inactive=1 * GIB)
    host = tree.host()
    assert (host["total"], host["available"], host["cgroup"]) == (8 * GIB, 3 * GIB, "/pod")
    tree.v2("pod/box", 4 * GIB, 2 * GIB)
    assert (tree.host()["total"], tree.host()["available"]) == (4 * GIB, 2 * GIB)


def test_total_and_available_may_come_from_different_groups(tree):
    tree.memory(64 * GIB, 60 * GIB)
    tree.groups("0::/pod/box\n")
    tree.v2("pod/box", 4 * GIB, 1 * GIB)
    tree.v2("pod", 8 * GIB, 7 * GIB)
    assert (tree.host()["total"], tree.host()["available"]) == (4 * GIB, 1 * GIB)


def test_over_the_limit_leaves_nothing(tree):
    tree.memory(64 * GIB, 60 * GIB)
    tree.groups("0::/box\n")
    tree.v2("box", 4 * GIB, 5 * GIB)
    assert tree.host()["available"] == 0
    tree.v2("box", 4 * GIB, 1 * GIB, inactive=3 * GIB)      # counters are read one after the other
    assert tree.host()["available"] == 4 * GIB


@pytest.mark.parametrize("line", ["4:memory:/docker/abc", "7:cpu,memory,pids:/docker/abc", "7:memory,pids:/docker/abc"])
def test_v1(tree, line):
    tree.memory(64 * GIB, 50 * GIB)
    tree.groups(f"9:name=systemd:/\n{line}\n0::/\n")
    tree.v1("docker/abc", 8 * GIB, 7 * GIB, inactive=4 * GIB, active=2 * GIB)
    host = tree.host()
    assert (host["total"], host["available"], host["cgroup_version"]) == (8 * GIB, 7 * GIB, 1)
    tree.v1("docker/abc", 2**63 - 4096, 7 * GIB)
    assert tree.host()["available"] == 50 * GIB


def test_v1_other_controllers_do_not_count(tree):
    tree.memory(64 * GIB, 50 * GIB)
    tree.groups("4:memoryless,cpu:/box\n")
    tree.v1("box", 1 * GIB, 0)
    assert tree.host()["available"] == 50 * GIB


def test_in_a_container_the_path_is_the_hosts(tree):
    """Folders of the path that are not there are passed over; the root of the mount is the container's own group."""
    tree.memory(64 * GIB, 50 * GIB)
    tree.groups("4:memory:/docker/0123456789\n0::/docker/0123456789\n")
    tree.v1("", 8 * GIB, 2 * GIB)
    assert (tree.host()["total"], tree.host()["available"]) == (8 * GIB, 6 * GIB)
    tree.v2("", 4 * GIB, 1 * GIB)
    assert (tree.host()["total"], tree.host()["available"], tree.host()["cgroup"]) == (4 * GIB, 3 * GIB, "/")


@pytest.mark.parametrize("content", ["", "garbage", "0::", "0::" + "/x" * 9000, ":::\n::\n", "4:memory\n",
                                     "\n\n0::/box"])
def test_odd_group_files(tree, content):
    tree.memory(16 * GIB, 5 * GIB)
    tree.groups(content)
    tree.v2("box", "eight", 0)
    assert (tree.host()["total"], tree.host()["available"]) == (16 * GIB, 5 * GIB)


def test_meminfo_of_old_kernels(tree):
    (tree.proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 3 kB\nDirty: 9\n")
    assert tree.host()["available"] == 123 * 1024


def test_no_meminfo(tree):
    assert tree.host() is None


def test_paths_that_cannot_be(tmp_path):
    for arguments in ({"proc": "a\0b"}, {"cgroup": "x" * 5000}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            host_memory(**arguments)


def test_the_users_limit(machine):
    """A limit counts what is not backed by files: the mapped model is not the process's own."""
    machine.process(rss=5 * GIB, shared=4 * GIB)
    memwatch.configure(machine.proc, machine.cgroup, limit=3 * GIB)
    state = memwatch.read()
    assert (state["host_total"], state["host_avail"], state["host_rss"]) == (3 * GIB, 2 * GIB, 5 * GIB)
    machine.process(rss=9 * GIB, shared=0)
    memwatch.sample()
    assert memwatch.read()["host_avail"] == 0
    machine.memory(64 * GIB, 1 * GIB)
    machine.process(rss=0, shared=0)
    memwatch.sample()
    assert memwatch.read()["host_avail"] == 1 * GIB


@pytest.mark.parametrize("limit", [0, -1, 2**63])
def test_limits_that_cannot_be(machine, limit):
    with pytest.raises(ValueError, match=rf"memory limit is {limit}, not in 1\.\.4611686018427387904"):
        memwatch.configure(limit=limit)


def test_psutil_where_there_is_no_proc(machine, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(
        virtual_memory=lambda: SimpleNamespace(total=8 * GIB, available=3 * GIB),
        Process=lambda: SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=GIB))))
    memwatch.configure(tmp_path / "none", tmp_path / "none")
    state = memwatch.read()
    assert (state["host_total"], state["host_avail"], state["host_rss"]) == (8 * GIB, 3 * GIB, GIB)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["psutil"], "virtual_memory", lambda: exec("raise KeyboardInterrupt"))
        for call in (memwatch.sample, memwatch.trim, lambda: memwatch.configure(tmp_path / "none", tmp_path / "none")):
            with pytest.raises(KeyboardInterrupt):
                call()
    monkeypatch.setitem(sys.modules, "psutil", None)
    memwatch.sample()
    assert (memwatch.read()["host_total"], memwatch.read()["level"]) == (0, "OK")


@pytest.mark.parametrize(("cpu_max", "expected"), [("200000 100000", 2), ("765000 100000", 7), ("50000 100000", 1),
                                                   ("max 100000", 16)])
def test_threads_of_a_quota(tree, cpu_max, expected):
    tree.groups("0::/box\n")
    (tree.cgroup / "box").mkdir()
    (tree.cgroup / "box/cpu.max").write_text(cpu_max + "\n")
    assert threads.thread_count(16, threads.cgroup_quota(tree.proc, tree.cgroup), 16)[0] == expected


def test_a_tighter_parent_s_quota_counts(tree):
    tree.groups("0::/pod/box\n")
    (tree.cgroup / "pod/box").mkdir(parents=True)
    (tree.cgroup / "pod/box/cpu.max").write_text("800000 100000\n")
    (tree.cgroup / "pod/cpu.max").write_text("300000 100000\n")
    assert threads.cgroup_quota(tree.proc, tree.cgroup) == 3.0
    (tree.cgroup / "pod/box/cpu.max").write_text("100000 100000\n")
    assert threads.cgroup_quota(tree.proc, tree.cgroup) == 1.0


def test_a_v1_quota(tree):
    tree.groups("4:memory:/box\n3:cpu,cpuacct:/box\n")
    folder = tree.cgroup / "cpu/box"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    for quota, expected in (("250000", 2.5), ("-1", None), ("many", None)):
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        assert threads.cgroup_quota(tree.proc, tree.cgroup) == expected
    tree.groups("garbage")
    with_nothing = threads.cgroup_quota(tree.proc / "none", tree.cgroup)
    assert with_nothing is None


@pytest.mark.parametrize(("affinity", "quota", "cores", "expected"), [
    (16, None, 8, (8, "physical cores")), (4, None, 8, (4, "CPUs this process may run on")),
    (16, 0.25, 16, (1, "CPU quota of the container")), (None, None, None, (1, None)), (3, 3.9, None, (3, None)),
])
def test_the_least_of_three_numbers(affinity, quota, cores, expected):
    n, reason = threads.thread_count(affinity, quota, cores)
    assert n == expected[0] and (expected[1] is None or reason == expected[1])


def test_hyper_threads_count_once(tmp_path):
    block = "processor\t: {}\nphysical id\t: {}\ncore id\t\t: {}\nflags\t\t: fpu\n"
    (tmp_path / "cpuinfo").write_text("\n".join(block.format(i, i // 8, i // 2 % 4) for i in range(16)))
    assert threads.physical_cores(tmp_path / "cpuinfo") == 8
    (tmp_path / "cpuinfo").write_text("processor : 0\nBogoMIPS : 50\n")
    assert threads.physical_cores(tmp_path / "cpuinfo") is None
    assert threads.physical_cores(tmp_path / "none") is None


def test_an_explicit_number_of_threads_wins(llama, monkeypatch):
    monkeypatch.setattr(threads, "default_threads", lambda: 1)
    with pantheon.load(llama, threads=3) as model:
        assert model.threads == (3 if pool.threads_built() else 1)
