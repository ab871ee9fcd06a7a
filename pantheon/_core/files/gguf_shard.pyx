"""Reads the directory of one GGUF file: header, metadata, tensor infos.

The file is hostile until proven otherwise. Memory grows with what was read, never with what a count promises; each
length is compared with the bytes left before it is used; every product is checked. Each error is a ValueError with the
file and the byte, key or tensor.
"""
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, memset, strlen

from pantheon._core.files.cursor cimport (
    byte_cursor,
    cursor_left,
    cursor_string,
    cursor_take,
    cursor_u32,
    cursor_u64,
    pn_checked_mul,
)
from pantheon._core.files.ggml_types cimport ggml_type, ggml_type_info
from pantheon._core.files.gguf_file cimport GGUF_ARRAY, GGUF_STRING, GGUF_U32, gguf_kv
from pantheon._core.files.gguf_values cimport path_of, quoted, value_size, value_type_name
from pantheon._core.files.mapping cimport pn_mapping_close, pn_mapping_open
from pantheon._core.files.name_index cimport name_index_add, name_index_find, name_index_free
from pantheon._core.types cimport tm_tensor

from pantheon.regular_file import refuse_lfs_pointer

cdef enum:
    HEADER_BYTES = 24                    # magic, version, two counts
    KV_MIN = 13                          # 8 + 0 key, 4 type, 1 value
    TENSOR_MIN = 24                      # 8 + 0 name, 4 n_dims, 4 type, 8 offset
    KEY_MAX = 65535
    NAME_MAX = 63                        # what tm_tensor.name holds
    STRING_MAX = 64 << 20
    ARRAY_MAX = 1 << 30                  # elements
    ALIGNMENT_DEFAULT = 32
    ALIGNMENT_MAX = 1 << 20

# Numbers that a file may carry and no reader of the plain format can know.
WITHDRAWN = {4: "Q4_2, withdrawn", 5: "Q4_3, withdrawn", 31: "Q4_0_4_4, withdrawn", 32: "Q4_0_4_8, withdrawn",
             33: "Q4_0_8_8, withdrawn", 37: "IQ4_NL_4_8, withdrawn",
             38: "IQ4_NL_8_8, withdrawn"}
CUT_SHORT = "the file is damaged, or its download is incomplete"

ctypedef struct extent:                  # bytes [begin, end) of the file belong to a tensor
    size_t begin
    size_t end
    int64_t tensor


cdef int refuse_at(const gguf_shard *s, size_t pos, str message) except -1:
    raise ValueError(f"{path_of(s.map)}: byte {pos}: {message}")


cdef int refuse_tensor(const gguf_shard *s, const tm_tensor *t, str message) except -1:
    raise ValueError(f"{path_of(s.map)}: tensor {quoted(t.name, strlen(t.name))}: {message}")


cdef int no_memory(const gguf_shard *s) except -1:
    raise MemoryError(f"{path_of(s.map)}: no memory for its directory")


cdef void *grown(void *array, int64_t used, size_t item) noexcept nogil:
    """The array with room for one more item: capacity doubles at each power of two. NULL without memory."""
    if used < 16:
        return realloc(array, 16 * item) if used == 0 else array
    if used & (used - 1):
        return array
    return realloc(array, 2 * <size_t> used * item)


cdef int read_u32(const gguf_shard *s, byte_cursor *c, uint32_t *out, str what) except -1:
    if not cursor_u32(c, out):
        refuse_at(s, c.pos, f"the file ends inside {what}: {CUT_SHORT}")
    return 0


cdef int read_u64(const gguf_shard *s, byte_cursor *c, uint64_t *out, str what) except -1:
    if not cursor_u64(c, out):
        refuse_at(s, c.pos, f"the file ends inside {what}: {CUT_SHORT}")
    return 0


cdef int read_string(const gguf_shard *s, byte_cursor *c, const char **text, size_t *length, str what) except -1:
    cdef size_t start = c.pos
    cdef uint64_t n = 0
    read_u64(s, c, &n, what)
    if n > cursor_left(c):
        refuse_at(s, start, f"{what} claims {n} bytes, {cursor_left(c)} are left: {CUT_SHORT}")
    if n > STRING_MAX:
        refuse_at(s, start, f"{what} has {n} bytes, at most {STRING_MAX} are accepted")
    text[0] = <const char *> cursor_take(c, n)
    length[0] = n
    return 0


