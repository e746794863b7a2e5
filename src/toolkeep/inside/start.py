"""The one file that is started by its path: `python -I -S -E start.py zygote|trial …`.

It makes a package of its own folder, under a name that no tool uses, and runs one module of it. Nothing is
added to `sys.path`, so that no file beside this one can be imported by name.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Final

_NAME: Final = "_toolkeep_inside"
_ENTRIES: Final = frozenset({"zygote", "trial"})


def start(entry: str) -> None:
    """Run one of the entries."""
    if entry not in _ENTRIES:
        raise SystemExit(f"start.py: no entry {entry!r}")
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise SystemExit("start.py: its own folder cannot be imported")
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"{_NAME}.{entry}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    start(sys.argv[1])
