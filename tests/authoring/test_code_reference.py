"""Live code that asks for isolation must be found again by another process; else it is not registered."""

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tests.definitions import shelf
from toolkeep import Code, DefinitionError, Keep, tool
from toolkeep.authoring.code_reference import find_reference

STRICT: dict[str, Any] = {
    "side_effects": ["None"],
    "constraints": {"required_isolation": "strict"},
    "description": "A tool.",
}


def why_not(*given: Any, services: tuple[Any, ...] = ()) -> str:
    """What registering says is wrong."""
    with pytest.raises(DefinitionError) as caught:
        Keep(services=services).register(*given)
    (problem,) = caught.value.problems
    assert (problem.field, problem.code) == ("constraints/required_isolation", Code.DEFINITION_INVALID)
    assert problem.fix
    return problem.message.removeprefix("strict means a process of its own, and none can run this: ")


def strict(function: Callable[..., Any], name: str = "never") -> Any:
    return tool(name=name, **STRICT)(function)


def elsewhere(name: str, module: str, qualname: str) -> Any:
    """A function that says it comes from there."""

    def made() -> int:
        return 1

    made.__name__, made.__module__, made.__qualname__ = name, module, qualname
    return strict(made)


@pytest.mark.spec("SBX-1")
def test_functions_and_classes_of_a_module_are_registered() -> None:
    keep = Keep()
    keep.register(shelf.lend, shelf.Desk, strict(shelf.bare, "bare"), strict(shelf.Room.open, "room"))
    found = {registered.name: find_reference(registered.runner) for registered in keep.tools()}
    module = "tests.definitions.shelf"
    assert found == {
        "lend": f"{module}:lend",
        "desk": f"{module}:Desk",
        "bare": f"{module}:bare",
        "room": f"{module}:Room.open",
    }


def registered(given: object) -> str:
    """The name under which a worker finds what was registered."""
    keep = Keep()
    keep.register(given)
    (made,) = keep.tools()
    return find_reference(made.runner)


def test_a_tool_that_was_made_again_from_the_same_function_is_registered() -> None:
    assert registered(strict(shelf.lend.function, "lend_again")) == "tests.definitions.shelf:lend"


def test_a_stateless_instance_is_registered() -> None:
    assert registered(shelf.Bell()) == "tests.definitions.shelf:Bell"


@pytest.mark.spec("SBX-1")
def test_what_no_other_process_finds_is_not_registered() -> None:
    def local() -> int:
        return 1

    assert why_not(strict(local)) == "it is made inside another function"
    assert why_not(strict(lambda: 1)) == "it is a lambda"
    assert why_not(strict(shelf.Room().look)) == "it is a method of an object that only this process has"


def test_a_partial_is_not_registered_whatever_it_is_called() -> None:
    nameless: Any = functools.partial(shelf.bare, 1)
    nameless.__annotations__ = {"number": int}
    assert why_not(strict(nameless)) == "a partial has no name of its own in a module"
    named = functools.update_wrapper(functools.partial(shelf.bare, 1), shelf.bare)
    assert "is something else than what is registered" in why_not(strict(named))


def test_the_same_without_isolation_is_registered() -> None:
    def local() -> int:
        return 1

    keep = Keep()
    keep.register(tool(description="A tool.")(local))
    assert "local" in keep


def test_a_name_that_leads_to_something_else_is_not_registered() -> None:
    shadowed = strict(shelf.shadowed_before)
    why = "'shadowed' in 'tests.definitions.shelf' is something else than what is registered"
    assert why_not(shadowed) == why
    missing = elsewhere("gone", "tests.definitions.shelf", "gone")
    assert "is something else than what is registered" in why_not(missing)


def test_a_bare_function_that_wants_models_is_not_registered() -> None:
    why = "'measure' in its module is the bare function, which gets no models or dependencies"
    assert why_not(strict(shelf.measure)) == why


def test_a_module_that_is_not_there_or_in_no_file_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not(elsewhere("f", "no_such_module", "f")) == "there is no module 'no_such_module'"
    assert "no_such_module" not in sys.modules
    made = ModuleType("made_by_hand")
    monkeypatch.setitem(sys.modules, "made_by_hand", made)
    function = elsewhere("f", "made_by_hand", "f")
    made.__dict__["f"] = function
    assert why_not(function) == "the module 'made_by_hand' comes from no file"


def test_a_module_is_not_asked_for_what_it_has_not_got(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would import something to answer."""
    asked: list[str] = []
    monkeypatch.setattr(shelf, "__getattr__", asked.append, raising=False)
    why_not(elsewhere("gone", "tests.definitions.shelf", "gone"))
    assert asked == []


def test_an_instance_with_attributes_of_its_own_is_not_registered() -> None:
    why = "it is an instance with attributes of its own, which would not be there"
    assert why_not(shelf.Desk(place="hall")) == why
    bell = shelf.Bell()
    bell.rung = True
    assert why_not(bell) == why


@pytest.mark.parametrize("given", [shelf.Desk, shelf.Clerk])
def test_a_class_that_takes_a_service_is_not_registered(given: type) -> None:
    why = why_not(given, services=(shelf.Ledger(), "hall"))
    assert why in (
        "its constructor takes 'place', which stays in this process",
        "its constructor takes 'ledger', which stays in this process",
    )


def test_it_is_told_with_all_other_problems() -> None:
    class Local(shelf.Bell):
        TOOL_FIELDS: ClassVar[dict[str, Any]] = {**shelf.STRICT, "version": "one"}

    with pytest.raises(DefinitionError) as caught:
        Keep().register(Local)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["version", "constraints/required_isolation"]
