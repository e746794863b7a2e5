"""Attempts to leave something in a writable project for the host to run, import or trust later.

The whole project is granted for writing at strict, with the host's virtual environment and tools' code.
"""

import importlib.util
import marshal
import os
import struct
from pathlib import Path

from .declare import attempt

_SCRIPT = "#!/bin/sh\necho owned\n"


@attempt("fs-write", "changed")
def replace_interpreter(project: str) -> None:
    mine = Path(project) / "mine"
    mine.write_text(_SCRIPT)
    mine.chmod(0o755)
    mine.rename(Path(project) / ".venv/bin/python")


@attempt("fs-write", "changed")
def swap_interpreter_link(project: str) -> None:
    link = Path(project) / ".venv/bin/python"
    link.unlink()
    link.symlink_to("../../mine")


@attempt("fs-write", "changed")
def rename_environment(project: str) -> None:
    (Path(project) / ".venv").rename(Path(project) / "gone")


@attempt("fs-write", "changed")
def rename_library_of_environment(project: str) -> None:
    (Path(project) / ".venv/lib").rename(Path(project) / "lib")


@attempt("fs-write", "changed")
def add_path_file_to_environment(project: str) -> None:
    (Path(project) / ".venv/lib/site-packages/mine.pth").write_text("import os\n")


@attempt("fs-write", "changed")
def rename_folder_above_code(project: str) -> None:
    (Path(project) / "src").rename(Path(project) / "gone")


@attempt("fs-write", "changed")
def replace_code_of_another_tool(project: str) -> None:
    mine = Path(project) / "mine.py"
    mine.write_text("def tool(): return 'owned'\n")
    mine.rename(Path(project) / "src/shop/tool.py")


@attempt("fs-write", "changed")
def write_code_of_another_tool_through_a_hard_link(project: str) -> None:
    link = Path(project) / "hard.py"
    os.link(Path(project) / "src/shop/tool.py", link)
    link.write_text("def tool(): return 'owned'\n")


@attempt("fs-write", "changed")
def exchange_code_of_another_tool(project: str) -> None:
    source = Path(project) / "src/shop/tool.py"
    parked = Path(project) / "parked"
    (Path(project) / "src/shop").rename(parked)
    (Path(project) / "src/shop").mkdir()
    source.write_text("def tool(): return 'owned'\n")


@attempt("fs-write", "changed")
def plant_bytecode_of_another_tool(project: str) -> None:
    source = Path(project) / "alone.py"
    status = source.stat()
    body = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    body += marshal.dumps(compile("def tool(): return 'owned'", str(source), "exec"))
    Path(importlib.util.cache_from_source(str(source))).write_bytes(body)


@attempt("fs-write", "imported")
def leave_module_for_the_host(project: str, module: str) -> None:
    (Path(project) / f"{module}.py").write_text("owned = True\n")


@attempt("fs-write", "imported")
def leave_package_for_the_host(project: str, module: str) -> None:
    (Path(project) / module).mkdir()
    (Path(project) / module / "__init__.py").write_text("owned = True\n")


@attempt("fs-write", "imported")
def rename_old_package_for_the_host(project: str, module: str) -> None:
    """Its files keep their content and all their times."""
    (Path(project) / "attic").rename(Path(project) / module)


@attempt("fs-read", "shown")
def plant_environment_beside_a_program(project: str, program: str, home: str) -> None:
    environment = Path(program).parent.parent
    (environment / "pyvenv.cfg").write_text(f"home = {home}\n")
    (environment / "bin/python").symlink_to(f"{home}/bin/python")
