"""Runs the programs of examples/models one after the other."""

import contextlib
import io
import runpy
import traceback
from pathlib import Path


def said_by(program: Path) -> str:
    """What a program prints, or why it broke."""
    heard = io.StringIO()
    try:
        with contextlib.redirect_stdout(heard):
            runpy.run_path(str(program), run_name="__main__")
    except Exception:  # noqa: BLE001 -- said to whoever runs the tests
        return traceback.format_exc()
    return heard.getvalue()


def main(folder: Path) -> dict[str, str]:
    """What each program of a folder prints."""
    return {program.stem: said_by(program) for program in sorted(folder.glob("*.py"))}
