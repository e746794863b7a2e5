"""How another process finds live code: `module:name`, or the file of a script and a name (SBX-1).

Looks at what is imported already and imports nothing. Code that cannot be found again, or that would be other
code there, is `Unreachable`: it must not run in a worker as something else than what was registered.
"""

import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

from toolkeep.definitions.contract import AgentTool, is_agent_tool_class, services_taken
from toolkeep.definitions.function import FunctionTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import Code, Problem

_TO_THE_TOP = "define it at the top of a module or script"
_IN_A_FILE = "put it into a file: a module, or a script that Python runs"


class Unreachable(Exception):
    """Why no other process can find the code, and what to do."""

    def __init__(self, why: str, mend: str) -> None:
        super().__init__(why)
        self.why = why
        self.mend = mend


def is_live(runner: object) -> bool:
    """Whether it is code of this process, and not the words that name some."""
    return isinstance(runner, (FunctionTool, AgentTool))


def find_reference(runner: Any) -> str:
    """`module:name` or `/path/script.py:name` of a live function or class; raises `Unreachable`."""
    wanted = runner.function if isinstance(runner, FunctionTool) else type(runner)
    name, module = getattr(wanted, "__qualname__", None), getattr(wanted, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise Unreachable(f"a {type(wanted).__name__} has no name of its own in a module", _TO_THE_TOP)
    if "<lambda>" in name:
        raise Unreachable("it is a lambda", f"write it with def, and {_TO_THE_TOP}")
    if "<locals>" in name:
        raise Unreachable("it is made inside another function", _TO_THE_TOP)
    _check_same(runner, wanted, module, name)
    return f"{_script(wanted) if module == '__main__' else _on_disk(module)}:{name}"


def isolation_problems(
    given: object, definition: ToolDefinition, runner: object, services: Sequence[object]
) -> tuple[Problem, ...]:
    """What keeps live code that asks for isolation from running in a process of its own."""
    asked = definition.constraints.required_isolation
    if asked in (None, Isolation.NONE) or not is_live(runner):
        return ()
    try:
        find_reference(runner)
        if not isinstance(runner, FunctionTool):
            _check_made_alike(given if is_agent_tool_class(given) else runner, services)
    except Unreachable as unreachable:
        message = f"{asked} means a process of its own, and none can run this: {unreachable.why}"
        field, code = "constraints/required_isolation", Code.DEFINITION_INVALID
        return (Problem(field=field, code=code, message=message, mend=unreachable.mend),)
    return ()


def _check_same(runner: Any, wanted: Any, module: str, name: str) -> None:
    """What the name leads to must be what was registered."""
    loaded = sys.modules.get(module)
    if loaded is None:
        raise Unreachable(f"there is no module {module!r}", _IN_A_FILE)
    first, *rest = name.split(".")
    found = vars(loaded).get(first)  # not getattr: a module may import something to answer that
    for part in rest:
        found = getattr(found, part, None)
    if isinstance(found, FunctionTool):
        found = found.function
    elif found is wanted:
        _check_bare(runner, name)
    if found is wanted:
        return
    if not isinstance(wanted, MethodType):
        why = f"{name!r} in {module!r} is something else than what is registered"
        raise Unreachable(why, "register what the module calls by that name, or give it a name of its own")
    if found != wanted:  # a class method is another object each time, and equal
        raise Unreachable("it is a method of an object that only this process has", _TO_THE_TOP)


def _check_bare(runner: Any, name: str) -> None:
    """A worker that finds the bare function has nothing that makes models of its arguments."""
    if isinstance(runner, FunctionTool) and runner.makes_instances:
        why = f"{name!r} in its module is the bare function, which gets no models"
        raise Unreachable(why, "put @tool(…) on the function itself")


def _script(wanted: Any) -> str:
    """Where code of `__main__` is found: a module that was started with -m, or the file of a script."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), str(getattr(main, "__file__", ""))
    typed = getattr(getattr(inspect.unwrap(wanted), "__code__", None), "co_filename", "").startswith("<")
    if not file or typed or not Path(file).is_file():
        raise Unreachable("it is typed into an interpreter or a notebook", _IN_A_FILE)
    if spec is not None and "." in spec.name:
        return _on_disk(spec.name)
    return os.path.realpath(file)


def _on_disk(module: str) -> str:
    """The module, if its code lies in files; one that was made by hand or lies in an archive does not."""
    top: ModuleType | None = sys.modules.get(module.partition(".")[0])
    spec = getattr(top, "__spec__", None)
    if spec is None:
        raise Unreachable(f"the module {module!r} comes from no file", _IN_A_FILE)
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if spec.origin not in ("built-in", "frozen") and not all(Path(place).exists() for place in places):
        raise Unreachable(f"the module {module!r} lies in no folder", _IN_A_FILE)
    return module


def _check_made_alike(given: object, services: Sequence[object]) -> None:
    """A worker makes the instance anew; one that was made from something else would be another."""
    alone = "or ask for no isolation"
    if not is_agent_tool_class(given) and object.__getstate__(given) is not None:
        why = "it is an instance with attributes of its own, which would not be there"
        raise Unreachable(why, f"register the class itself, {alone}")
    tool_class = given if isinstance(given, type) else type(given)
    if taken := services_taken(tool_class, services):
        why = f"its constructor takes {', '.join(map(repr, taken))}, which stays in this process"
        raise Unreachable(why, f"let the constructor do without, {alone}")
