"""Cells of a notebook, run as IPython does: in `__main__`, from no file, inside a running event loop."""

import ast
import asyncio
import inspect
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


async def run_cells(cells: Sequence[str], main: ModuleType, place: str) -> None:
    """Run each cell in the namespace of `main`, which stands for `__main__`; a cell may await."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        for number, cell in enumerate(cells, start=1):
            code = compile(cell, place.format(number), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            given: Any = eval(code, main.__dict__)  # noqa: S307 -- as a notebook does
            if inspect.isawaitable(given):
                await given
    finally:
        sys.modules["__main__"] = before


def run_notebook(
    *cells: str, place: str = "<ipython-input-{}-0123456789ab>", file: str | None = None
) -> dict[str, Any]:
    """The names that the cells leave; `place` names their code, `file` is what `%run` left as `__file__`."""
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    asyncio.run(run_cells(cells, main, place))
    return main.__dict__
