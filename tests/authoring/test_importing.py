"""What differs while a worker imports a tool."""

import sys
from types import ModuleType
from typing import Any

import pytest

import toolkeep
from toolkeep import DefinitionError, Keep, tool
from toolkeep.authoring.importing import StandIn


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process counts as a worker that imports a tool."""

    class Import:
        is_running = True

    loading = ModuleType("_toolkeep_inside.load")
    monkeypatch.setattr(loading, "Import", Import, raising=False)
    monkeypatch.setitem(sys.modules, "_toolkeep_inside.load", loading)


def test_a_definition_is_built_when_it_is_read(importing: None) -> None:
    @tool
    def broken(x) -> int:  # type: ignore[no-untyped-def]
        return int(x)

    assert broken(x="3") == 3
    with pytest.raises(DefinitionError):
        _ = broken.definition


@pytest.mark.parametrize("name", ["Keep", "open_keep"])
def test_a_keep_is_a_stand_in_only_there(name: str, importing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(toolkeep, name)
    monkeypatch.delitem(vars(toolkeep), name)
    assert isinstance(getattr(toolkeep, name), StandIn)
    monkeypatch.delitem(vars(toolkeep), name)
    monkeypatch.delitem(sys.modules, "_toolkeep_inside.load")
    assert getattr(toolkeep, name) is real


def test_a_stand_in_does_what_the_class_does() -> None:
    stand_in: Any = StandIn("Keep", (), {"import_real": staticmethod(lambda: Keep)})

    class Mine(stand_in):  # type: ignore[misc]  # a class that mypy does not know
        def __init__(self) -> None:
            super().__init__()
            self.is_mine = True

    with stand_in() as keep, Mine() as mine:
        assert type(keep) is Keep
        assert isinstance(keep, stand_in)
        assert isinstance(keep, stand_in | None)
        assert (Mine.__bases__, mine.is_mine) == ((Keep,), True)
        assert issubclass(Mine, stand_in)
        assert stand_in.call_sync is Keep.call_sync
