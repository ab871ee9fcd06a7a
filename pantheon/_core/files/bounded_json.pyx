"""JSON from files that may be hostile: size, depth and number of values are checked before anything is built.

The standard library's parser does the work; it has no limits of its own, keeps the last of two equal keys silently, and
takes NaN for a number.
"""
import json

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from pantheon.regular_file import read_regular


MAX_DIGITS = 400                         # of an integer: a float has 309 before its point


cdef int scan(const uint8_t *text, size_t n, int max_depth, size_t max_items) noexcept nogil:
    """0; 1: too deep; 2: too many values. Strings are skipped, nothing else is judged."""
    cdef size_t i = 0, items = 1
    cdef int depth = 0
    cdef bint quoted = False
    while i < n:
        if quoted:
            if text[i] == c"\\":
                i += 1
            elif text[i] == c'"':
                quoted = False
        elif text[i] == c'"':
            quoted = True
        elif text[i] == c"{" or text[i] == c"[":
            depth += 1
            items += 1
        elif text[i] == c"}" or text[i] == c"]":
            depth -= 1
        elif text[i] == c"," or text[i] == c":":
            items += 1
        if depth > max_depth:
            return 1
        if items > max_items:
            return 2
        i += 1
    return 0


def _unique(pairs):
    made = dict(pairs)
    if len(made) != len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key[:200]!r} is there twice")
            seen.add(key)
    return made


def _no_constant(text):
    raise ValueError(f"{text} is no JSON number")


def _integer(text):
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits, more than {MAX_DIGITS}: {text[:20]}...")
    return int(text)


cdef object json_parse(const uint8_t *text, size_t n, int max_depth, size_t max_items, str what):
    cdef int status
    with nogil:
        status = scan(text, n, max_depth, max_items)
    if status == 1:
        raise ValueError(f"{what}: nested more than {max_depth} deep")
    if status == 2:
        raise ValueError(f"{what}: more than {max_items} values")
    data = PyBytes_FromStringAndSize(<const char *>text, n)
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant,
                          parse_int=_integer)
    except UnicodeDecodeError as e:
        raise ValueError(f"{what}: no UTF-8 at byte {e.start}") from None
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{what}: {e}") from None


cdef object json_file(str path, int max_depth, size_t max_items, size_t max_bytes):
    cdef bytes text = read_regular(path, max_bytes)
    return json_parse(<const uint8_t *><const char *>text, len(text), max_depth, max_items, path)


def read_json(path, int max_depth=32, size_t max_items=1 << 20, size_t max_bytes=16 << 20):
    """The object of a JSON file, a dict. OSError, or ValueError naming the file."""
    value = json_file(str(path), max_depth, max_items, max_bytes)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")
    return value


def parse_json(str text not None, str what not None, int max_depth=32, size_t max_items=1 << 20,
               size_t max_bytes=16 << 20):
    """The object that text is, a dict. ValueError, which begins with `what`."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > max_bytes:
        raise ValueError(f"{what}: {len(data)} bytes, more than the {max_bytes} of such a text")
    value = json_parse(data, len(data), max_depth, max_items, what)
    if not isinstance(value, dict):
        raise ValueError(f"{what}: not a JSON object")
    return value
