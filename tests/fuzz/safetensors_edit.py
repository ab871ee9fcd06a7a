"""Mutations of safetensors files that know the header."""
from __future__ import annotations

import json
import random

import json_edit
import raw

DTYPES = ["BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64", "F8_E4M3",
          "F8_E5M2", "F4", "C64", "f32", ""]


def mutated(rng: random.Random, source: bytes, names: list[str]) -> bytes:
    """A mutation of the file. names: of tensors of any file, to rename some to."""
    kind = rng.randrange(10)
    length = int.from_bytes(source[:8], "little")
    if kind == 0:
        return raw.mutated(rng, source, None if rng.random() < 0.5 else 8 + length)
    if kind == 1:
        return raw.integer(rng, 64, False, length).to_bytes(8, "little") + source[8:]
    header, data = json.loads(source[8 : 8 + length]), source[8 + length :]
    if kind == 2:
        data = _changed_data(rng, data)
    elif kind == 3:
        json_edit.mutate(rng, header)
    else:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _change(rng, header, names, len(data))
    text = json_edit.dumps(header)
    text += b" " * (-len(text) % 8 if rng.random() < 0.95 else rng.randrange(8))
    return len(text).to_bytes(8, "little") + text + data


def _changed_data(rng: random.Random, data: bytes) -> bytes:
    """Weights that are not finite, huge, or not what their place allows."""
    if not data or rng.random() < 0.3:
        return raw.mutated(rng, data)
    at = rng.randrange(len(data))
    size = min(rng.choice((2, 4, 64, 4096)), len(data) - at)
    pattern = rng.choice((b"\xff\xff", b"\x80\x7f", b"\0\x7c", b"\xff\x7e", b"\0\0\x80\x7f", b"\0\0\xc0\x7f", b"\xaa",
                          b"\3"))
    return data[:at] + (pattern * size)[:size] + data[at + size :]


def _change(rng: random.Random, header: dict, names: list[str], size: int) -> None:
    tensors = [name for name in header if name != "__metadata__"]
    if not tensors:
        header[rng.choice(names)] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        return
    name = rng.choice(tensors)
    entry = header[name]
    kind = rng.randrange(12)
    if not isinstance(entry, dict) or kind == 0:
        header[name] = json_edit.value(rng, entry)
    elif kind == 1:
        del header[name]
    elif kind == 2:
        header[rng.choice([*names, raw.text(rng), "\ud800", name + "_scale"])] = header.pop(name)
    elif kind == 3:
        header[rng.choice([*names, raw.text(rng), "\ud800"])] = dict(entry)
    elif kind == 4:
        entry["dtype"] = rng.choice(DTYPES)
    elif kind == 5:
        other = header[rng.choice(tensors)]
        header[name] = other
    elif kind == 6:
        header["__metadata__"] = json_edit.value(rng, {"format": "pt"})
    elif kind == 7:
        key = rng.choice(list(entry) or ["x"])
        entry[key] = json_edit.value(rng, entry.get(key))
    else:
        field = "shape" if kind < 10 else "data_offsets"
        values = entry.get(field)
        if not isinstance(values, list) or not values:
            entry[field] = [raw.integer(rng) for _ in range(rng.randrange(6))]
        else:
            values = entry[field] = list(values)
            i = rng.randrange(len(values))
            if kind == 8:
                rng.choice((values.reverse, values.pop, lambda: values.append(1), lambda: values.insert(0, 1)))()
            elif isinstance(values[i], int):
                values[i] = rng.choice((raw.integer(rng, 64, True, values[i]), values[i] + 1, size))
