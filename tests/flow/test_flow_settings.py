"""The settings of flow: what one file may do to those of another."""

from pathlib import Path

import pytest

from tests.config.projects import configure, project_file
from toolkeep import open_keep
from toolkeep.flow.flow_settings import read_flow

pytestmark = pytest.mark.spec("FLO-6")


def test_typed_views_stay_whatever_a_later_file_says() -> None:
    typed, plain = read_flow({"view": "typed"}), read_flow({"view": "plain"})
    assert [read_flow({}).view, plain.view, typed.view] == ["plain", "plain", "typed"]
    assert [one.view for one in (plain.beside(typed), typed.beside(plain), plain.beside(plain))] == [
        "typed", "typed", "plain",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="view"):
        read_flow({"view": "short"})


def test_a_project_that_has_models_shown_references_waits_for_a_person(tmp_path: Path) -> None:
    # A program that shows values all the same would have sessions that look clean.
    configure(tmp_path, "flow: {view: typed}\n")
    (effect,) = project_file(tmp_path).effects
    assert (effect.kind, str(effect.place).partition(":")[2]) == ("loosens", "1:8")


def test_the_tools_for_references_are_there_only_where_views_are_typed(tmp_path: Path) -> None:
    for flow, reader, names in (
        ({"view": "typed"}, None, {"read_text", "find_in_text"}),
        ({"view": "typed"}, lambda *_: 1, {"read_text", "find_in_text", "ask_reader"}),
        ({"policy": "standard"}, lambda *_: 1, set()),
    ):
        with open_keep(project=tmp_path, built_in=False, flow=flow, reader=reader) as keep:
            assert {tool.name for tool in keep.tools()} == names
