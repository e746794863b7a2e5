"""Tools that are typed into a notebook or an interpreter."""

import pytest

from tests.calls.notebook import run_notebook
from toolkeep.errors import DefinitionInvalid

DEFINE = '''
from __future__ import annotations
import asyncio
from typing import Annotated, Any
from pydantic import BaseModel
from toolkeep import Depends, Keep, ToolContext, tool

class Book(BaseModel):
    title: str

def open_shelf(context: ToolContext) -> str:
    return f"the shelf of {context.agent}"

@tool(effects="none")
def find(book: Book, shelf: Annotated[str, Depends(open_shelf)]) -> str:
    """Find a book."""
    return f"{book.title} on {shelf}"

@tool(effects="none")
async def find_later(book: Book) -> str:
    """Find a book."""
    await asyncio.sleep(0)
    return book.title

keep = Keep()
keep.register(find, find_later)
'''
CLOSE = "keep.close()"


def test_a_cell_defines_tools_and_awaits_their_calls() -> None:
    call = 'first = await keep.call("find", {"book": {"title": "Dune"}})'
    assert run_notebook(DEFINE, call, CLOSE)["first"].value == "Dune on the shelf of local"


@pytest.mark.parametrize("name", ["find", "find_later"])
def test_the_synchronous_call_works_while_the_notebooks_loop_runs(name: str) -> None:
    call = f'first = keep.call_sync("{name}", {{"book": {{"title": "Dune"}}}})'
    assert run_notebook(DEFINE, call, CLOSE)["first"].value.startswith("Dune")


def test_a_cell_that_runs_again_registers_its_tool_again() -> None:
    again = """
@tool(effects="none")
def find(book: Book) -> str:
    '''Find a book.'''
    return "again"

keep.unregister("find")
keep.register(find)
value = keep.call_sync("find", {"book": {"title": "Dune"}}).value
"""
    assert run_notebook(DEFINE, again, CLOSE)["value"] == "again"


CONFINED = """
@tool(effects="none", constraints={"required_isolation": "strict"})
def look() -> str:
    '''Look.'''
    return "seen"

keep.register(look)
"""


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("place", ["<ipython-input-{}-0123456789ab>", "/tmp/ipykernel_1/{}.py"])  # noqa: S108 -- never made
@pytest.mark.parametrize("file", [None, __file__], ids=["alone", "after a script"])
def test_a_confined_tool_of_a_cell_is_told_to_become_a_file(place: str, file: str | None) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        run_notebook(DEFINE, CONFINED, place=place, file=file)
    (problem,) = refused.value.problems
    assert "it is typed into an interpreter or a notebook" in problem.message
    assert "`%%writefile tools.py` and import it" in problem.fix
