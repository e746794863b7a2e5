"""How a worker process finds live code again: `module:name`, or the file of a script and a name (SBX-1).

Looks only at modules that are imported already. Code that cannot be found again, or that would be other code
in the worker, raises `NoCodeReference`: a worker must never run something else than what was registered and
approved.
"""

import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

from toolkeep.authoring.agent_tool_class import is_agent_tool_class, services_taken
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import Code, Problem

_AGENT_TOOL = ("is_tool_fully_executed_on_server", "name", "execute")
"""Members of `AgentTool`."""
_TO_THE_TOP = "define it at the top of a module or script"
_IN_A_FILE = "put it into a file: a module, or a script that Python runs"


class NoCodeReference(Exception):
    """Why no other process can find the code, and what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix


def is_live(runner: object) -> bool:
    """Whether it is live code of this process, not a reference."""
    # Not by `isinstance`, which takes 30 µs for a protocol in Python 3.11: each call asks some twenty times.
    return isinstance(runner, FunctionTool) or all(hasattr(runner, name) for name in _AGENT_TOOL)


def find_reference(runner: Any) -> str:
    """`module:name` or `/path/script.py:name` of a live function or class; raises `NoCodeReference`."""
    wanted = runner.function if isinstance(runner, FunctionTool) else type(runner)
    name, module = getattr(wanted, "__qualname__", None), getattr(wanted, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise NoCodeReference(f"a {type(wanted).__name__} has no name of its own in a module", _TO_THE_TOP)
    if "<lambda>" in name:
        raise NoCodeReference("it is a lambda", f"write it with def, and {_TO_THE_TOP}")
    if "<locals>" in name:
        raise NoCodeReference("it is made inside another function", _TO_THE_TOP)
    _check_same(runner, wanted, module, name)
    return f"{_script(wanted) if module == '__main__' else _on_disk(module)}:{name}"


def isolation_problems(
    given: object, definition: ToolDefinition, runner: object, services: Sequence[object]
) -> tuple[Problem, ...]:
    """Why live code that requires isolation cannot run in a process of its own."""
    asked = definition.constraints.required_isolation
    if asked in (None, Isolation.NONE) or not is_live(runner):
        return ()
    try:
        find_reference(runner)
        if not isinstance(runner, FunctionTool):
            _check_made_alike(given if is_agent_tool_class(given) else runner, services)
    except NoCodeReference as unreachable:
        message = f"{asked} means a process of its own, and none can run this: {unreachable.why}"
        field, code = "constraints/required_isolation", Code.DEFINITION_INVALID
        return (Problem(field=field, code=code, message=message, fix=unreachable.fix),)
    return ()


def _check_same(runner: Any, wanted: Any, module: str, name: str) -> None:
    """The name must resolve to the object that was registered."""
    if getattr(runner, "overrides", None):
        why = "its dependencies are overridden, which only this process knows"
        raise NoCodeReference(why, "override them in a tool that asks for no isolation")
    loaded = sys.modules.get(module)
    if loaded is None:
        raise NoCodeReference(f"there is no module {module!r}", _IN_A_FILE)
    first, *rest = name.split(".")
    found = vars(loaded).get(first)  # not getattr: a module's `__getattr__` could import something
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
        raise NoCodeReference(
            why, "register what the module calls by that name, or give it a name of its own"
        )
    if found != wanted:  # a bound class method is a new, equal object each time
        raise NoCodeReference("it is a method of an object that only this process has", _TO_THE_TOP)


def _check_bare(runner: Any, name: str) -> None:
    """A worker that finds the bare function has nothing to build models or dependencies with."""
    if isinstance(runner, FunctionTool) and (runner.makes_instances or runner.dependencies):
        why = f"{name!r} in its module is the bare function, which gets no models or dependencies"
        raise NoCodeReference(why, "put @tool(…) on the function itself")


def _script(wanted: Any) -> str:
    """Where code of `__main__` is found: a module started with -m, or the file of a script."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), str(getattr(main, "__file__", ""))
    written = getattr(getattr(inspect.unwrap(wanted), "__code__", None), "co_filename", file)
    # A notebook's cell has a file name of its own, and may follow `%run script.py`, which leaves `__file__`:
    # a worker would run the function of the script.
    is_typed = Path(written).name != Path(file).name
    if not file or is_typed or not Path(file).is_file():
        fix = f"{_IN_A_FILE}; in a notebook, `%%writefile tools.py` and import it"
        raise NoCodeReference("it is typed into an interpreter or a notebook", fix)
    if spec is not None and "." in spec.name:
        return _on_disk(spec.name)
    return os.path.realpath(file)


def _on_disk(module: str) -> str:
    """The module, if its code is in files; one made at run time or inside an archive is refused."""
    top: ModuleType | None = sys.modules.get(module.partition(".")[0])
    spec = getattr(top, "__spec__", None)
    if spec is None:
        raise NoCodeReference(f"the module {module!r} comes from no file", _IN_A_FILE)
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    if spec.origin not in ("built-in", "frozen") and not all(Path(place).exists() for place in places):
        raise NoCodeReference(f"the module {module!r} is in no folder", _IN_A_FILE)
    return module


def _check_made_alike(given: object, services: Sequence[object]) -> None:
    """A worker builds the instance again; one built from other values would behave differently."""
    alone = "or ask for no isolation"
    if not is_agent_tool_class(given) and object.__getstate__(given) is not None:
        why = "it is an instance with attributes of its own, which would not be there"
        raise NoCodeReference(why, f"register the class itself, {alone}")
    tool_class = given if isinstance(given, type) else type(given)
    if taken := services_taken(tool_class, services):
        why = f"its constructor takes {', '.join(map(repr, taken))}, which stays in this process"
        raise NoCodeReference(why, f"give these parameters defaults, {alone}")
