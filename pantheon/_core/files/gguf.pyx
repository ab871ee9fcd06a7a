"""A GGUF model: one file, or the parts of a split set joined into one directory.

Any part may be named: the rest are found by their names, which therefore must be the original ones. Metadata comes from
the first part, tensors from all of them.
"""
import errno
import re

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset, strlen

from pantheon._core.files.gguf_file cimport gguf_shard
from pantheon._core.files.gguf_shard cimport gguf_kv_free, gguf_shard_find, gguf_shard_free, gguf_shard_read
from pantheon._core.files.gguf_values cimport kv_bool, kv_float, kv_int, kv_object, kv_str, path_of, quoted
from pantheon._core.files.gguf_vocab cimport ft_vocabulary, gguf_vocab_new
from pantheon._core.files.mapping cimport pn_mapping, pn_mapping_close, pn_mappings_check
from pantheon._core.files.name_index cimport name_index, name_index_add, name_index_find, name_index_free
from pantheon._core.types cimport tm_tensor

cdef struct gguf_index:                  # what gguf_file.index points to
    name_index keys                      # items are positions in kv
    name_index tensors                   # items are positions in tensors; names are theirs

PART_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


cdef int split_key(const gguf_shard *s, const char *key, int64_t *out) except -1:
    """1 and the number, or 0 when the key is absent."""
    cdef const gguf_kv *kv = gguf_shard_find(s, key)
    if kv == NULL:
        return 0
    kv_int(s.map, kv, 0, out)
    return 1


cdef int split_place(const gguf_shard *s, int64_t *no, int64_t *count) except -1:
    """Place of a part in its set, counted from 0; (0, 1) for a model in one file."""
    no[0] = 0
    count[0] = 1
    if not split_key(s, "split.count", count):
        return 0
    split_key(s, "split.no", no)
    if count[0] < 1 or count[0] > 99999:
        raise ValueError(f"{path_of(s.map)}: key 'split.count' is {count[0]}; 1 to 99999 parts are possible")
    if no[0] < 0 or no[0] >= count[0]:
        raise ValueError(f"{path_of(s.map)}: key 'split.no' is {no[0]} in a set of {count[0]} parts")
    return 0


cdef str split_prefix(str path, int64_t no, int64_t count):
    """What stands before -00001-of-00003.gguf, once the name agrees with the keys."""
    name = f"-{no + 1:05d}-of-{count:05d}.gguf"
    match = PART_NAME.fullmatch(path)
    if match is None or not path.endswith(name):
        raise ValueError(f"{path}: the file is part {no + 1} of {count} of a split model, so its name must end in "
                         f"{name}; the other parts are found by it")
    return match[1]


cdef int read_part(str path, gguf_shard *s, int64_t no, int64_t count) except -1:
    """A further part of a set, its place checked against its name."""
    cdef int64_t found_no = 0, found_count = 0
    try:
        gguf_shard_read(path, s)
    except FileNotFoundError:
        what = f"part {no + 1} of {count} of the split model is missing"
        raise FileNotFoundError(errno.ENOENT, what, path) from None
    split_place(s, &found_no, &found_count)
    if found_no != no or found_count != count:
        raise ValueError(f"{path}: the file says that it is part {found_no + 1} of {found_count}, "
                         f"its name says part {no + 1} of {count}")
    return 0


cdef int adopt(gguf_file *f, gguf_shard *s) except -1:
    """Moves mapping and tensors into f, and frees the rest of the part. Metadata was taken from the first before."""
    cdef size_t total = <size_t> (f.n_tensors + s.n_tensors)
    cdef void *room = realloc(f.maps, <size_t> (f.n_maps + 1) * sizeof(pn_mapping *))
    if room == NULL:
        raise MemoryError(f"{path_of(s.map)}: no memory for its directory")
    f.maps = <pn_mapping **> room
    if s.n_tensors:
        room = realloc(f.tensors, total * sizeof(tm_tensor))
        if room == NULL:
            raise MemoryError(f"{path_of(s.map)}: no memory for its directory")
        f.tensors = <tm_tensor *> room
        memcpy(&f.tensors[f.n_tensors], s.tensors, <size_t> s.n_tensors * sizeof(tm_tensor))
    f.maps[f.n_maps] = s.map
    f.n_maps += 1
    f.n_tensors = <int64_t> total
    s.map = NULL
    gguf_shard_free(s)
    return 0


cdef int adopt_first(gguf_file *f, gguf_shard *s) except -1:
    """The part with the metadata: also takes keys and vocabulary over."""
    gguf_vocab_new(s, <ft_vocabulary **> &f.tokenizer)
    f.version = s.version
    f.kv = s.kv
    f.n_kv = s.n_kv
    (<gguf_index *> f.index).keys = s.keys
    s.kv = NULL
    s.n_kv = 0
    memset(&s.keys, 0, sizeof(name_index))
    return adopt(f, s)


