"""A made-up machine: trees like /proc and /sys/fs/cgroup in a temporary folder, which memwatch reads."""
import struct

import gguf
import numpy as np
import pytest

from pantheon._core.memory import ladder, memwatch
from pantheon._core.memory.host import host_memory

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
        return host_memory(self.proc, self.cgroup)


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


@pytest.fixture(scope="session")
def wide(tmp_path_factory):
    """A model that computes little and keeps much: 64 KiB of f32 cache per token, a context of 8192."""
    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    n_embd, n_layer, n_head, head_dim, n_ff = 32, 4, 8, 256, 32
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(n_layer)
    writer.add_context_length(8192)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3, *([6] * 256)])
    rng = np.random.default_rng(5)

    def add(name, *shape):
        writer.add_tensor(name, (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))

    add("token_embd.weight", len(tokens), n_embd)
    add("output_norm.weight", n_embd)
    for i in range(n_layer):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{i}.{name}.weight", n_embd)
        for name in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.{i}.{name}.weight", n_head * head_dim, n_embd)
        add(f"blk.{i}.attn_output.weight", n_embd, n_head * head_dim)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{i}.{name}.weight", n_ff, n_embd)
        add(f"blk.{i}.ffn_down.weight", n_embd, n_ff)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
