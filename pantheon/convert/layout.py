"""Which tensors a file gets, and from which tensors of the folder: names, shapes and the order of rows.

Everything is checked here, before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from pantheon.convert.hyper import Hyper
from pantheon.convert.pieces import Indices, Output, Piece, Source, SourceTensor, Values, Whole
from pantheon.convert.ternary import Ternary, is_packed, packed_rows

# What may stand before the names of a text model, and before the name of its head.
_PREFIXES = (("model.", ""), ("model.language_model.", ""), ("language_model.model.", "language_model."), ("", ""))
# Saved by older code, and computed anew by every reader.
_IGNORED = re.compile(r"\.rotary_emb\.inv_freq$|\.attention\.(masked_)?bias$|\.masked_bias$")
_VISION = ("model.visual.", "visual.", "model.vision_tower.", "vision_tower.", "model.multi_modal_projector.")


class Layout:
    """Collects the tensors of one file. folder: for messages; prefix: of the text model's names in the folder."""

    def __init__(self, source: Source, h: Hyper, folder: str):
        self.source = source
        self.h = h
        self.folder = folder
        self.outputs: list[Output] = []
        self._used: set[str] = set()
        self._unused: set[str] = set()  # what other configurations of the class have: files may hold it all the same
        self.prefix, head = next((p for p in _PREFIXES if f"{p[0]}embed_tokens.weight" in source), _PREFIXES[0])
        self.head = f"{head}lm_head"

    # -- one tensor ----------------------------------------------------------------------------------------------------

    def find(self, names: str | Sequence[str], shape: tuple[int, ...], optional: bool = False) -> str | None:
        """The name that is there, of several spellings. ValueError when none is, or when its shape is another."""
        names = [names] if isinstance(names, str) else names
        name = next((n for n in names if n in self.source), None)
        if name is None:
            if optional:
                return None
            raise ValueError(f"{self.folder}: tensor {names[0]} is missing, expected with shape {_text(shape)}")
        found = self.source[name]
        if _bare(found.shape) != _bare(shape):
            raise ValueError(f"{self.folder}: tensor {name} has shape {_text(found.shape)}, expected {_text(shape)}")
        self._used.add(name)
        return name

    def floats(self, name: str, shape: tuple[int, ...]) -> SourceTensor:
        """A tensor that find() found, in a shape of as many values; ValueError unless it holds F32, F16 or BF16."""
        tensor = self.source[name]
        if tensor.dtype not in ("F32", "F16", "BF16"):
            raise ValueError(f"{self.folder}: tensor {name} has dtype {tensor.dtype}, expected F32, F16 or BF16")
        return SourceTensor(name, tensor.dtype, shape, tensor.data)

    def matrix(self, ours: str, theirs: str | Sequence[str], rows: int, columns: int, order: Indices | None = None,
               column_order: Indices | None = None, kind: str = "matrix", optional: bool = False) -> bool:
        """Adds a matrix; order and column_order as in Piece. False when it is optional and not there."""
        name = self.find(theirs, (rows, columns), optional)
        if name is not None:
            self.add(ours, (rows, columns), kind, Piece(self.floats(name, (rows, columns)), order, column_order))
        return name is not None

    def vector(self, ours: str, theirs: str | Sequence[str], n: int, order: Indices | None = None,
               change: Callable[[Values], Values] | None = None, optional: bool = False) -> bool:
        """Adds a vector, which files hold as F32."""
        name = self.find(theirs, (n,), optional)
        if name is not None:
            self.add(ours, (n,), "float", Piece(self.floats(name, (n,)), order, None, change))
        return name is not None

    def projection(self, ours: str, theirs: str | Sequence[str], rows: int, columns: int,
                   order: Indices | None = None) -> None:
        """Adds a matrix of a layer, ternary where the model is, and its bias if it has one; names without suffix."""
        spellings = [theirs] if isinstance(theirs, str) else theirs
        if self.h.ternary == "none":
            self.matrix(f"{ours}.weight", [f"{t}.weight" for t in spellings], rows, columns, order)
        else:
            self._ternary(f"{ours}.weight", f"{spellings[0]}.weight", rows, columns, order)
        part = f"{ours.split('.')[-1]}.bias"
        if part in self.h.optional:
            self.vector(f"{ours}.bias", [f"{t}.bias" for t in spellings], rows, order, optional=True)
        self._unused.update(f"{t}.bias" for t in spellings)

    def _ternary(self, ours: str, theirs: str, rows: int, columns: int, order: Indices | None) -> None:
        rule = self.h.ternary
        packed = theirs in self.source and is_packed(self.source[theirs])
        if packed and rule == "online":
            raise ValueError(f"{self.folder}: tensor {theirs} is packed, but {self.h.path} says that it is not "
                             "quantised")
        shape = (packed_rows(rows) if packed else rows, columns)
        name = self.find(theirs, shape)
        assert name is not None
        tensor = SourceTensor(name, "U8", shape, self.source[name].data) if packed else self.floats(name, shape)
        scale = None
        if rule != "online":
            found = self.find(f"{theirs}_scale", (1,))
            assert found is not None
            scale = self.floats(found, (1,))
        self.add(ours, (rows, columns), "ternary", Ternary(tensor, rows, order, rule, scale, self.folder))

    def add(self, name: str, shape: tuple[int, ...], kind: str, *pieces: Piece | Whole) -> None:
        self.outputs.append(Output(name, shape, kind, pieces))

    def spellings(self, prefix: str, part: str, expert: int = 0) -> list[str]:
        """Names in the folder, without suffix, of what GGUF calls by this name; prefix: of its layer, or of all."""
        names = [parts[part].replace("*", str(expert)) for parts in self.h.facts.names if part in parts]
        return [f"{prefix}{name}" for name in dict.fromkeys(names)]

    # -- what all architectures share ----------------------------------------------------------------------------------

    def embeddings(self, change: Callable[[Values], Values] | None = None) -> None:
        """The embedding, the last norm, the LM head unless it is tied, and the factors of the rope."""
        h = self.h
        head = [f"{self.head}.weight", "lm_head.weight"]
        embedding = [f"{self.prefix}embed_tokens.weight"]
        tied = h.tied and self._same_matrix(head, embedding)
        self.matrix("token_embd.weight", [*embedding, *head] if tied else embedding, h.n_vocab, h.n_embd)
        norm = self.spellings(self.prefix, "output_norm")[0]
        self.vector("output_norm.weight", f"{norm}.weight", h.n_embd, change=change)
        if h.facts.layer_norm:
            self.vector("output_norm.bias", f"{norm}.bias", h.n_embd)
        if not tied or h.facts.gguf_head:
            self.matrix("output.weight", [*head, *embedding] if tied else head, h.n_vocab, h.n_embd)
        if "output.bias" in h.optional:
            self.vector("output.bias", f"{self.head}.bias", h.n_vocab)
        for name, values in h.rope.tensors.items():
            self.add(name, values.shape, "float", Whole(values))

    def _same_matrix(self, *names: Sequence[str]) -> bool:
        """Whether the file has just one of these, or holds the same numbers under all the names."""
        shape = (self.h.n_vocab, self.h.n_embd)
        found = [self.source[name] for spellings in names if (name := self.find(spellings, shape, optional=True))]
        return len({tensor.dtype for tensor in found}) == 1 and all(
            np.array_equal(tensor.data, found[0].data) for tensor in found[1:])

    def experts(self, ours: str, theirs: str) -> None:
        """The router, the experts, stacked, and the shared expert of the layer with this prefix."""
        h, e = self.h, self.h.experts
        assert e is not None
        self.matrix(f"{ours}ffn_gate_inp.weight", [f"{s}.weight" for s in self.spellings(theirs, "ffn_gate_inp")], e.n,
                    h.n_embd, kind="float")
        [stacked] = self.spellings(theirs, "ffn_gate_up_exps.weight")
        fused = self.find([stacked, f"{stacked}.weight"], (e.n, 2 * e.n_ff, h.n_embd), optional=True)
        if fused is not None:
            tensor = self.floats(fused, (e.n, 2 * e.n_ff, h.n_embd))
            first = np.arange(e.n)[:, None] * 2 * e.n_ff + np.arange(e.n_ff)
            for part, rows in (("gate", first), ("up", first + e.n_ff)):
                self.add(f"{ours}ffn_{part}_exps.weight", (e.n, e.n_ff, h.n_embd), "matrix",
                         Piece(tensor, rows.ravel()))
            shape = (e.n, h.n_embd, e.n_ff)
            [stacked] = self.spellings(theirs, "ffn_down_exps.weight")
            down = self.find([stacked, f"{stacked}.weight"], shape)
            assert down is not None
            self.add(f"{ours}ffn_down_exps.weight", shape, "matrix", Piece(self.floats(down, shape)))
        else:
            self._separate_experts(ours, theirs)
        if e.n_ff_shared:
            self.vector(f"{ours}ffn_gate_inp_shexp.weight", f"{self.spellings(theirs, 'ffn_gate_inp_shexp')[0]}.weight",
                        h.n_embd)
            for part, n_out, n_in in (("gate", e.n_ff_shared, h.n_embd), ("up", e.n_ff_shared, h.n_embd),
                                      ("down", h.n_embd, e.n_ff_shared)):
                [name] = self.spellings(theirs, f"ffn_{part}_shexp")
                self.matrix(f"{ours}ffn_{part}_shexp.weight", f"{name}.weight", n_out, n_in)

    def _separate_experts(self, ours: str, theirs: str) -> None:
        h, e = self.h, self.h.experts
        assert e is not None
        for part, shape in (("gate", (e.n_ff, h.n_embd)), ("up", (e.n_ff, h.n_embd)), ("down", (h.n_embd, e.n_ff))):
            pieces = []
            for i in range(e.n):
                name = self.find([f"{s}.weight" for s in self.spellings(theirs, f"ffn_{part}.*", i)], shape)
                assert name is not None
                pieces.append(Piece(self.floats(name, shape)))
            self.add(f"{ours}ffn_{part}_exps.weight", (e.n, *shape), "matrix", *pieces)

    def check_extra(self) -> None:
        """ValueError naming a tensor of the folder that no tensor of the file comes from."""
        extra = [name for name in self.source if name not in self._used | self._unused and not _IGNORED.search(name)
                 and not name.startswith(_VISION)]
        if extra:
            shape = _text(self.source[extra[0]].shape)
            raise ValueError(f"{self.folder}: tensor {extra[0][:200]!r} of shape {shape} is none that a "
                             f"{self.h.model_class} of {self.h.n_layer} layers has by {self.h.path}"
                             + (f" (nor {len(extra) - 1} others)" if len(extra) > 1 else ""))


def interleaved(n_head: int, head_dim: int) -> Indices:
    """Order of q's or k's rows: pairs rotated together from half a head apart to side by side."""
    return np.arange(n_head * head_dim).reshape(n_head, 2, head_dim // 2).swapaxes(1, 2).ravel()


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones."""
    start = next((i for i, n in enumerate(shape[:-1]) if n != 1), len(shape) - 1)
    return shape[start:]


def _text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
