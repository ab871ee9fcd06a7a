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
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.filters import _GroupTuple
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Cycler, Joiner, Namespace, missing

from pantheon.text import filters, strings
from pantheon.text.budget import Budget, BudgetExceeded
from pantheon.text.provenance import concat, template_text

_DATA_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}
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
        self.write(f" {_COMPARISONS[node.op]} environment.operand(")
        self.visit(node.expr, frame)
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
        self.write("{")
        for item in node.items:
            self.write("environment.key(")
            self.visit(item.key, frame)
            self.write("): ")
            self.visit(item.value, frame)
            self.write(", ")
        self.write("}")

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
        self._local = threading.local()
        self.concat = self._concat_output  # type: ignore[method-assign,assignment]
        self.filters = {name: self._guarded(f) for name, f in filters.table(self).items()}
        self.filters["_loop"] = self.loop
        self.tests = {name: self._guarded(f) for name, f in TESTS.items()}
        self.functions: dict[str, Callable[..., Any]] = {"range": self._range, "dict": self._dict}
        self.globals = {"namespace": Namespace, "cycler": Cycler, "joiner": Joiner, **self.functions}

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
        return super().from_string(source, globals, template_class)

    def _generate(self, source, name, filename, defer_init=False):
        for node in list(source.find_all(nodes.For)):
            node.iter = nodes.Filter(node.iter, "_loop", [], [], None, None, lineno=node.lineno)
        return super()._generate(source, name, filename, defer_init)

    # -- called by the generated code

    def literal(self, value: str) -> str:
        return template_text(value)

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
        self.budget.tick()
        if isinstance(value, (list, tuple, dict)):
            self.budget.container(value)
        return value

    def key(self, value: Any) -> Any:
        """A key for a dict literal: containers would have to be hashed to any depth."""
        if isinstance(value, (str, int, float, type(None))):
            return value
        raise SecurityError(f"a {type(value).__name__} cannot be a key")

    def slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        part = value[slice(start, stop, step)]
        if isinstance(part, str):
            self.budget.characters(len(part))
        elif isinstance(part, (list, tuple)):
            self.budget.items(len(part))
        return part

    def loop(self, value: Any) -> Any:
        """The iterable of a for loop, with a look at the clock at every turn."""
        if isinstance(value, str):
            self.budget.length(len(value))
        return _Loop(self.budget, value)

    # -- hooks of the sandbox

    def call_binop(self, context, operator, left, right):
        return strings.binary_operator(self.budget, operator, left, right)

    def getattr(self, obj, attribute):
        return self._attribute(obj, attribute, lambda: self._item(obj, attribute))

    def getitem(self, obj, argument):
        if isinstance(argument, slice):
            return self.slice(obj, argument.start, argument.stop, argument.step)
        found = self._item(obj, argument)
        if found is missing and isinstance(argument, str):
            return self._attribute(obj, argument, lambda: missing)
        return self.undefined(obj=obj, name=argument) if found is missing else found

    def _item(self, obj, argument):
        if not isinstance(obj, (dict, list, tuple, str, range, Undefined, Namespace)):
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
        if isinstance(obj, str):
            method = strings.METHODS.get(attribute)
            if method is not None:
                return _Method(partial(method, self, obj))
        elif isinstance(obj, Undefined):
            return getattr(obj, attribute)  # raises as above
        elif isinstance(obj, (dict, list, tuple)):
            if isinstance(obj, _GroupTuple) and attribute in ("grouper", "list"):
                return getattr(obj, attribute)
            if attribute in next(names for kind, names in _DATA_METHODS.items() if isinstance(obj, kind)):
                return _Method(getattr(obj, attribute))
        elif isinstance(obj, _RUNTIME_OBJECTS) or type(obj).__name__ == "TemplateReference":
            return super().getattr(obj, attribute)
        found = fallback()
        return self.undefined(obj=obj, name=attribute) if found is missing else found

    def call(__self, __context, __obj, *args, **kwargs):  # noqa: B902
        budget = __self.budget
        for value in (*args, *kwargs.values()):
            if isinstance(value, (list, tuple, dict)):
                budget.container(value)
        if isinstance(__obj, LoopContext) and args:
            args = (__self.loop(args[0]), *args[1:])
        with budget.call():
            return super().call(__context, __obj, *args, **kwargs)

    def is_safe_callable(self, obj):
        if isinstance(obj, (Macro, BlockReference, LoopContext, Undefined, Joiner, _Method)):
            return True
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, (LoopContext, Cycler)):
            return True
        return any(obj is f for f in (*self.functions.values(), Namespace, Cycler, Joiner))

    # -- functions of templates

    def _range(self, *args: int) -> range:
        made = range(*args)
        # len() of a range beyond the machine word raises OverflowError, which is as good an answer
        self.budget.length(len(made))
        return made

    def _dict(self, *args: Any, **kwargs: Any) -> dict:
        if args and not isinstance(args[0], dict):
            raise SecurityError("dict() takes a mapping or keywords")
        return dict(*args, **kwargs)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that looks at the clock and at the size of what it is given."""

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            budget = self.budget
            budget.tick()
            for value in (*args, *kwargs.values()):
                if isinstance(value, (list, tuple, dict)):
                    budget.container(value)
            return function(*args, **kwargs)

        return guarded


class _Method:
    """A method of a value that templates may call."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


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