cdef int read_name(const gguf_shard *s, byte_cursor *c, const char **text, size_t *length, size_t most,
                   str what) except -1:
    """The name of a key or a tensor: look-up takes NUL-terminated UTF-8, so nothing else may get in."""
    cdef size_t start = c.pos
    cdef bytes name
    read_string(s, c, text, length, what)
    if length[0] == 0:
        refuse_at(s, start, f"{what} is empty")
    if length[0] > most:
        refuse_at(s, start, f"{what} {quoted(text[0], length[0])} has {length[0]} bytes, at most {most} are accepted")
    name = text[0][:length[0]]
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        refuse_at(s, start, f"{what} {quoted(text[0], length[0])} is not UTF-8")
    if b"\0" in name:
        refuse_at(s, start, f"{what} {quoted(text[0], length[0])} contains a NUL byte")
    return 0


cdef bint skip_strings(byte_cursor *c, uint64_t count, uint64_t *done) noexcept nogil:
    """Walks over the strings of an array; 0 when one does not fit, with the cursor at it and its index in *done."""
    cdef uint64_t length = 0
    done[0] = 0
    while done[0] < count:
        if cursor_string(c, &length) == NULL:
            return False
        if length > STRING_MAX:
            c.pos -= length + 8
            return False
        done[0] += 1
    return True


cdef int read_array(const gguf_shard *s, byte_cursor *c, gguf_kv *kv, str what) except -1:
    cdef size_t start = c.pos
    cdef uint32_t type = 0
    cdef uint64_t count = 0, done = 0, size
    cdef bint whole
    read_u32(s, c, &type, what)
    if type == GGUF_ARRAY:
        refuse_at(s, start, f"{what} is an array of arrays")
    if value_type_name(type) == NULL:
        refuse_at(s, start, f"{what} is an array of the unknown value type {type}")
    start = c.pos
    read_u64(s, c, &count, what)
    size = 8 if type == GGUF_STRING else value_size(type)
    if count > cursor_left(c) // size:
        refuse_at(s, start, f"{what} claims {count} elements of {size} bytes or more, {cursor_left(c)} bytes are left: "
                            f"{CUT_SHORT}")
    if count > ARRAY_MAX:
        refuse_at(s, start, f"{what} has {count} elements, at most {ARRAY_MAX} are accepted")
    kv.elem_type = type
    kv.count = count
    if type != GGUF_STRING:
        kv.data = cursor_take(c, count * size)
        return 0
    kv.data = c.base + c.pos
    with nogil:
        whole = skip_strings(c, count, &done)
    if not whole:
        refuse_at(s, c.pos, f"string {done} of {what} is longer than the file or than {STRING_MAX} bytes: {CUT_SHORT}")
    return 0


cdef int read_kv(gguf_shard *s, byte_cursor *c) except -1:
    cdef size_t start = c.pos
    cdef gguf_kv kv
    cdef const char *key = NULL
    cdef uint32_t type = 0
    cdef size_t length = 0
    cdef void *room
    cdef int added
    cdef str what
    memset(&kv, 0, sizeof(kv))
    read_name(s, c, &key, &kv.key_len, KEY_MAX, f"the name of key {s.n_kv}")
    what = f"the value of key {quoted(key, kv.key_len)}"
    read_u32(s, c, &type, what)
    if value_type_name(type) == NULL:
        refuse_at(s, c.pos - 4, f"{what} has the unknown type {type}")
    kv.type = type
    kv.elem_type = -1
    kv.count = 1
    if type == GGUF_ARRAY:
        read_array(s, c, &kv, what)
    elif type == GGUF_STRING:
        read_string(s, c, <const char **> &kv.data, &length, what)
        kv.count = length
    else:
        kv.data = cursor_take(c, value_size(type))
        if kv.data == NULL:
            refuse_at(s, c.pos, f"the file ends inside {what}: {CUT_SHORT}")
    room = grown(s.kv, s.n_kv, sizeof(gguf_kv))
    if room == NULL:
        no_memory(s)
    s.kv = <gguf_kv *> room
    kv.key = <char *> malloc(kv.key_len + 1)
    if kv.key == NULL:
        no_memory(s)
    memcpy(kv.key, key, kv.key_len)
    kv.key[kv.key_len] = 0
    s.kv[s.n_kv] = kv
    s.n_kv += 1
    added = name_index_add(&s.keys, kv.key, kv.key_len, s.n_kv - 1)
    if added < 0:
        no_memory(s)
    if added == 0:
        refuse_at(s, start, f"key {quoted(kv.key, kv.key_len)} is there twice")
    return 0


