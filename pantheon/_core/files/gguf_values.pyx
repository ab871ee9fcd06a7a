"""Metadata values. Writers disagree about integer widths, so any integer will do where an integer is wanted; a value of
another kind is an error that names the key, never a guess.

Numbers in the file have no alignment: they are copied out, never read in place.
"""
import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from pantheon._core.files.cursor cimport byte_cursor, cursor_string
from pantheon._core.files.gguf_file cimport (
    GGUF_ARRAY,
    GGUF_BOOL,
    GGUF_F32,
    GGUF_F64,
    GGUF_I16,
    GGUF_I32,
    GGUF_I64,
    GGUF_I8,
    GGUF_STRING,
    GGUF_U16,
    GGUF_U32,
    GGUF_U64,
    GGUF_U8,
    gguf_kv,
)
from pantheon._core.files.mapping cimport pn_mapping


cdef extern from *:
    """
    static const struct { const char *name; size_t size; } pn_gguf_values[] = {
        {"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
        {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
    };
    """
    struct value_row "":
        const char *name
        size_t size
    const value_row pn_gguf_values[13]

cdef size_t QUOTED_MAX = 80              # bytes of a name that a message shows
cdef bytes VOCABULARY = b"tokenizer.ggml."


cdef size_t value_size(uint32_t type) noexcept nogil:
    return pn_gguf_values[type].size if type <= GGUF_F64 else 0


cdef const char *value_type_name(uint32_t type) noexcept nogil:
    return pn_gguf_values[type].name if type <= GGUF_F64 else NULL


cdef str path_of(const pn_mapping *m):
    return os.fsdecode(<bytes> m.path)


cdef str quoted(const char *text, size_t length):
    shown = PyBytes_FromStringAndSize(text, min(length, QUOTED_MAX)).decode("utf-8", "backslashreplace")
    return repr(shown) + ("..." if length > QUOTED_MAX else "")


cdef str kind_of(const gguf_kv *kv):
    if kv.type == GGUF_ARRAY:
        return f"an array of {kv.count} {(<bytes> value_type_name(kv.elem_type)).decode()}"
    return f"of type {(<bytes> value_type_name(kv.type)).decode()}"


cdef int refuse_key(const pn_mapping *m, const gguf_kv *kv, str message) except -1:
    raise ValueError(f"{path_of(m)}: key {quoted(kv.key, kv.key_len)}: {message}")


cdef int element(const pn_mapping *m, const gguf_kv *kv, int64_t i, int *type, const uint8_t **data) except -1:
    """Type and address of the number that stands for index i."""
    if kv.type != GGUF_ARRAY:
        type[0] = kv.type
        data[0] = kv.data
        return 0
    if i < 0 or <uint64_t> i >= kv.count:
        refuse_key(m, kv, f"has {kv.count} elements, element {i} is needed")
    type[0] = kv.elem_type
    data[0] = kv.data + <size_t> i * value_size(kv.elem_type)
    return 0


cdef bint load_int(int type, const uint8_t *p, int64_t *out) noexcept nogil:
    """1 and the number, or 0 when it is no integer or beyond int64."""
    cdef int8_t i8
    cdef uint16_t u16
    cdef int16_t i16
    cdef uint32_t u32
    cdef int32_t i32
    cdef uint64_t u64
    if type == GGUF_U8:
        out[0] = p[0]
    elif type == GGUF_I8:
        memcpy(&i8, p, 1)
        out[0] = i8
    elif type == GGUF_U16:
        memcpy(&u16, p, 2)
        out[0] = u16
    elif type == GGUF_I16:
        memcpy(&i16, p, 2)
        out[0] = i16
    elif type == GGUF_U32:
        memcpy(&u32, p, 4)
        out[0] = u32
    elif type == GGUF_I32:
        memcpy(&i32, p, 4)
        out[0] = i32
    elif type == GGUF_I64:
        memcpy(out, p, 8)
    elif type == GGUF_U64:
        memcpy(&u64, p, 8)
        if u64 > <uint64_t> INT64_MAX:
            return False
        out[0] = <int64_t> u64
    else:
        return False
    return True


