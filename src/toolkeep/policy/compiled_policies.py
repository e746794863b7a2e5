"""Compiles Cedar policies into a Python function, if it understands all of them.

In come policies whose scopes match and the Cedar types of what they read; out goes a function from values to
the positions of the policies that hold. It evaluates no error: where Cedar would report one, the function
raises, and the caller must ask Cedar. Types are checked here, so that no value is compared as Python would:
`True == 1`. No text of a policy becomes code: its literals and names are constants of the function.

Cedar remains the judge: `compiled_check.py` compares the two.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from toolkeep.policy.policy_set import Policy

Values = Mapping[str, Any]
Evaluate = Callable[[Values], list[int]]
"""From a context in Cedar's JSON form to the positions of the policies that hold."""
Bind = Callable[[Values, Values], Evaluate]
"""From the attributes of principal and resource."""
Type = Mapping[str, Any]
"""A type as in a Cedar schema in JSON."""

_LONG: Final = {"type": "Long"}
_STRING: Final = {"type": "String"}
_BOOL: Final = {"type": "Boolean"}
_DECIMAL: Final = {"type": "Extension", "name": "decimal"}
_LITERALS: Final = {bool: _BOOL, int: _LONG, str: _STRING}
_SCALARS: Final = tuple(_LITERALS.values())
_LONG_OPERATORS: Final = frozenset({"<", "<=", ">", ">="})
_DECIMAL_METHODS: Final = {
    "lessThan": "<",
    "lessThanOrEqual": "<=",
    "greaterThan": ">",
    "greaterThanOrEqual": ">=",
}
_SET_METHODS: Final = {
    "contains": "{1} in {0}",
    "containsAll": "{0} >= {1}",
    "containsAny": "not {0}.isdisjoint({1})",
}
_DECIMAL_TEXT: Final = re.compile(r"(-?[0-9]{1,14})\.([0-9]{1,4})")
_FALSE: Final = "False"


class NotCompiled(Exception):
    """A policy has something that the compiler does not understand."""


class _Code(NamedTuple):
    """A Python expression and the Cedar type of its value."""

    text: str
    type: Type


class _Place(NamedTuple):
    """A local variable that holds what stands at a path."""

    name: str
    type: Type
    is_certain: bool
    """Whether something always stands there."""
    is_of_call: bool
    """Whether it differs from call to call."""


def compile_policies(policies: Iterable[Policy], types: Mapping[str, Type]) -> Bind:
    """Compile policies; `types` are the record types of principal, resource and context."""
    compiler = _Compiler(types)
    try:
        source = compiler.source([compiler.policy(policy) for policy in policies])
        exec(compile(source, "<policies>", "exec"), compiler.names)  # noqa: S102 -- no text of a policy is in it
    except Exception as error:  # a tree of another form, or nested deeper than Python compiles
        raise NotCompiled from error
    bind: Bind = compiler.names["bind"]
    return bind


