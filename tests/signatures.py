"""Public names as lines of text, read from the source: names, parameters, fields, types as they are written.

The text of the source is the same on every version of Python, and holds no module path: where something is
defined may change without a change here.
"""

import ast
import copy
import enum
import functools
import importlib
import inspect
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

_SPECIAL = {
    "__aenter__", "__aexit__", "__call__", "__contains__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__",
}  # fmt: skip
_LONGEST = 110
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def describe_module(module: str, elsewhere: Collection[str] = ()) -> Iterator[str]:
    """Everything in the `__all__` of a module; what another public module defines is told there."""
    held = importlib.import_module(module)
    public = [getattr(held, name) for name in held.__all__]
    for name, value in zip(held.__all__, public, strict=True):
        home = getattr(value, "__module__", "")
        if home != module and home in elsewhere:
            yield f"{name} is {home}.{name}"
        else:
            yield from _describe(name, value, public)


def describe_file(path: Path) -> Iterator[str]:
    """Everything in the `__all__` of a file, which is not loaded; what a class inherits is left out."""
    for name in names_in_all(path):
        node = _definition(_parsed(path), name)
        if isinstance(node, ast.ClassDef):
            yield from _class(name, [node])
        elif isinstance(node, Function):
            yield from _function(name, node).splitlines()
        else:
            raise LookupError(f"{path}: {name}")


def names_in_all(path: Path) -> list[str]:
    """What the `__all__` of a file lists; empty where it has none."""
    for node in _parsed(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _definition(tree: ast.Module, name: str) -> ast.stmt | None:
    """The last definition of that name: of an overloaded function, the one that runs."""
    found = [
        node for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, *Function)) and node.name == name
    ]
    top = [node for node in found if node in tree.body]
    return next(reversed(top or found), None)


def _node_of(value: Any) -> ast.stmt | None:
    path = inspect.getsourcefile(value)
    return None if path is None else _definition(_parsed(Path(path)), value.__name__)


def _describe(name: str, value: Any, public: Sequence[Any]) -> Iterator[str]:
    if isinstance(value, type):
        # What a public base gives is told there.
        mro = [one for one in value.__mro__ if one is value or one not in public]
        ours = [one for one in mro if one.__module__.split(".")[0] == "toolkeep"]
        nodes = [node for node in map(_node_of, ours) if isinstance(node, ast.ClassDef)]
        yield from _class(
            name, nodes, is_enum=issubclass(value, enum.Enum), is_error=issubclass(value, Exception)
        )
    elif inspect.isfunction(value):
        node = _node_of(value)
        if not isinstance(node, Function):
            raise LookupError(name)
        yield from _function(name, node).splitlines()
    else:
        yield name


def _class(
    name: str, nodes: list[ast.ClassDef], *, is_enum: bool = False, is_error: bool = False
) -> Iterator[str]:
    """A line for the class, and one for each public member, inherited ones too."""
    own = nodes[0]
    heads = [
        *map(ast.unparse, own.bases),
        *(f"{word.arg}={ast.unparse(word.value)}" for word in own.keywords),
    ]
    marks = "".join(f" @{ast.unparse(mark)}" for mark in own.decorator_list)
    yield (f"class {name}({', '.join(heads)})" if heads else f"class {name}") + marks
    members: dict[str, str] = {}
    for node in reversed(nodes):
        for member, line in _members(name, node, is_enum=is_enum, is_error=is_error):
            members[member] = line
    for member in sorted(members):
        yield from members[member].splitlines()


def _members(owner: str, node: ast.ClassDef, *, is_enum: bool, is_error: bool) -> Iterator[tuple[str, str]]:
    for part in node.body:
        if isinstance(part, Function):
            yield from _method(owner, part, is_error=is_error)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            if not part.target.id.startswith("_"):
                default = "" if part.value is None else f" = {ast.unparse(part.value)}"
                yield part.target.id, f"{owner}.{part.target.id}: {_type(part.annotation)}{default}"
        elif isinstance(part, ast.Assign):
            for target in part.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    value = f" = {ast.unparse(part.value)}" if is_enum else ""
                    yield target.id, f"{owner}.{target.id}{value}"


def _method(
    owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_error: bool
) -> Iterator[tuple[str, str]]:
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    if node.name == "__init__":
        yield node.name, _function(owner, node)
        if is_error:  # what a handler reads of it
            yield from ((name, f"{owner}.{name}") for name in _assigned(node))
    elif any(mark.endswith(".setter") for mark in marks) or (
        node.name.startswith("_") and node.name not in _SPECIAL
    ):
        return
    elif "property" in marks or any("cached_property" in mark for mark in marks):
        yield node.name, f"{owner}.{node.name}: {_type(node.returns)}"
    else:
        yield node.name, _function(f"{owner}.{node.name}", node)


def _assigned(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Store)
            and not part.attr.startswith("_")
        ):
            yield part.attr


def _function(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """One line, or one for each parameter where that would be too long to see a change in."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    kind = "".join(f" @{mark}" for mark in ("staticmethod", "classmethod") if mark in marks)
    is_async = " @async" if isinstance(node, ast.AsyncFunctionDef) else ""
    tail = ("" if node.name == "__init__" else f" -> {_type(node.returns)}") + is_async + kind
    parameters = list(_parameters(node.args))
    line = f"{name}({', '.join(parameters)}){tail}"
    if len(line) <= _LONGEST:
        return line
    return "\n".join([f"{name}(…){tail}", *_one_by_one(name, parameters)])


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """The parameters and their `/` and `*`, types without quotes; `self` and `cls` are left out."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (one, default) in enumerate(zip(plain, defaults, strict=True), start=1):
        if number > 1 or one.arg not in ("self", "cls"):
            yield _parameter(one, default)
        if number == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{_parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, default)
    if arguments.kwarg:
        yield f"**{_parameter(arguments.kwarg, None)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    kind = "" if one.annotation is None else f": {_type(one.annotation)}"
    return one.arg + kind + ("" if default is None else f" = {ast.unparse(default)}")


def _one_by_one(name: str, parameters: list[str]) -> Iterator[str]:
    """A line for each parameter, with its place (`1/` where it has no name for callers), or `*` where it has none."""
    positional_only = parameters.index("/") if "/" in parameters else 0
    is_keyword = False
    for number, parameter in enumerate((one for one in parameters if one != "/"), start=1):
        if parameter != "*":
            place = "*" if is_keyword else f"{number}/" if number <= positional_only else str(number)
            yield f"{name}({place} {parameter})"
        is_keyword = is_keyword or (parameter.startswith("*") and not parameter.startswith("**"))


def _type(annotation: ast.expr | None) -> str:
    return "?" if annotation is None else ast.unparse(_Unquoted().visit(copy.deepcopy(annotation)))


class _Unquoted(ast.NodeTransformer):
    """A type that is written as text, as the type."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value).split(".")[-1] in ("Literal", "Annotated"):
            return node
        self.generic_visit(node)
        return node
