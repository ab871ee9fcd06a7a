"""safetensors files and sharded sets (see safetensors.pxd for the contract).

Layout: u64 length of the header, the header (JSON: name -> dtype, shape, data_offsets), the data. As the format
demands, tensors fill the data section without gaps or overlaps.
"""
import os
from collections import namedtuple

import numpy as np

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strlen

from pantheon._core.files.bounded_json cimport json_file, json_parse
from pantheon._core.files.mapping cimport pn_mapping, pn_mapping_close, pn_mapping_open, pn_mappings_check
from pantheon._core.files.name_index cimport (
    name_bytes,
    name_index,
    name_index_add,
    name_index_find,
    name_index_free,
    name_text,
)
from pantheon._core.kernels.table cimport PN_BF16, PN_F16, PN_F32, PN_F64, PN_I16, PN_I32, PN_I64, PN_I8
from pantheon._core.types cimport tm_tensor

from pantheon.regular_file import refuse_lfs_pointer

cdef enum:
    MAX_HEADER = 32 << 20                # bytes; a model of 30000 tensors needs 4 MiB
    MAX_VALUES = 4 << 20                 # JSON values of a header or index
    MAX_DEPTH = 3                        # header, tensor, its lists
    MAX_SHARDS = 4096
    MAX_FILE_NAME = 255                  # what file systems take

INDEX_SUFFIX = ".safetensors.index.json"
# dtype -> (type number, bytes)
DTYPES = {
    "F64": (PN_F64, 8), "F32": (PN_F32, 4), "F16": (PN_F16, 2), "BF16": (PN_BF16, 2), "I64": (PN_I64, 8),
    "I32": (PN_I32, 4), "I16": (PN_I16, 2), "I8": (PN_I8, 1), "U8": (ST_U8, 1), "U16": (ST_U16, 2),
    "U32": (ST_U32, 4), "U64": (ST_U64, 8), "BOOL": (ST_BOOL, 1), "F8_E4M3": (ST_F8_E4M3, 1),
    "F8_E5M2": (ST_F8_E5M2, 1),
}
DTYPE_NAMES = {number: name for name, (number, _) in DTYPES.items()}


cdef bint is_size(object value):
    return type(value) is int and 0 <= value < 2**62


