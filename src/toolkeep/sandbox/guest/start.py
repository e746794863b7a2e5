"""Entry point of sandbox processes: `python -I -S -E start.py zygote|trial|unconfined …`, started by path.

It imports its own folder as a package under a private name and runs one module of it. Nothing is added to
`sys.path`: otherwise a file in this folder could shadow a module that a tool imports by name.

It is also the main module of a worker, which `multiprocessing` runs anew in each process that it spawns.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Final

_NAME: Final = "_toolkeep_inside"
_ENTRIES: Final = frozenset({"zygote", "trial", "unconfined"})


def start(entry: str) -> None:
    """Run one of the entry modules."""
    if entry not in _ENTRIES:
        raise SystemExit(f"start.py: no entry {entry!r}")
    _module(entry).main(sys.argv[2:])


def _module(name: str) -> Any:
    # Not by package name: -I, -S and -E leave toolkeep unimportable, which keeps site-packages and PYTHONPATH
    # out of the zygote.
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise SystemExit("start.py: its own folder cannot be imported")
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{_NAME}.{name}")


if __name__ == "__main__":
    # Code folders are read-only here, and toolkeep writes nothing outside its state folder.
    sys.dont_write_bytecode = True
    start(sys.argv[1])
elif __name__ == "__mp_main__":
    _module("load").restore_imports(os.environ)
