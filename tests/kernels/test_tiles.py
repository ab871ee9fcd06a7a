"""Matrix x matrix tiles against the plain C definition, bit for bit.

A float type is compared with its own level's vector product: its sums have one fixed order per level.
"""
import ctypes
import mmap

import numpy as np
import pytest
from support import kernel_weights as weights

from pantheon._core.kernels import table
from pantheon._core.probes import tiles as probe_tiles

F32_TYPES = weights.FLOATS
QUANTISED = weights.QUANTISED
# bytes of the integer scales that have bytes of their own
SUB_SCALE_BYTES = {"Q2_K": (0, 16), "Q3_K": (96, 108), "Q4_K": (4, 16), "Q5_K": (4, 16), "Q6_K": (192, 208),
                   "IQ4_XS": (2, 8), "IQ2_XS": (66, 74), "IQ2_S": (74, 82), "IQ3_S": (106, 110)}
TILE_LEVELS = [level for level in table.levels_supported() if level != "ref"]
CASES = [(level, name) for level in TILE_LEVELS for name in F32_TYPES + QUANTISED
         if table.type_info(name, level)["has_tile"]]


def random_rows(rng, type_name, n_rows, n, pattern=None):
    """(n_rows, row bytes) uint8 with finite scales; pattern: every other byte of a block."""
    if type_name in F32_TYPES:
        return weights.random_rows(rng, type_name, n_rows, n)
    size, nbytes = weights.block_size(type_name)
    shape = (n_rows, n // size)
    row_shape = (n_rows, n // size * nbytes)
    rows = rng.integers(0, 256, row_shape, np.uint8) if pattern is None else np.full(row_shape, pattern, np.uint8)
    weights.set_scales(type_name, rows, [rng.standard_normal(shape) * 0.01 for _ in range(2)])
    return rows


def random_input(rng, type_name, n_tok, n, codes=None):
    """Activations as the engine prepares them: codes, scales and sums that belong together."""
    act = table.type_info(type_name)["act"]
    if act == "f32":
        return probe_tiles.Activations(n, n_tok, f=rng.standard_normal((n_tok, n)).astype(np.float32))
    q = rng.integers(-127, 128, (n_tok, n)).astype(np.int8) if codes is None else codes
    size = 32 if act == "q32" else 256
    d = rng.uniform(0.001, 0.1, (n_tok, n // size)).astype(np.float32)
    if act == "q32":
        bsum = q.reshape(n_tok, -1, 32).sum(2, dtype=np.int32)
        return probe_tiles.Activations(n, n_tok, q=q, d=d, s=d * bsum.astype(np.float32), bsum=bsum)
    return probe_tiles.Activations(n, n_tok, q=q, d=d, sum=q.reshape(n_tok, -1, 16).sum(2, dtype=np.int16))


def laid_out(rows, offset=0, gap=0):
    """The rows' bytes in memory that ends with the last row, and the distance between rows."""
    n_rows, row_bytes = rows.shape
    stride = row_bytes + gap
    memory = probe_tiles.aligned_bytes(n_rows * stride - gap, offset)
    for r in range(n_rows):
        memory[r * stride:r * stride + row_bytes] = rows[r]
        memory[r * stride + row_bytes:(r + 1) * stride] = 0xA5
    return memory, stride


def assert_equal_to_vectors(level, type_name, rows, n, x, offset=0, gap=0, tile_tok=0):
    w, stride = laid_out(rows, offset, gap)
    n_rows = len(rows)
    got = probe_tiles.matmul(level, type_name, w, stride, n_rows, n, x, tile_tok)
    definition = level if type_name in F32_TYPES else "ref"
    expected = probe_tiles.vector_products(definition, type_name, w, stride, n_rows, n, x)
    assert np.isfinite(expected).all() and np.any(expected)
    np.testing.assert_array_equal(got[:, :n_rows].view(np.uint32), expected.view(np.uint32))
    assert not got[:, n_rows:].view(np.uint32).any(), "rows past the end are not zero"


def lengths(type_name):
    if type_name in F32_TYPES:
        return [1, 5, 7, 8, 9, 16, 24, 31, 32, 33, 40, 63, 64, 100, 257]
    block = table.type_info(type_name)["block"]
    return [block * k for k in (1, 2, 3, 5, 7)] + ([576] if block == 32 else [])


def test_levels_above_ref_have_tiles():
    """Those of x86-64 for every type, those of AArch64 for the common ones."""
    common = {*F32_TYPES, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"}
    for level in TILE_LEVELS:
        wanted = common if level in ("neon", "dotprod") else {*F32_TYPES, *QUANTISED}
        assert {name for name in wanted if (level, name) in CASES} == wanted
        assert all(probe_tiles.tile_info(level, name)["tile_tok"] >= 1 for name in wanted)


@pytest.mark.parametrize("level, type_name", CASES)
def test_every_token_count(level, type_name):
    rng = np.random.default_rng(1)
    n = 4 * table.type_info(type_name)["block"] if type_name not in F32_TYPES else 100
    rows = random_rows(rng, type_name, 16, n)
    for n_tok in range(1, 21):
        assert_equal_to_vectors(level, type_name, rows, n, random_input(rng, type_name, n_tok, n))


@pytest.mark.parametrize("level, type_name", CASES)
def test_every_length(level, type_name):
    rng = np.random.default_rng(2)
    for n in lengths(type_name):
        rows = random_rows(rng, type_name, 16, n)
        assert_equal_to_vectors(level, type_name, rows, n, random_input(rng, type_name, 7, n))


@pytest.mark.parametrize("level, type_name", CASES)
def test_every_row_count(level, type_name):
    rng = np.random.default_rng(3)
    n = table.type_info(type_name)["block"] * 3 if type_name not in F32_TYPES else 77
    for n_rows in (*range(1, 17), 17, 31, 32, 47):
        rows = random_rows(rng, type_name, n_rows, n)
        assert_equal_to_vectors(level, type_name, rows, n, random_input(rng, type_name, 3, n))


@pytest.mark.parametrize("level, type_name", CASES)
def test_unaligned_rows_with_gaps(level, type_name):
    rng = np.random.default_rng(4)
    n = table.type_info(type_name)["block"] * 2 if type_name not in F32_TYPES else 90
    rows = random_rows(rng, type_name, 19, n)
    x = random_input(rng, type_name, 5, n)
    for offset in (1, 2, 3, 7, 31, 32, 63):
        assert_equal_to_vectors(level, type_name, rows, n, x, offset=offset, gap=offset % 5)


def before_guard_page(rows):
    """A copy of the rows' bytes that ends right before a page that cannot be read."""
    page = mmap.PAGESIZE
    n_pages = -(-rows.size // page)
    memory = mmap.mmap(-1, (n_pages + 1) * page)
    whole = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    guard = ctypes.c_void_p(whole.ctypes.data + n_pages * page)
    assert libc.mprotect(guard, ctypes.c_size_t(page), 0) == 0, ctypes.get_errno()
    copy = whole[n_pages * page - rows.size:n_pages * page]
    copy[:] = rows.reshape(-1)
    return copy


@pytest.mark.parametrize("level, type_name", CASES)
def test_nothing_is_read_past_the_last_row(level, type_name):
    rng = np.random.default_rng(8)
    for n_rows in (1, 9, 16, 21):
        for n in lengths(type_name):
            rows = random_rows(rng, type_name, n_rows, n)
            w = before_guard_page(rows)
            x = random_input(rng, type_name, 1, n)
            got = probe_tiles.matmul(level, type_name, w, rows.shape[1], n_rows, n, x)
            assert np.isfinite(got).all() and np.any(got)


@pytest.mark.parametrize("level, type_name", CASES)
def test_result_does_not_depend_on_the_tile(level, type_name):
    rng = np.random.default_rng(5)
    n = table.type_info(type_name)["block"] * 2 if type_name not in F32_TYPES else 72
    rows = random_rows(rng, type_name, 16, n)
    x = random_input(rng, type_name, 13, n)
    for tile_tok in range(1, probe_tiles.tile_info(level, type_name)["tile_tok"] + 1):
        assert_equal_to_vectors(level, type_name, rows, n, x, tile_tok=tile_tok)


@pytest.mark.parametrize("level, type_name", CASES)
def test_parts_give_the_bits_of_whole_rows(level, type_name):
    """Columns by parts and several panels at once, where a level has them; also an odd panel and a short last part."""
    rng = np.random.default_rng(8)
    n = 1280
    rows = random_rows(rng, type_name, 48, n)
    for n_tok in (1, 16, 37, 100):
        x = random_input(rng, type_name, n_tok, n)
        w, stride = laid_out(rows, 3, 5)
        expected = probe_tiles.matmul(level, type_name, w, stride, 48, n, x)
        for columns, panels in ((256, 1), (512, 2), (1280, 3), (2048, 4)):
            got = probe_tiles.matmul_parts(level, type_name, w, stride, 48, n, x, columns, panels)
            if got is None:
                assert level != "amx" or type_name in (*F32_TYPES, "NVFP4")
                return
            np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


# bytes that stand for nothing but zeros would prove nothing
ALL_ZERO = {("Q8_0", 0), ("MXFP4", 0), ("NVFP4", 0), ("MXFP4", 0x80), ("NVFP4", 0x80), ("TQ1_0", 0x80)}
EXTREMES = [(*case, codes) for case in CASES if case[1] not in F32_TYPES
            for codes in (0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x77) if (case[1], codes) not in ALL_ZERO]


@pytest.mark.parametrize("level, type_name, pattern", EXTREMES)
def test_extreme_operands(level, type_name, pattern):
    """All codes and all integer scales at an end of their range against inputs at an end of theirs: every partial sum
    reaches the largest size it can have, with both signs."""
    rng = np.random.default_rng(6)
    n = table.type_info(type_name)["block"] * 3
    rows = random_rows(rng, type_name, 16, n, pattern)
    if type_name in SUB_SCALE_BYTES:
        begin, end = SUB_SCALE_BYTES[type_name]
        scales = np.array([0xFF, 0x80, 0x7F, 0x00] * 4, np.uint8)
        rows.reshape(16, 3, -1)[:, :, begin:end] = scales[:, None, None]
    k = np.arange(n)
    signs = [np.ones(n), -np.ones(n), (-1.0) ** k, (-1.0) ** (k // 2), -((-1.0) ** (k // 2)), np.where(k % 4 < 2, 1, 0),
             np.where(k % 4 < 2, 0, -1), np.where(k % 7 < 3, 1, -1)]
    codes = (127 * np.array(signs)).astype(np.int8)
    assert_equal_to_vectors(level, type_name, rows, n, random_input(rng, type_name, len(codes), n, codes))


@pytest.mark.parametrize("level", TILE_LEVELS)
def test_types_with_the_same_packing_share_it(level):
    def packs(*names):
        return {probe_tiles.tile_info(level, name)["pack"] for name in names if (level, name) in CASES}

    assert len(packs("Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", "Q1_0", "Q2_0")) == 1
    assert len(packs("Q8_0", "IQ4_NL")) == 1
    assert len(packs("Q4_K", "Q5_K", "Q6_K", "Q3_K", "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0")) == 1
    assert len(packs("IQ4_XS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS")) <= 1
    assert len(packs(*F32_TYPES)) == 1
    apart = [name for name in ("Q4_0", "NVFP4", "Q4_K", "Q2_K", "F32") if (level, name) in CASES]
    assert len(packs(*apart)) == len(apart)
    tiled = [name for name in F32_TYPES + QUANTISED if (level, name) in CASES]
    for name in tiled:  # shared packed input has one token count
        same = [other for other in tiled if packs(other) == packs(name)]
        assert len({probe_tiles.tile_info(level, other)["tile_tok"] for other in same}) == 1


def test_errors_name_what_is_wrong():
    x = random_input(np.random.default_rng(7), "Q4_0", 1, 32)
    with pytest.raises(ValueError, match="no tile at level ref"):
        probe_tiles.matmul("ref", "Q4_0", np.zeros(18, np.uint8), 18, 1, 32, x)
    with pytest.raises(ValueError, match="unknown weight type 'Q9'"):
        probe_tiles.tile_info("ref", "Q9")
    if "avx2" in TILE_LEVELS:
        with pytest.raises(ValueError, match="17 bytes do not hold"):
            probe_tiles.matmul("avx2", "Q4_0", np.zeros(17, np.uint8), 18, 1, 32, x)