cdef int read_header(gguf_shard *s, byte_cursor *c, uint64_t *n_kv, uint64_t *n_tensors) except -1:
    cdef bytes start = c.base[:min(c.size, <size_t> HEADER_BYTES)]
    cdef uint32_t version = 0
    if start[:4] != b"GGUF"[:len(start)] or not start:
        if not start:
            refuse_at(s, 0, "the file is empty")
        refuse_lfs_pointer(start, path_of(s.map))
        refuse_at(s, 0, f"not a GGUF file: it begins with {start[:4]!r}")
    if c.size < HEADER_BYTES:
        refuse_at(s, c.size, f"the file ends inside the header of {HEADER_BYTES} bytes: {CUT_SHORT}")
    cursor_take(c, 4)
    cursor_u32(c, &version)
    if version != 0 and version & 0xFFFF == 0:
        refuse_at(s, 4, "the file is of the other endianness (big-endian); convert it to little-endian")
    if version != 2 and version != 3:
        refuse_at(s, 4, f"GGUF version {version}; versions 2 and 3 can be read")
    s.version = version
    cursor_u64(c, n_tensors)
    cursor_u64(c, n_kv)
    if n_tensors[0] > cursor_left(c) // TENSOR_MIN:
        refuse_at(s, 8, f"{n_tensors[0]} tensors cannot be in the {cursor_left(c)} bytes left: {CUT_SHORT}")
    if n_kv[0] > cursor_left(c) // KV_MIN:
        refuse_at(s, 16, f"{n_kv[0]} metadata keys cannot be in the {cursor_left(c)} bytes left: {CUT_SHORT}")
    return 0


cdef int read_alignment(const gguf_shard *s, size_t *out) except -1:
    cdef const gguf_kv *kv = gguf_shard_find(s, "general.alignment")
    cdef uint32_t alignment = 0
    out[0] = ALIGNMENT_DEFAULT
    if kv == NULL:
        return 0
    if kv.type != GGUF_U32:
        raise ValueError(f"{path_of(s.map)}: key 'general.alignment' must be of type u32, "
                         f"not {(<bytes> value_type_name(kv.type)).decode()}")
    memcpy(&alignment, kv.data, 4)
    if alignment == 0 or alignment & (alignment - 1) or alignment > ALIGNMENT_MAX:
        raise ValueError(f"{path_of(s.map)}: key 'general.alignment' is {alignment}; "
                         f"a power of two up to {ALIGNMENT_MAX} is needed")
    out[0] = alignment
    return 0