cdef int fill_tensor(tm_tensor *t, str path, str name, dict info, const uint8_t *data, size_t size, size_t at,
                     size_t *begin, size_t *end) except -1:
    """One entry of the header. data: (size,) bytes of the data section, which starts at byte `at` of the file."""
    cdef int i
    cdef size_t nbytes, element
    what = f"{path}: tensor {name[:200]!r}"
    if set(info) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{what} must have dtype, shape and data_offsets, not {', '.join(map(repr, info))[:200]}")
    if not isinstance(info["dtype"], str) or info["dtype"] not in DTYPES:
        raise ValueError(f"{what} has dtype {str(info['dtype'])[:40]!r}; known: {', '.join(DTYPES)}")
    shape, offsets = info["shape"], info["data_offsets"]
    if not isinstance(shape, list) or len(shape) > 16 or not all([is_size(d) for d in shape]):
        raise ValueError(f"{what} has shape {str(shape)[:100]}, not a list of at most 16 sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all([is_size(o) for o in offsets]):
        raise ValueError(f"{what} has data_offsets {str(offsets)[:100]}, not two offsets")
    if not offsets[0] <= offsets[1] <= size:
        raise ValueError(f"{what} has data_offsets {offsets}, not a range within the {size} bytes of data")
    t.type, element = DTYPES[info["dtype"]]
    count = 1
    for d in shape:
        count *= d
        if count > size:
            break
    if count > size or count * element != offsets[1] - offsets[0]:
        raise ValueError(f"{what} of shape {shape} and dtype {info['dtype']} does not fill the "
                         f"{offsets[1] - offsets[0]} bytes of its data_offsets")
    if (at + offsets[0]) % element != 0:
        raise ValueError(f"{what}: {info['dtype']} data at byte {at + offsets[0]} of the file is not aligned to "
                         f"{element} bytes; save the model again")
    begin[0] = offsets[0]
    end[0] = offsets[1]
    for i in range(4):
        t.ne[i] = 1
    for i in range(len(shape)):
        t.ne[min(i, 3)] *= shape[len(shape) - 1 - i]
    t.nb[0] = element
    nbytes = element
    for i in range(3):
        nbytes *= t.ne[i]
        t.nb[i + 1] = nbytes
    t.data = <void *>(data + begin[0])
    return 0


cdef int add_name(safetensors_file *f, str path, str name) except -1:
    """Owns and indexes the name of tensor n_tensors."""
    cdef bytes text = name_bytes(name)
    cdef size_t n = len(text)
    cdef char *copy
    cdef int added
    if not text or b"\0" in text:
        raise ValueError(f"{path}: {name[:200]!r} is no name of a tensor")
    copy = <char *>malloc(n + 1)
    if copy == NULL:
        raise MemoryError(f"{path}: no memory for its directory")
    memcpy(copy, <const char *>text, n + 1)
    f.names[f.n_tensors] = copy
    memcpy(f.tensors[f.n_tensors].name, copy, min(n, <size_t>63))
    added = name_index_add(<name_index *>f.index, copy, n, f.n_tensors)
    f.n_tensors += 1
    if added < 0:
        raise MemoryError(f"{path}: no memory for its directory")
    if added == 0:
        raise ValueError(f"{path}: tensor {name[:200]!r} is there twice")
    return 0


cdef int reserve(safetensors_file *f, str path, int64_t more) except -1:
    cdef size_t n = <size_t>(f.n_tensors + more)
    cdef void *room = realloc(f.tensors, n * sizeof(tm_tensor))
    if room == NULL:
        raise MemoryError(f"{path}: no memory for its directory")
    f.tensors = <tm_tensor *>room
    memset(&f.tensors[f.n_tensors], 0, <size_t>more * sizeof(tm_tensor))
    room = realloc(f.names, n * sizeof(char *))
    if room == NULL:
        raise MemoryError(f"{path}: no memory for its directory")
    f.names = <char **>room
    return 0


cdef dict read_header(const pn_mapping *m, str path, size_t *start):
    """The parsed header; *start is where the data section begins."""
    cdef uint64_t length
    if m.size < 8:
        raise ValueError(f"{path}: {m.size} bytes are no safetensors file")
    refuse_lfs_pointer(m.data[:min(m.size, <size_t>32)], path)
    memcpy(&length, m.data, 8)
    if length > <uint64_t>MAX_HEADER:
        raise ValueError(f"{path}: the header has {length} bytes, more than {<int>MAX_HEADER}: no safetensors file")
    if length > m.size - 8:
        raise ValueError(f"{path}: the header has {length} bytes, the file ends after {m.size - 8}: it is cut short")
    if length < 2 or m.data[8] != c"{":
        raise ValueError(f"{path}: the header is no JSON object: no safetensors file")
    start[0] = 8 + <size_t>length
    header = json_parse(m.data + 8, <size_t>length, MAX_DEPTH, MAX_VALUES, path + ": header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ValueError(f"{path}: __metadata__ is no JSON object")
    return header


cdef int add_file(safetensors_file *f, str path, object wanted) except -1:
    """Maps a file and adds its tensors; of a shard only those named in `wanted` (None: all)."""
    cdef pn_mapping *m
    cdef void *room = realloc(f.maps, (f.n_maps + 1) * sizeof(pn_mapping *))
    cdef size_t start = 0, begin = 0, end = 0
    cdef tm_tensor *t
    if room == NULL:
        raise MemoryError(f"{path}: no memory")
    f.maps = <pn_mapping **>room
    m = pn_mapping_open(path)
    f.maps[f.n_maps] = m
    f.n_maps += 1
    header = read_header(m, path, &start)
    reserve(f, path, len(header) + 1)
    extents = []
    for name, info in header.items():
        if not isinstance(info, dict):
            raise ValueError(f"{path}: tensor {name[:200]!r} is no JSON object")
        t = &f.tensors[f.n_tensors]
        fill_tensor(t, path, name, info, m.data + start, m.size - start, start, &begin, &end)
        extents.append((begin, end, name))
        if wanted is None or name in wanted:
            add_name(f, path, name)
    extents.sort()
    at = 0
    for low, high, name in extents:
        if low != at:
            kind = "overlaps another tensor" if low < at else f"leaves a gap of {low - at} bytes before it"
            raise ValueError(f"{path}: tensor {name[:200]!r} at offset {low} {kind}")
        at = high
    if at != m.size - start:
        raise ValueError(f"{path}: the tensors need {at} bytes of data, the file has {m.size - start}")
    if wanted is not None:
        missing = sorted(set(wanted) - set(header))
        if missing:
            raise ValueError(f"{path}: tensor {missing[0][:200]!r} is missing, which the index says is here")
    return 0


cdef dict shards_of(str path):
    """{file name: set of tensor names} of an index, in the order of the names."""
    index = json_file(path, MAX_DEPTH, MAX_VALUES, MAX_HEADER)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{path}: weight_map, from tensors to files, is missing")
    shards = {}
    for tensor, name in weight_map.items():
        # A name of the index may only ever be a file beside it.
        if (not isinstance(name, str) or not 0 < len(name) <= MAX_FILE_NAME or name in (".", "..")
                or any([c in name for c in "/\\\0"]) or not name.endswith(".safetensors")):
            raise ValueError(f"{path}: tensor {tensor[:200]!r} is said to be in {str(name)[:200]!r}, which is no name "
                             "of a safetensors file in the same folder")
        shards.setdefault(name, set()).add(tensor)
    if len(shards) > MAX_SHARDS:
        raise ValueError(f"{path}: {len(shards)} shards, more than {<int>MAX_SHARDS}")
    return dict(sorted(shards.items()))


cdef int fill(safetensors_file *f, str path) except -1:
    if not path.endswith(INDEX_SUFFIX):
        return add_file(f, path, None)
    folder = os.path.dirname(path)
    shards = shards_of(path)
    for name in shards:
        shard = os.path.join(folder, name)
        if not os.path.exists(shard):
            raise FileNotFoundError(2, f"this shard is missing, {len(shards)} are named in {path}", shard)
    for name, tensors in shards.items():
        add_file(f, os.path.join(folder, name), tensors)
    return 0


cdef safetensors_file *safetensors_open(str path) except NULL:
    cdef safetensors_file *f = <safetensors_file *>calloc(1, sizeof(safetensors_file))
    try:
        if f != NULL:
            f.index = calloc(1, sizeof(name_index))
        if f == NULL or f.index == NULL:
            raise MemoryError(f"{path}: no memory")
        fill(f, path)
    except BaseException:
        safetensors_close(f)
        raise
    return f


cdef void safetensors_close(safetensors_file *f) noexcept:
    cdef int64_t i
    if f == NULL:
        return
    if f.index != NULL:
        name_index_free(<name_index *>f.index)
    free(f.index)
    for i in range(f.n_maps):
        pn_mapping_close(f.maps[i])
    for i in range(f.n_tensors):
        free(f.names[i])
    free(f.maps)
    free(f.names)
    free(f.tensors)
    free(f)


cdef tm_tensor *safetensors_tensor(const safetensors_file *f, const char *name) noexcept nogil:
    cdef int64_t i = name_index_find(<name_index *>f.index, name, strlen(name))
    return NULL if i < 0 else &f.tensors[i]


# ---- from Python -----------------------------------------------------------------------------------------------------

TensorInfo = namedtuple("TensorInfo", "name type shape nbytes")
TensorInfo.__doc__ = """One tensor of the directory.

type is the dtype's name, shape NumPy's order, slowest dimension first, without leading ones.
"""


@cython.no_gc_clear                      # a cleared owner would look like none
cdef class _Handle:
    cdef safetensors_file *f
    cdef object owner                    # of f; None: this handle

    def __dealloc__(self):
        if self.owner is None:
            safetensors_close(self.f)


cdef class _Bytes:
    """Exports a tensor's bytes, and keeps the file in memory while anyone looks at them."""
    cdef _Handle handle
    cdef const tm_tensor *t

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.t.data, self.t.nb[3] * <size_t>self.t.ne[3], True, flags)


cdef object info_of(const safetensors_file *f, int64_t i):
    cdef const tm_tensor *t = &f.tensors[i]
    dims = [t.ne[3], t.ne[2], t.ne[1], t.ne[0]]
    while len(dims) > 1 and dims[0] == 1:
        dims.pop(0)
    return TensorInfo(name_text(f.names[i]), DTYPE_NAMES[t.type], tuple(dims), t.nb[3] * <size_t>t.ne[3])


cdef class SafetensorsFile:
    """SafetensorsFile(path): an open safetensors file or, by its index, a sharded set. A context manager.

    Raises OSError when a file cannot be read, ValueError when its content is wrong; both name the file.
    """
    cdef _Handle handle

    def __init__(self, path):
        handle = _Handle()
        (<_Handle>handle).f = safetensors_open(os.fsdecode(path))
        self.handle = handle

    cdef safetensors_file *file(self) except NULL:
        if self.handle is None:
            raise ValueError("the safetensors file is closed")
        return self.handle.f

    def close(self):
        """Lets go of the file. May be called again; arrays made by tensor() stay valid."""
        self.handle = None

    def __enter__(self):
        self.file()
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def paths(self):
        """The mapped files, a list of str."""
        cdef safetensors_file *f = self.file()
        return [os.fsdecode(<bytes>f.maps[i].path) for i in range(f.n_maps)]

    @property
    def mapped(self):
        """True when every file is mapped, False when one had to be read into memory."""
        cdef safetensors_file *f = self.file()
        return all([f.maps[i].mapped for i in range(f.n_maps)])

    def check(self):
        """ValueError naming a file that somebody has cut short. Arrays over it must not be read then."""
        cdef safetensors_file *f = self.file()
        pn_mappings_check(f.maps, f.n_maps)

    @property
    def tensors(self):
        """The directory, a list of TensorInfo."""
        cdef safetensors_file *f = self.file()
        return [info_of(f, i) for i in range(f.n_tensors)]

    def tensor(self, str name not None):
        """(nbytes,) read-only uint8 array over the tensor's bytes in the file; KeyError when there is none, ValueError
        as check."""
        cdef safetensors_file *f = self.file()
        cdef _Bytes data = _Bytes.__new__(_Bytes)
        cdef bytes text = name_bytes(name)
        data.t = NULL if b"\0" in text else safetensors_tensor(f, text)
        if data.t == NULL:
            raise KeyError(name)
        pn_mappings_check(f.maps, f.n_maps)
        data.handle = self.handle
        return np.frombuffer(data, np.uint8)


cdef object safetensors_view(safetensors_file *f, object owner):
    cdef SafetensorsFile file = SafetensorsFile.__new__(SafetensorsFile)
    cdef _Handle handle = _Handle()
    handle.owner = owner
    handle.f = f
    file.handle = handle
    return file