class _Compiler:
    def __init__(self, types: Mapping[str, Type]) -> None:
        self._roots = {
            name: _Place(name, found, is_certain=True, is_of_call=name == "context")
            for name, found in types.items()
        }
        self._places: dict[tuple[str, str], _Place] = {}
        self._lines: dict[bool, list[str]] = {True: [], False: []}
        """The lines that fill the variables, by `is_of_call`."""
        self.names: dict[str, Any] = {
            "ABSENT": _ABSENT,
            "absent": _absent,
            "decimal": _decimal,
            "inside": _inside,
            "members": _members,
        }
        """Global names of the code."""

    def source(self, conditions: list[str]) -> str:
        tests = [f"if {text}: held.append({number})" for number, text in enumerate(conditions)]
        outer = [*self._lines[False], "def evaluate(context):"]
        inner = [*self._lines[True], "held = []", *tests, "return held"]
        lines = [*outer, *(f"    {line}" for line in inner), "return evaluate"]
        return "\n".join(["def bind(principal, resource):", *(f"    {line}" for line in lines)])

    def policy(self, policy: Policy) -> str:
        """The conditions of a policy as one Python expression."""
        parts = [
            self._boolean(condition["body"])
            if condition["kind"] == "when"
            else f"(not {self._boolean(condition['body'])})"
            for condition in policy.tree["conditions"]
        ]
        return " and ".join(parts) or "True"

    def _boolean(self, node: Any) -> str:
        return self._typed(node, _BOOL)

    def _typed(self, node: Any, wanted: Type) -> str:
        code = self._code(node)
        if code.type != wanted:
            raise NotCompiled
        return code.text

    def _code(self, node: dict[str, Any]) -> _Code:
        ((operator, operand),) = node.items()
        if operator == "Value":
            return self._constant(operand, _literal_type(operand))
        if operator == "Set":
            return self._set(operand)
        if operator == ".":
            return self._read(node)
        if operator == "has":
            return _Code(self._has(operand["left"], operand["attr"]), _BOOL)
        if operator in ("&&", "||"):
            return _Code(self._chain(operator, operand), _BOOL)
        if operator == "!":
            return _Code(f"(not {self._boolean(operand['arg'])})", _BOOL)
        if operator == "if-then-else":
            return self._choice(operand)
        if operator == "decimal":
            return self._decimal(operand)
        return _Code(f"({self._comparison(operator, operand)})", _BOOL)

    def _comparison(self, operator: str, operand: Any) -> str:
        if operator in ("==", "!="):
            left, right = self._code(operand["left"]), self._code(operand["right"])
            if left.type != right.type:
                raise NotCompiled
            return f"{left.text} {operator} {right.text}"
        if operator in _LONG_OPERATORS:
            left_text, right_text = (self._typed(operand[side], _LONG) for side in ("left", "right"))
            return f"{left_text} {operator} {right_text}"
        if operator in _DECIMAL_METHODS:
            left_text, right_text = (self._typed(one, _DECIMAL) for one in operand)
            return f"{left_text} {_DECIMAL_METHODS[operator]} {right_text}"
        if operator == "like":
            matches = self._constant(_pattern(operand["pattern"]), _BOOL).text
            return f"{matches}({self._typed(operand['left'], _STRING)})"
        if operator == "isEmpty":
            return f"not {self._any_set(operand['arg']).text}"
        if operator in _SET_METHODS:
            held = self._any_set(operand["left"])
            wanted = held.type["element"] if operator == "contains" else held.type
            return _SET_METHODS[operator].format(held.text, self._typed(operand["right"], wanted))
        raise NotCompiled

    def _chain(self, operator: str, operand: dict[str, Any]) -> str:
        left = self._boolean(operand["left"])
        # What is never evaluated need not be understood: `has` of an argument that the tool does not have.
        if left == _FALSE and operator == "&&":
            return _FALSE
        return f"({left} {'and' if operator == '&&' else 'or'} {self._boolean(operand['right'])})"

    def _choice(self, operand: dict[str, Any]) -> _Code:
        test = self._boolean(operand["if"])
        yes, no = self._code(operand["then"]), self._code(operand["else"])
        if yes.type != no.type:
            raise NotCompiled
        return _Code(f"({yes.text} if {test} else {no.text})", yes.type)

    def _any_set(self, node: Any) -> _Code:
        code = self._code(node)
        if code.type["type"] != "Set":
            raise NotCompiled
        return code

    def _set(self, items: list[Any]) -> _Code:
        values = [item["Value"] for item in items if item.keys() == {"Value"}]
        types = [_literal_type(value) for value in values]
        if not types or len(values) < len(items) or any(one != types[0] for one in types):
            raise NotCompiled
        return self._constant(frozenset(values), {"type": "Set", "element": types[0]})

    def _decimal(self, operands: list[Any]) -> _Code:
        (operand,) = operands
        try:
            return self._constant(_decimal({"__extn": {"arg": operand["Value"]}}), _DECIMAL)
        except (KeyError, TypeError, ValueError):
            raise NotCompiled from None

    def _constant(self, value: Any, its_type: Type) -> _Code:
        if value is False:
            return _Code(_FALSE, its_type)
        name = f"k{len(self.names)}"
        self.names[name] = value
        return _Code(name, its_type)

    def _read(self, node: dict[str, Any]) -> _Code:
        place = self._place(node)
        if place.type["type"] == "Record":
            raise NotCompiled
        if place.is_certain:
            return _Code(place.name, place.type)
        return _Code(f"({place.name} if {place.name} is not ABSENT else absent())", place.type)

    def _has(self, left: Any, name: str) -> str:
        parent = self._place(left)
        if name not in parent.type.get("attributes", {}):
            if parent.type["type"] != "Record" or not parent.is_certain:
                raise NotCompiled
            return _FALSE
        inside = f"{self._inside(parent, name).name} is not ABSENT"
        return (
            f"({inside})" if parent.is_certain else f"({inside} if {parent.name} is not ABSENT else absent())"
        )

    def _place(self, node: Any) -> _Place:
        if "Var" in node and node["Var"] in self._roots:
            return self._roots[node["Var"]]
        if "." not in node:
            raise NotCompiled
        return self._inside(self._place(node["."]["left"]), node["."]["attr"])

    def _inside(self, parent: _Place, name: str) -> _Place:
        """The variable of an attribute; the code reads each once."""
        attribute = parent.type.get("attributes", {}).get(name)
        if attribute is None:
            raise NotCompiled
        known = self._places.get((parent.name, name))
        if known is None:
            its_type = {key: value for key, value in attribute.items() if key != "required"}
            is_certain = parent.is_certain and attribute.get("required", True)
            known = _Place(f"v{len(self._places)}", its_type, is_certain, parent.is_of_call)
            self._places[parent.name, name] = known
            key = self._constant(name, _STRING).text
            read = f"{parent.name}[{key}]" if is_certain else f"inside({parent.name}, {key})"
            self._lines[parent.is_of_call].append(f"{known.name} = {_converted(read, its_type)}")
        return known