cdef int read_tensor(gguf_shard *s, byte_cursor *c) except -1:
    """One tensor info. Until place_tensors, data holds the offset in the data section."""
    cdef tm_tensor t
    cdef const ggml_type_info *info
    cdef const char *name = NULL
    cdef size_t start = c.pos, length = 0
    cdef uint32_t n_dims = 0, type = 0, d
    cdef uint64_t dim = 0, offset = 0
    cdef int64_t n = 1, size = 0
    cdef void *room
    cdef str what
    memset(&t, 0, sizeof(t))
    read_name(s, c, &name, &length, NAME_MAX, f"the name of tensor {s.n_tensors}")
    memcpy(t.name, name, length)
    what = f"the entry of tensor {quoted(name, length)}"
    read_u32(s, c, &n_dims, what)
    if n_dims > 4:
        refuse_at(s, start, f"tensor {quoted(name, length)} has {n_dims} dimensions, at most 4 are possible")
    for d in range(4):
        t.ne[d] = 1
        if d < n_dims:
            read_u64(s, c, &dim, what)
            if dim == 0 or dim > <uint64_t> INT64_MAX or not pn_checked_mul(n, <int64_t> dim, &n):
                refuse_at(s, c.pos - 8, f"dimension {d} of tensor {quoted(name, length)} is {dim}: a size from 1 on is "
                                        "needed, and the product of all must fit into 63 bits")
            t.ne[d] = <int64_t> dim
    read_u32(s, c, &type, what)
    info = ggml_type(type)
    if info == NULL:
        hint = f" ({WITHDRAWN[type]})" if type in WITHDRAWN else ""
        refuse_at(s, c.pos - 4, f"tensor {quoted(name, length)} has the unknown type {type}{hint}")
    t.type = type
    if t.ne[0] % info.block != 0:
        refuse_tensor(s, &t, f"rows of {t.ne[0]} elements are no whole number of {(<bytes> info.name).decode()} blocks "
                             f"of {info.block}")
    if not pn_checked_mul(n // info.block, info.bytes, &size):
        refuse_tensor(s, &t, "its size in bytes does not fit into 63 bits")
    t.nb[0] = info.bytes
    t.nb[1] = t.nb[0] * <size_t> (t.ne[0] // info.block)
    t.nb[2] = t.nb[1] * <size_t> t.ne[1]
    t.nb[3] = t.nb[2] * <size_t> t.ne[2]
    read_u64(s, c, &offset, what)
    t.data = <void *> <size_t> offset
    room = grown(s.tensors, s.n_tensors, sizeof(tm_tensor))
    if room == NULL:
        no_memory(s)
    s.tensors = <tm_tensor *> room
    s.tensors[s.n_tensors] = t
    s.n_tensors += 1
    return 0


cdef int by_begin(const void *a, const void *b) noexcept nogil:
    cdef size_t x = (<const extent *> a).begin
    cdef size_t y = (<const extent *> b).begin
    return (x > y) - (x < y)


cdef int check_overlap(const gguf_shard *s) except -1:
    """Two tensors never share bytes: where they do, an offset is wrong and one of them is noise."""
    cdef extent *e = <extent *> malloc(<size_t> s.n_tensors * sizeof(extent))
    cdef const tm_tensor *t
    cdef int64_t i, first = -1, second = -1
    if e == NULL:
        no_memory(s)
    with nogil:
        for i in range(s.n_tensors):
            e[i].begin = <const uint8_t *> s.tensors[i].data - s.map.data
            e[i].end = e[i].begin + tensor_bytes(&s.tensors[i])
            e[i].tensor = i
        qsort(e, s.n_tensors, sizeof(extent), by_begin)
        for i in range(1, s.n_tensors):
            if e[i].begin < e[i - 1].end:
                first = e[i - 1].tensor
                second = e[i].tensor
                break
    free(e)
    if second >= 0:
        t = &s.tensors[first]
        refuse_tensor(s, &s.tensors[second], f"its data overlaps that of tensor {quoted(t.name, strlen(t.name))}")
    return 0


cdef int place_tensors(gguf_shard *s, size_t pos, size_t alignment) except -1:
    """Turns offsets into addresses; pos is where the directory ended."""
    cdef size_t start = pos + (alignment - pos % alignment) % alignment   # both far below 2^63
    cdef size_t size = s.map.size, offset, need
    cdef const ggml_type_info *info
    cdef tm_tensor *t
    cdef int64_t i
    if s.n_tensors == 0:
        return 0
    if start > size:
        refuse_at(s, pos, f"the file ends before its tensor data: {CUT_SHORT}")
    for i in range(s.n_tensors):
        t = &s.tensors[i]
        offset = <size_t> t.data
        need = tensor_bytes(t)
        if offset % alignment != 0:
            refuse_tensor(s, t, f"its offset {offset} is no multiple of the alignment {alignment}")
        if offset > size - start or need > size - start - offset:
            refuse_tensor(s, t, f"needs {need} bytes at offset {offset} of the data section, which has {size - start}: "
                                f"{CUT_SHORT}")
        info = ggml_type(t.type)
        # Numbers are read in place, so they must lie where the processor may load them; blocks are read bytewise.
        if info.block == 1 and (start + offset) % <size_t> info.bytes != 0:
            refuse_tensor(s, t, f"{(<bytes> info.name).decode()} data at byte {start + offset} of the file is not "
                                f"aligned to {info.bytes} bytes")
        t.data = <void *> (s.map.data + start + offset)
    check_overlap(s)
    return 0


cdef int gguf_shard_read(str path, gguf_shard *s) except -1:
    cdef byte_cursor c
    cdef uint64_t n_kv = 0, n_tensors = 0, _i
    cdef size_t alignment = 0
    s.map = pn_mapping_open(path)
    c.base = s.map.data
    c.size = s.map.size
    c.pos = 0
    read_header(s, &c, &n_kv, &n_tensors)
    for _i in range(n_kv):
        read_kv(s, &c)
    read_alignment(s, &alignment)
    for _i in range(n_tensors):
        read_tensor(s, &c)
    place_tensors(s, c.pos, alignment)
    return 0


cdef void gguf_kv_free(gguf_kv *kv, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        free(kv[i].key)
    free(kv)


cdef void gguf_shard_free(gguf_shard *s) noexcept nogil:
    pn_mapping_close(s.map)
    gguf_kv_free(s.kv, s.n_kv)
    free(s.tensors)
    name_index_free(&s.keys)
    memset(s, 0, sizeof(gguf_shard))


cdef const gguf_kv *gguf_shard_find(const gguf_shard *s, const char *key) noexcept nogil:
    cdef int64_t i = name_index_find(&s.keys, key, strlen(key))
    return NULL if i < 0 else &s.kv[i]
