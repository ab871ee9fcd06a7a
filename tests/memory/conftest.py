"""A made-up machine: trees like /proc and /sys/fs/cgroup in a temporary folder, which memwatch reads."""
import struct

import pytest

from pantheon._core.memory import ladder, memwatch

GIB = 1 << 30


class Machine:
    def __init__(self, folder):
        self.proc, self.cgroup = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.cgroup.mkdir()
        self.groups("0::/\n")
        self.process(rss=0, shared=0)

    def memory(self, total, available):
        """meminfo in whole KiB; then memwatch looks."""
        (self.proc / "meminfo").write_text(f"MemTotal:       {total >> 10} kB\nMemFree:        1 kB\n"
                                           f"MemAvailable:   {available >> 10} kB\nBuffers:        2 kB\n")
        memwatch.sample()

    def process(self, rss, shared):
        (self.proc / "self/statm").write_text(f"9999 {rss >> 12} {shared >> 12} 1 0 2 0\n")

    def groups(self, text):
        (self.proc / "self/cgroup").write_text(text)

    def v2(self, path, limit, current, inactive=0, active=0):
        folder = self.cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{current}\n")
        (folder / "memory.stat").write_text(f"anon 123\nfile 99\nactive_file {active}\ninactive_file {inactive}\n")

    def v1(self, path, limit, current, inactive=0, active=0):
        folder = self.cgroup / "memory" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (folder / "memory.usage_in_bytes").write_text(f"{current}\n")
        (folder / "memory.stat").write_text("cache 1\ninactive_file 7\nactive_file 7\n"
                                            f"total_inactive_file {inactive}\ntotal_active_file {active}\n")

    def host(self):
        return memwatch.host_memory(self.proc, self.cgroup)


@pytest.fixture
def tree(tmp_path):
    """A made-up machine that memwatch does not look at."""
    return Machine(tmp_path)


@pytest.fixture
def machine(tmp_path):
    """A made-up machine of 64 GiB, all of it available, that memwatch looks at. The level before is OK."""
    fake = Machine(tmp_path)
    (fake.proc / "meminfo").write_text("MemTotal: 1 kB\n")      # configure samples
    memwatch.configure(fake.proc, fake.cgroup)
    memwatch.start()
    fake.memory(64 * GIB, 64 * GIB)
    yield fake
    ladder.configure()
    memwatch.configure()
    memwatch.start()


@pytest.fixture
def long_context(tmp_path, llama):
    """A tiny model whose file allows a context of 32768."""
    data = bytearray(llama.read_bytes())
    key = b"llama.context_length" + struct.pack("<I", 4)
    at = data.index(key) + len(key)
    data[at:at + 4] = struct.pack("<I", 32768)
    path = tmp_path / "long.gguf"
    path.write_bytes(data)
    return path
