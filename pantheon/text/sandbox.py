"""The one place that runs chat templates: a Jinja sandbox with a budget.

A template comes from the model's file, so it is foreign code. Three things keep it in bounds, in any thread and without
a child process:
* it reaches only plain data and the methods, filters and functions listed here;
* every loop turn, call, filter and comparison looks at the clock;
* everything that can make something large (strings, lists, numbers, formatted widths) is sized before it is made.
Characters written by the template are marked as such, see provenance.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.ext import Extension
from jinja2.filters import _GroupTuple
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace, missing

from pantheon.text import conditions, filters, list_filters, strings
from pantheon.text.budget import Budget, BudgetExceeded
from pantheon.text.nesting import check_nesting, on_large_stack
from pantheon.text.provenance import concat, template_text

_DATA_METHODS: dict[type, tuple[str, ...]] = {
    dict: ("copy", "get", "items", "keys", "values"),
    list: ("copy", "count", "index"),
    tuple: ("count", "index"),
}
_HASH_BITS = 61  # from here on an integer's hash is that of a smaller one
_RUNTIME_OBJECTS = (LoopContext, Macro, BlockReference, Cycler, Joiner, Namespace, Undefined)
MAX_SOURCE = 1 << 17  # several times the largest template known; compiling takes time in proportion


class _Generator(CodeGenerator):
    """Generates code that marks the template's own text and calls back where something may be large."""

    def visit_Const(self, node, frame):
        value = node.as_const(frame.eval_ctx)
        if type(value) is str:
            self.write(f"environment.literal({value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node, frame):
        self.write(f"environment.literal({str(node.data)!r})")

    def _output_const_repr(self, group):
        return f"environment.literal({''.join(group)!r})"

    def _output_child_to_const(self, node, frame, finalize):
        if isinstance(node, nodes.TemplateData):
            return str(node.data)
        raise nodes.Impossible()  # nothing of a template is evaluated while it is compiled

    def _output_child_pre(self, node, frame, finalize):
        self.write("environment.printable(")

    def visit_Concat(self, node, frame):
        self.write("environment.concat_values((")
        for arg in node.nodes:
            self.visit(arg, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node, frame):
        self.write("(environment.operand(")
        self.visit(node.expr, frame)
        self.write(")")
        for op in node.ops:
            self.visit(op, frame)
        self.write(")")

    def visit_Operand(self, node, frame):
        hook = "collection" if node.op in ("in", "notin") else "operand"
        self.write(f" {_COMPARISONS[node.op]} environment.{hook}(")
        self.visit(node.expr, frame)
        self.write(")")

    def visit_List(self, node, frame):
        self.write("environment.built(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node, frame):
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.built(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Getitem(self, node, frame):
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.slice(")
        self.visit(node.node, frame)
        for part in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            if part is None:
                self.write("None")
            else:
                self.visit(part, frame)
        self.write(")")

    def visit_Dict(self, node, frame):
        self.write("environment.built({")
        for item in node.items:
            self.write("environment.key(")
            self.visit(item.key, frame)
            self.write("): ")
            self.visit(item.value, frame)
            self.write(", ")
        self.write("})")

    def visit_ScopedEvalContextModifier(self, node, frame):
        self.fail("autoescape has no meaning in a chat template", node.lineno)


_COMPARISONS = {
    "eq": "==", "ne": "!=", "gt": ">", "gteq": ">=", "lt": "<", "lteq": "<=", "in": "in", "notin": "not in",
}  # fmt: skip


class _Generation(Extension):
    """{% generation %} marks what an assistant wrote, for training; in a prompt it is only its body."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class SandboxEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates once (from_string) and renders them within a Budget (run). Threads may share it."""

    code_generator_class = _Generator
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
            optimized=False,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self.undefined = self._undefined  # type: ignore[assignment]
        self._local = threading.local()
        self.concat = self._concat_output  # type: ignore[method-assign,assignment]
        self.filters = {name: self._guarded(f) for name, f in strings.named(filters.table(self)).items()}
        self.filters["_loop"] = self.loop
        self.tests = {name: self._guarded(f) for name, f in strings.named(conditions.table(self)).items()}
        self.functions = strings.named({"range": self._range, "dict": self._dict, "namespace": self._namespace})
        self.globals = {"cycler": Cycler, "joiner": Joiner, **self.functions}
        self._literals: dict[str, str] = {}

    # -- running

    def run(self, template, variables: dict[str, Any], budget: Budget) -> str:
        """Rendered text with marks. Any exception of the template comes out as it is."""
        if getattr(self._local, "budget", None) is not None:
            raise RuntimeError("a template is already being rendered in this thread")
        self._local.budget = budget
        try:
            context = template.new_context(variables)
            return self.concat(template.root_render_func(context))
        finally:
            self._local.budget = None

    @property
    def budget(self) -> Budget:
        budget = getattr(self._local, "budget", None)
        if budget is None:
            raise SecurityError("template code runs only while rendering")
        return budget

    def from_string(self, source, globals=None, template_class=None):
        if len(source) > MAX_SOURCE:
            raise TemplateSyntaxError(f"template is longer than {MAX_SOURCE} characters", 1)
        check_nesting(self.lexer.tokeniter(source, None))
        return on_large_stack(lambda: super(SandboxEnvironment, self).from_string(source, globals, template_class))

    def _generate(self, source, name, filename, defer_init=False):
        for node in list(source.find_all(nodes.For)):
            node.iter = nodes.Filter(node.iter, "_loop", [], [], None, None, lineno=node.lineno)
        for node in list(source.find_all((nodes.Call, nodes.Filter, nodes.Test))):
            if node.dyn_args is not None:  # unpacked before the call is seen
                node.dyn_args = nodes.Filter(node.dyn_args, "list", [], [], None, None, lineno=node.lineno)
        return super()._generate(source, name, filename, defer_init)

    # -- called by the generated code

    def literal(self, value: str) -> str:
        """Text of the template, marked; one object however often it is used."""
        text = self._literals.get(value)
        if text is None:
            text = self._literals[value] = template_text(value)
        return text

    def built(self, value: Any) -> Any:
        """A list, tuple or dict that an expression wrote out."""
        self.budget.items(2 * len(value))
        return value

    def printable(self, value: Any) -> str:
        """What {{ value }} prints."""
        if isinstance(value, str):
            return value
        return strings.to_text(self.budget, value)

    def _concat_output(self, parts: Iterable[str]) -> str:
        """Sum up output while it is made, so that too much of it is never held."""
        budget, out = self.budget, []
        length = 0
        for part in parts:
            length += len(part)
            budget.characters(len(part), total=length)
            out.append(part)
        return concat(out)

    def concat_values(self, values: Iterable[Any]) -> str:
        return self._concat_output([self.printable(v) for v in values])

    def operand(self, value: Any) -> Any:
        """What is compared."""
        self.budget.work(self.budget.walk(value))
        return value

    def collection(self, value: Any) -> Any:
        """What something is looked for in; an iterator is walked to its end before."""
        if isinstance(value, Iterator):
            value = list_filters.values(self, value)
        return self.operand(value)

    def key(self, value: Any) -> Any:
        """A key for a dict: not a container, which would be hashed to any depth, nor a number that can be chosen to
        have another's hash, which would make the dict slow."""
        if isinstance(value, (str, float, type(None))) or (isinstance(value, int) and value.bit_length() < _HASH_BITS):
            return value
        raise SecurityError(f"this {type(value).__name__} cannot be a key")

    def slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        part = slice(start, stop, step)
        if isinstance(value, (str, bytes)):
            self.budget.characters(len(range(*part.indices(len(value)))))
        elif isinstance(value, (list, tuple)):
            self.budget.items(len(range(*part.indices(len(value)))))
        elif not isinstance(value, (range, Undefined)):
            raise TypeError(f"a {type(value).__name__} cannot be sliced")
        return value[part]

    def loop(self, value: Any) -> Any:
        """The iterable of a for loop, with a look at the clock at every turn."""
        if isinstance(value, (str, bytes)):
            self.budget.length(len(value))
        return _Loop(self.budget, value)

    # -- hooks of the sandbox

    def call_binop(self, context, operator, left, right):
        return strings.binary_operator(self.budget, operator, left, right)

    def _undefined(self, hint=None, obj=missing, name=None, exc=UndefinedError):
        """The name goes into messages, so it must be short."""
        if isinstance(name, str):
            name = name[:100]
        elif not isinstance(name, (int, float, type(None))):
            name = type(name).__name__
        return Undefined(hint, obj, name, exc)

    def _filter_test_common(self, name, *args, **kwargs):
        if isinstance(name, str) and name not in self.filters and name not in self.tests:
            name = name[:100]
        elif not isinstance(name, (str, Undefined)):
            raise TypeError(f"a filter or test has a name, not a {type(name).__name__}")
        return super()._filter_test_common(name, *args, **kwargs)

    def getattr(self, obj, attribute):
        self.budget.tick()
        return self._attribute(obj, attribute, lambda: self._item(obj, attribute))

    def getitem(self, obj, argument):
        self.budget.tick()
        if isinstance(argument, slice):
            return self.slice(obj, argument.start, argument.stop, argument.step)
        found = self._item(obj, argument)
        if found is missing and isinstance(argument, str):
            return self._attribute(obj, argument, lambda: missing)
        return self.undefined(obj=obj, name=argument) if found is missing else found

    def _item(self, obj, argument):
        if not isinstance(obj, (dict, list, tuple, str, bytes, range, Undefined, Namespace)):
            return missing
        if isinstance(argument, (tuple, list, dict)):
            return missing
        if isinstance(obj, Undefined):
            return obj[argument]  # raises the error that names what is undefined
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return missing

    def _attribute(self, obj, attribute, fallback):
        if isinstance(obj, (str, bytes)):
            methods = strings.METHODS if isinstance(obj, str) else strings.BYTES_METHODS
            method = methods.get(attribute) if isinstance(attribute, str) else None
            if method is not None:
                self.budget.reserve(self.budget.OBJECT)
                return _Method(partial(method, self, obj))
        elif isinstance(obj, Undefined):
            return getattr(obj, attribute)  # raises as above
        elif isinstance(obj, (dict, list, tuple)):
            if isinstance(obj, _GroupTuple) and attribute in ("grouper", "list"):
                return getattr(obj, attribute)
            methods = next(names for kind, names in _DATA_METHODS.items() if isinstance(obj, kind))
            if isinstance(attribute, str) and attribute in methods:
                self.budget.reserve(self.budget.OBJECT)
                return _Method(partial(self._data_method, obj, attribute))
        elif isinstance(obj, _RUNTIME_OBJECTS) or type(obj).__name__ == "TemplateReference":
            return super().getattr(obj, attribute)
        found = fallback()
        return self.undefined(obj=obj, name=attribute) if found is missing else found

    def _data_method(self, obj: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name in ("items", "keys", "values"):
            self.budget.items((8 if name == "items" else 1) * len(obj))
            return list(getattr(obj, name)(*args, **kwargs))
        if name == "copy":
            self.budget.items(3 * len(obj))
        elif name != "get":
            self.operand(obj)  # count and index compare with everything in it
        return getattr(obj, name)(*args, **kwargs)

    def call(__self, __context, __obj, *args, **kwargs):  # noqa: B902
        budget = __self.budget
        budget.items(len(args) + len(kwargs))
        for value in (*args, *kwargs.values()):
            budget.work(budget.walk(value))
        if isinstance(__obj, LoopContext) and args:
            args = (__self.loop(args[0]), *args[1:])
        with budget.call():
            return super().call(__context, __obj, *args, **kwargs)

    call.__module__, call.__qualname__ = "builtins", "call"  # in messages

    def is_safe_callable(self, obj):
        if isinstance(obj, (Macro, BlockReference, LoopContext, Undefined, Joiner, _Method)):
            return True
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, (LoopContext, Cycler)):
            return True
        return any(obj is f for f in (*self.functions.values(), Cycler, Joiner))

    # -- functions of templates

    def _range(self, *args: int) -> range:
        made = range(*args)
        # len() of a range beyond the machine word raises OverflowError, which is as good an answer
        self.budget.length(len(made))
        return made

    def _dict(self, *args: Any, **kwargs: Any) -> dict:
        """dict(): of a mapping or of pairs, and of keywords."""
        if len(args) > 1:
            raise TypeError(f"dict expected at most 1 argument, got {len(args)}")
        made: dict[Any, Any] = {}
        for source in (*args, kwargs):
            self.budget.items(3 * len(source) if isinstance(source, (dict, list, tuple)) else 0)
            for pair in self.loop(source.items() if isinstance(source, dict) else source):
                if not isinstance(pair, (tuple, list, str)) or len(pair) != 2:
                    raise ValueError("dict needs pairs of a key and a value")
                made[self.key(pair[0])] = pair[1]
        return made

    def _namespace(self, *args: Any, **kwargs: Any) -> Namespace:
        names = self._dict(*args, **kwargs)
        if any(not isinstance(name, str) or name.startswith("_") for name in names):
            raise SecurityError("the names of a namespace are strings that begin with no underscore")
        return Namespace(names)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that looks at the clock and refuses what is too large or too deep to be walked."""

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            budget = self.budget
            budget.tick()
            for value in (*args, *kwargs.values()):
                budget.size(value)
            return function(*args, **kwargs)

        return guarded


class _Method:
    """A method of a value that templates may call."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


_Method.__name__ = "method"  # in messages


class _Loop:
    def __init__(self, budget: Budget, value: Any):
        self._budget = budget
        self._value = value

    def __iter__(self) -> Iterator[Any]:
        for item in self._value:
            self._budget.tick()
            yield item

    def __len__(self) -> int:
        return len(self._value)


__all__ = ["Budget", "BudgetExceeded", "SandboxEnvironment"]