def _converted(read: str, its_type: Type) -> str:
    """The code that makes a value of Cedar's JSON form one that compares like Cedar's."""
    if its_type == _DECIMAL:
        return f"decimal({read})"
    if its_type["type"] == "Set" and its_type["element"] in _SCALARS:
        return f"members({read})"
    if its_type in _SCALARS or its_type["type"] == "Record":
        return read
    raise NotCompiled


def _literal_type(value: Any) -> Type:
    if type(value) not in _LITERALS:  # an entity
        raise NotCompiled
    return _LITERALS[type(value)]


def _pattern(parts: list[Any]) -> Callable[[str], bool]:
    """The test of `like`. Searches from the left; a regular expression would backtrack."""
    texts = [""]
    for part in parts:
        if part == "Wildcard":
            texts.append("")
        else:
            texts[-1] += part["Literal"]
    first, last = texts[0], texts[-1]

    def matches(text: str) -> bool:
        if len(texts) == 1:
            return text == first
        start, end = len(first), len(text) - len(last)
        if start > end or not (text.startswith(first) and text.endswith(last)):
            return False
        for middle in texts[1:-1]:
            found = text.find(middle, start, end)
            if found < 0:
                return False
            start = found + len(middle)
        return True

    return matches


_ABSENT: Final = object()


def _absent() -> NoReturn:
    """Read what is absent: an error in Cedar, which decides."""
    raise LookupError


def _inside(record: Any, name: str) -> Any:
    return _ABSENT if record is _ABSENT else record.get(name, _ABSENT)


def _members(value: Any) -> Any:
    return value if value is _ABSENT else frozenset(value)


def _decimal(value: Any) -> Any:
    """A decimal as the integer of its ten-thousandths."""
    if value is _ABSENT:
        return value
    text = value["__extn"]["arg"]
    parts = _DECIMAL_TEXT.fullmatch(text)
    if parts is None:
        raise ValueError
    return int(parts[1] + parts[2].ljust(4, "0"))