cdef double load_float(int type, const uint8_t *p) noexcept nogil:
    """A value of type f32 or f64."""
    cdef float f32
    cdef double f64
    if type == GGUF_F32:
        memcpy(&f32, p, 4)
        return f32
    memcpy(&f64, p, 8)
    return f64


cdef int kv_int(const pn_mapping *m, const gguf_kv *kv, int64_t i, int64_t *out) except -1:
    cdef int type = 0
    cdef const uint8_t *p = NULL
    element(m, kv, i, &type, &p)
    if not load_int(type, p, out):
        if type == GGUF_U64:
            refuse_key(m, kv, "the number does not fit into 63 bits")
        refuse_key(m, kv, f"is {kind_of(kv)}, an integer is needed")
    return 0


cdef int kv_float(const pn_mapping *m, const gguf_kv *kv, int64_t i, double *out) except -1:
    cdef int type = 0
    cdef const uint8_t *p = NULL
    cdef int64_t whole = 0
    element(m, kv, i, &type, &p)
    if type == GGUF_F32 or type == GGUF_F64:
        out[0] = load_float(type, p)
    elif load_int(type, p, &whole):
        out[0] = <double> whole
    else:
        refuse_key(m, kv, f"is {kind_of(kv)}, a number is needed")
    return 0


cdef int kv_bool(const pn_mapping *m, const gguf_kv *kv, bint *out) except -1:
    cdef int64_t whole = 0
    if kv.type == GGUF_BOOL:
        out[0] = kv.data[0] != 0
    elif load_int(kv.type, kv.data, &whole):
        out[0] = whole != 0
    else:
        refuse_key(m, kv, f"is {kind_of(kv)}, a bool is needed")
    return 0


cdef str kv_str(const pn_mapping *m, const gguf_kv *kv):
    if kv.type != GGUF_STRING:
        refuse_key(m, kv, f"is {kind_of(kv)}, a string is needed")
    try:
        return PyUnicode_DecodeUTF8(<const char *> kv.data, kv.count, NULL)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path_of(m)}: key {quoted(kv.key, kv.key_len)}: not UTF-8 at byte {error.start}") from None


cdef object number(int type, const uint8_t *p):
    cdef int64_t whole = 0
    cdef uint64_t u64
    if type == GGUF_BOOL:
        return p[0] != 0
    if type == GGUF_U64:
        memcpy(&u64, p, 8)
        return u64
    if load_int(type, p, &whole):
        return whole
    return load_float(type, p)


cdef list strings(const pn_mapping *m, const gguf_kv *kv):
    """Lists of the vocabulary as bytes (a token need not be UTF-8), others as str."""
    cdef const char *prefix = VOCABULARY
    cdef bint raw = kv.key_len >= strlen(prefix) and memcmp(kv.key, prefix, strlen(prefix)) == 0
    cdef byte_cursor c
    cdef const uint8_t *text
    cdef uint64_t length = 0
    cdef uint64_t i
    cdef object item
    cdef list result
    c.base = m.data
    c.size = m.size
    c.pos = kv.data - m.data
    result = []
    for i in range(kv.count):
        text = cursor_string(&c, &length)
        if text == NULL:                 # the scan at load passed here: somebody writes to the mapped file
            refuse_key(m, kv, f"string {i} changed after the file was opened")
        item = PyBytes_FromStringAndSize(<const char *> text, length)
        if not raw:
            try:
                item = (<bytes> item).decode("utf-8")
            except UnicodeDecodeError as error:
                refuse_key(m, kv, f"string {i} is not UTF-8 at byte {error.start}")
        result.append(item)
    return result


cdef object kv_object(const pn_mapping *m, const gguf_kv *kv):
    cdef size_t size
    cdef uint64_t i
    cdef object item
    cdef list result
    if kv.type == GGUF_STRING:
        return kv_str(m, kv)
    if kv.type != GGUF_ARRAY:
        return number(kv.type, kv.data)
    if kv.elem_type == GGUF_STRING:
        return strings(m, kv)
    size = value_size(kv.elem_type)
    result = PyList_New(kv.count)
    for i in range(kv.count):
        item = number(kv.elem_type, kv.data + i * size)
        Py_INCREF(item)                  # PyList_SET_ITEM keeps the reference that is handed to it
        PyList_SET_ITEM(result, i, item)
    return result