cdef str part_of(const gguf_file *f, const tm_tensor *t):
    """Path of the file that a tensor lies in."""
    cdef int i
    for i in range(f.n_maps):
        if f.maps[i].data <= <const uint8_t *> t.data < f.maps[i].data + f.maps[i].size:
            return path_of(f.maps[i])
    return path_of(f.maps[0])


cdef int index_tensors(gguf_file *f) except -1:
    cdef name_index *names = &(<gguf_index *> f.index).tensors
    cdef int64_t i
    cdef int added
    cdef tm_tensor *t
    for i in range(f.n_tensors):
        t = &f.tensors[i]
        added = name_index_add(names, t.name, strlen(t.name), i)
        if added < 0:
            raise MemoryError(f"{path_of(f.maps[0])}: no memory for its directory")
        if added == 0:
            first = part_of(f, &f.tensors[name_index_find(names, t.name, strlen(t.name))])
            here = part_of(f, t)
            raise ValueError(f"{here}: tensor {quoted(t.name, strlen(t.name))} is there twice"
                             + (f", first in {first}" if first != here else ""))
    return 0


cdef int join(gguf_file *f, str path, gguf_shard *named, gguf_shard *other) except -1:
    """Fills f from the named file and, if it is part of a set, from all the others in order."""
    cdef int64_t no = 0, count = 0, total = 0, i
    cdef gguf_shard *s
    cdef bint has_total = True
    cdef str prefix
    gguf_shard_read(path, named)
    split_place(named, &no, &count)
    if count == 1:
        adopt_first(f, named)
        return index_tensors(f)
    prefix = split_prefix(path, no, count)
    for i in range(count):
        s = named
        if i != no:
            s = other
            read_part(f"{prefix}-{i + 1:05d}-of-{count:05d}.gguf", s, i, count)
        if i == 0:
            has_total = split_key(s, "split.tensors.count", &total)
            adopt_first(f, s)
        else:
            adopt(f, s)
    if not has_total:
        raise ValueError(f"{path_of(f.maps[0])}: key 'split.tensors.count' is missing")
    if total != f.n_tensors:
        raise ValueError(f"{path_of(f.maps[0])}: key 'split.tensors.count' promises {total} tensors, "
                         f"the {count} parts hold {f.n_tensors}")
    return index_tensors(f)


cdef gguf_file *gguf_open(str path) except NULL:
    cdef gguf_shard named, other
    cdef gguf_file *f = <gguf_file *> calloc(1, sizeof(gguf_file))
    memset(&named, 0, sizeof(named))
    memset(&other, 0, sizeof(other))
    try:
        if f != NULL:
            f.index = calloc(1, sizeof(gguf_index))
        if f == NULL or f.index == NULL:
            raise MemoryError(f"{path}: no memory")
        join(f, path, &named, &other)
    except BaseException:
        gguf_shard_free(&named)
        gguf_shard_free(&other)
        gguf_close(f)
        raise
    return f


cdef void gguf_close(gguf_file *f) noexcept:
    cdef gguf_index *index
    cdef int i
    if f == NULL:
        return
    index = <gguf_index *> f.index
    if index != NULL:
        name_index_free(&index.keys)
        name_index_free(&index.tensors)
        free(index)
    for i in range(f.n_maps):
        pn_mapping_close(f.maps[i])
    free(f.maps)
    gguf_kv_free(f.kv, f.n_kv)
    free(f.tensors)
    free(f.tokenizer)
    free(f)


cdef const gguf_kv *gguf_find(const gguf_file *f, const char *key) noexcept nogil:
    cdef int64_t i = name_index_find(&(<gguf_index *> f.index).keys, key, strlen(key))
    return NULL if i < 0 else &f.kv[i]


cdef tm_tensor *gguf_tensor(const gguf_file *f, const char *name) noexcept nogil:
    cdef int64_t i = name_index_find(&(<gguf_index *> f.index).tensors, name, strlen(name))
    return NULL if i < 0 else &f.tensors[i]


cdef int gguf_get_int(const gguf_file *f, const char *key, int64_t i, int64_t *out) except -1:
    cdef const gguf_kv *kv = gguf_find(f, key)
    if kv == NULL:
        return 0
    kv_int(f.maps[0], kv, i, out)
    return 1


cdef int gguf_get_float(const gguf_file *f, const char *key, int64_t i, double *out) except -1:
    cdef const gguf_kv *kv = gguf_find(f, key)
    if kv == NULL:
        return 0
    kv_float(f.maps[0], kv, i, out)
    return 1


cdef int gguf_get_bool(const gguf_file *f, const char *key, bint *out) except -1:
    cdef const gguf_kv *kv = gguf_find(f, key)
    if kv == NULL:
        return 0
    kv_bool(f.maps[0], kv, out)
    return 1


cdef object gguf_get_str(const gguf_file *f, const char *key):
    cdef const gguf_kv *kv = gguf_find(f, key)
    return None if kv == NULL else kv_str(f.maps[0], kv)


cdef object gguf_value(const gguf_file *f, const gguf_kv *kv):
    pn_mappings_check(f.maps, 1)
    return None if kv == NULL else kv_object(f.maps[0], kv)
