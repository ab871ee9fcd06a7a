"""GGUF files from Python: metadata on demand, tensors as read-only arrays over the mapped file.

Lifecycle: a GGUFFile is open until close(), and every use after that raises ValueError. Arrays made by tensor() stay
valid: the mapping goes with the last of them.
"""
import os
from collections import namedtuple
from collections.abc import Mapping

import numpy as np

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t

from pantheon._core.files.ggml_types cimport ggml_type
from pantheon._core.files.gguf cimport gguf_close, gguf_find, gguf_open, gguf_tensor, gguf_value
from pantheon._core.files.gguf_file cimport gguf_kv
from pantheon._core.files.gguf_shard cimport tensor_bytes
from pantheon._core.files.gguf_values cimport path_of
from pantheon._core.files.mapping cimport pn_mappings_check
from pantheon._core.files.name_index cimport name_bytes, name_text
from pantheon._core.types cimport tm_tensor

TensorInfo = namedtuple("TensorInfo", "name type shape nbytes part offset")
TensorInfo.__doc__ = """One tensor of the directory.

shape is NumPy's order, slowest dimension first, counted in elements, without leading ones: (out, in) for a matrix.
part is the index into GGUFFile.paths, offset the tensor's first byte in that file.
"""

# Types that NumPy knows; rows of the others are bytes.
DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


cdef class GGUFHandle:

    def __dealloc__(self):
        if self.owned:
            gguf_close(self.f)


cdef class TensorBytes:
    """Exports a tensor's bytes, and keeps the file in memory while anyone looks at them."""

    cdef GGUFHandle handle
    cdef const tm_tensor *t

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.t.data, tensor_bytes(self.t), True, flags)


class Metadata(Mapping):
    """Metadata of an open GGUFFile as a read-only dict: a value is converted when it is asked for, and not kept.

    Values are int, float, bool, str, or lists of those; string lists below "tokenizer.ggml." are lists of bytes.
    """

    def __init__(self, file):
        self._file = file

    def __getitem__(self, key):
        cdef GGUFFile file = self._file
        cdef gguf_file *f = file.file()
        cdef const gguf_kv *kv = NULL
        cdef bytes name
        if isinstance(key, str) and "\0" not in key:
            name = name_bytes(key)
            kv = gguf_find(f, name)
        if kv == NULL:
            raise KeyError(key)
        return gguf_value(f, kv)

    def __contains__(self, key):
        cdef GGUFFile file = self._file
        cdef gguf_file *f = file.file()
        return isinstance(key, str) and "\0" not in key and gguf_find(f, name_bytes(key)) != NULL

    def __iter__(self):
        cdef GGUFFile file = self._file
        cdef gguf_file *f = file.file()
        cdef int64_t i
        return iter([name_text(f.kv[i].key) for i in range(f.n_kv)])

    def __len__(self):
        cdef GGUFFile file = self._file
        return file.file().n_kv

    def __repr__(self):
        return f"<Metadata of {len(self)} keys>"


cdef tuple shape_of(const tm_tensor *t):
    cdef int n = 4
    while n > 1 and t.ne[n - 1] == 1:
        n -= 1
    return tuple([t.ne[n - 1 - d] for d in range(n)])


cdef object info_of(const gguf_file *f, const tm_tensor *t):
    cdef const uint8_t *data = <const uint8_t *> t.data
    cdef int part = 0
    while not (f.maps[part].data <= data < f.maps[part].data + f.maps[part].size):
        part += 1                        # each tensor lies in one of the mappings: checked at load
    return TensorInfo(name_text(t.name), (<bytes> ggml_type(t.type).name).decode("ascii"),
                      shape_of(t), tensor_bytes(t), part, data - f.maps[part].data)


cdef class GGUFFile:
    """GGUFFile(path): an open GGUF model, given by its file or by any part of a split set.

    A context manager. Raises OSError when the file or a part of the set cannot be read, ValueError when its content is
    wrong; both name the file.
    """

    def __init__(self, path):
        cdef GGUFHandle handle = GGUFHandle.__new__(GGUFHandle)
        handle.f = gguf_open(os.fsdecode(path))
        handle.owned = True
        self.handle = handle

    cdef gguf_file *file(self) except NULL:
        if self.handle is None:
            raise ValueError("the GGUF file is closed")
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
    def closed(self):
        return self.handle is None

    @property
    def version(self):
        """Version of the format, 2 or 3."""
        return self.file().version

    @property
    def paths(self):
        """The files, a list of str in the order of the parts."""
        cdef gguf_file *f = self.file()
        cdef int i
        return [path_of(f.maps[i]) for i in range(f.n_maps)]

    @property
    def mapped(self):
        """True when every file is mapped, False when one had to be read into memory."""
        cdef gguf_file *f = self.file()
        cdef int i
        return all([f.maps[i].mapped for i in range(f.n_maps)])

    @property
    def metadata(self):
        """The metadata of the first part, see Metadata."""
        self.file()
        return Metadata(self)

    @property
    def tensors(self):
        """The directory, a list of TensorInfo in the order of the files."""
        cdef gguf_file *f = self.file()
        cdef int64_t i
        return [info_of(f, &f.tensors[i]) for i in range(f.n_tensors)]

    def tensor(self, str name not None):
        """A read-only array over the tensor in the file; KeyError when there is none of that name, ValueError when
        somebody has cut the file short. Cut short later, the array's missing part must not be read.

        F32, F16, F64 and integers: the type's dtype, shape as in TensorInfo. BF16 and block types: uint8, the last
        dimension being the bytes of a row; I2_S: uint8 without dimensions, its scale behind the rows.
        """
        cdef gguf_file *f = self.file()
        cdef tm_tensor *t = NULL
        cdef TensorBytes data = TensorBytes.__new__(TensorBytes)
        if "\0" not in name:
            t = gguf_tensor(f, name_bytes(name))
        if t == NULL:
            raise KeyError(name)
        pn_mappings_check(f.maps, f.n_maps)
        data.handle = self.handle
        data.t = t
        shape = shape_of(t)
        dtype = DTYPES.get((<bytes> ggml_type(t.type).name).decode("ascii"))
        if ggml_type(t.type).tail > 0:   # rows, then a scale
            return np.frombuffer(data, np.uint8)
        if dtype is None:
            return np.frombuffer(data, np.uint8).reshape(shape[:len(shape) - 1] + (t.nb[1],))
        return np.frombuffer(data, dtype).reshape(shape)

    def __repr__(self):
        if self.handle is None:
            return "<GGUFFile, closed>"
        return f"<GGUFFile {self.paths[0]!r}, {self.handle.f.n_tensors} tensors>"


cdef GGUFFile from_file(gguf_file *f, object owner):
    cdef GGUFFile file = GGUFFile.__new__(GGUFFile)
    cdef GGUFHandle handle = GGUFHandle.__new__(GGUFHandle)
    if owner is None:
        raise ValueError("a borrowed GGUF file needs an owner")
    handle.f = f
    handle.owner = owner
    file.handle = handle
    return file
