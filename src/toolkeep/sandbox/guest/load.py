"""Resolves a code reference to a callable inside a worker: import, attribute lookup, calling convention.

A function decorated as a tool binds its own arguments; an agent-tool class is instantiated once; any other
callable gets keyword arguments. toolkeep is imported here only if the tool imports it.
"""

import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from typing import Any, Final

FILE_MODULE: Final = "__toolkeep_main__"
"""Module name of a script. Not `__main__`, so that code below that guard does not run."""

_IMPORTS_VARIABLE: Final = "_TOOLKEEP_IMPORTS"
"""Environment variable of workers that may start processes: their tool and packages, as JSON."""

_COPY_VARIABLE: Final = "_TOOLKEEP_COPY"
"""Environment variable of workers that import a copy: its folder and that of the source, as JSON."""

_OURS: Final = str(Path(__file__).resolve().parents[2])
"""toolkeep's own folder. No tool may write there, so its cached bytecode is trusted; without it every worker
would start slowly."""

Arguments = dict[str, Any]
Call = Callable[[Arguments, Callable[[], Any]], Any]
"""Takes the arguments and a context factory; the result may be awaitable."""


class Failed(Exception):
    """An agent-tool class reported failure; the text is for the model."""


class Absent(Exception):
    """The module exists, but the referenced attribute is missing or not callable."""


class Import:
    """Whether the tool is being imported. `authoring.importing` reads this, found by module name."""

    is_running = False
    has_opened_keep = False
    """A keep opened during import means a script that does its work at import time."""


class SourceOnly(SourceFileLoader):
    """Loader that ignores cached bytecode.

    Another tool may be able to write the folder of this tool's code. A forged `.pyc` beside an unchanged
    source would run here with this tool's grant and secrets.

    Code of a copy is named by its source: in `__file__`, beside which its data lies, and in tracebacks.
    """

    def get_filename(self, name: Any = None) -> str:
        """Path of the source."""
        return _in_source(super().get_filename(name))

    def get_data(self, path: Any) -> bytes:
        """Content of a file; of the module's own, that of the copy."""
        return super().get_data(self.path if path == _in_source(self.path) else path)

    def exec_module(self, module: Any) -> None:
        """Run the module, which can find its source."""
        module.__file__ = _in_source(self.path)
        super().exec_module(module)

    def path_stats(self, path: Any) -> Any:  # noqa: ARG002 -- of the protocol
        """Claim that the source has no stat result, so that importlib neither reads nor writes bytecode."""
        raise OSError("bytecode is not used here")


def _in_source(path: str) -> str:
    copied = os.environ.get(_COPY_VARIABLE)
    if not copied:
        return path
    root, source = json.loads(copied)
    return f"{source}{path[len(root) :]}" if path.startswith(f"{root}/") else path


class Packages:
    """Meta path finder for single packages and modules, without their parent folder in `sys.path`.

    The parent folder need not be readable in the sandbox, and its other modules stay unimportable.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self._places = {Path(place).name.removesuffix(".py"): place for place in places}

    def install(self) -> None:
        """Put this finder first, and load submodules of these packages from source only."""
        sys.meta_path.insert(0, self)
        sys.path_hooks.insert(0, self._finder)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002 -- of the protocol
        """Spec of the top-level package or module of that name, if it is one of these."""
        place = self._places.get(name) if path is None else None
        if place is None:
            return None
        if place.endswith(".py"):
            return importlib.util.spec_from_file_location(name, place, loader=SourceOnly(name, place))
        first = f"{place}/__init__.py"
        loader = None if place == _OURS else SourceOnly(name, first)
        return importlib.util.spec_from_file_location(
            name, first, loader=loader, submodule_search_locations=[place]
        )

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Metadata among these, for `importlib.metadata`: a package may look up its own version."""
        from importlib.metadata import PathDistribution

        for place in self._places.values():
            if place.endswith(".dist-info"):
                found = PathDistribution(Path(place))
                if context.name is None or _normalized(context.name) == _normalized(found.metadata["Name"]):
                    yield found

    def _finder(self, folder: str) -> FileFinder:
        """Path hook for folders inside these packages: source and extension modules, no bytecode."""
        if not any(f"{folder}/".startswith(f"{place}/") for place in self._places.values() if place != _OURS):
            raise ImportError("it is in none of the packages")
        return FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceOnly, SOURCE_SUFFIXES))


def _normalized(name: str) -> str:
    """The name of a distribution as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def list_folders(folders: Sequence[str]) -> None:
    """Fill importlib's directory caches once in the zygote, for all forks. Imports nothing."""
    for folder in filter(os.path.isdir, folders):
        finder = pkgutil.get_importer(folder)
        if finder is not None:
            finder.find_spec("")


def load(reference: str) -> Call:
    """Import `module:name` or `/path/file.py:name` and wrap it as a `Call`; the name may have dots."""
    place, _, name = reference.rpartition(":")
    Import.is_running = True
    try:
        return _callable(_named(_imported(place), name), name)
    finally:
        Import.is_running = False


def import_place(place: str) -> Any:
    """Import a module or the file at a path as that of a tool, for `authoring/module_tools.py`."""
    Import.is_running = True
    try:
        return _imported(place)
    finally:
        Import.is_running = False


def _imported(place: str) -> Any:
    return _module_of_file(place) if place.startswith("/") else importlib.import_module(place)


def restore_imports(environment: Mapping[str, str]) -> None:
    """Import as the worker does, in a process that `multiprocessing` spawned in it.

    Such a process starts from nothing but a search path, and gets functions by the name of their module.
    """
    known = json.loads(environment[_IMPORTS_VARIABLE])
    Packages(known["packages"]).install()
    place = known["tool"].rpartition(":")[0]
    Import.is_running = True
    try:
        if place.startswith("/"):
            _module_of_file(place)
    finally:
        Import.is_running = False


def warm_up() -> None:
    """Load a module that is always there, so that copy-on-write page faults happen before the call."""
    load("json:loads")


def import_failure_kind(error: BaseException) -> str:
    """Reason code for a failed import: the host has its own text for each."""
    if isinstance(error, Absent):
        return "absent"
    if isinstance(error, ModuleNotFoundError):
        return "missing"
    if Import.has_opened_keep:
        return "unguarded"
    return "exited" if isinstance(error, SystemExit) else "raised"


def is_ours(kind: type) -> bool:
    """Whether a class is toolkeep's, by its module name."""
    return kind.__module__.partition(".")[0] == "toolkeep"


def _module_of_file(path: str) -> Any:
    # An explicit loader: a script may have any file extension, or none.
    loader = SourceOnly(FILE_MODULE, path)
    spec = importlib.util.spec_from_file_location(FILE_MODULE, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not a Python file")
    sys.argv[:] = [path]
    module = importlib.util.module_from_spec(spec)
    sys.modules[FILE_MODULE] = module
    loader.exec_module(module)
    return module


def _named(module: Any, name: str) -> Any:
    found = module
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise Absent(f"there is no {name}") from error
    return found


def _callable(found: Any, name: str) -> Call:
    if _is_agent_tool_class(found):
        return _of_instance(_made(found))
    if _is_agent_tool_class(type(found)):
        return _of_instance(found)
    if not callable(found):
        raise Absent(f"{name} is not a function")
    if is_ours(type(found)) and hasattr(found, "bind"):
        return _of_tool(found)
    return _of_function(found)


def _of_tool(tool: Any) -> Call:
    """A function decorated as a tool: it builds its models and its context from the arguments."""
    # Both read the annotations, which may raise: that is an import error, and no answer of the tool. No
    # dependency is made here: a template imports the tool before the fork, without the grant of any call.
    takes_context, _ = tool.takes_context, tool.makes_instances
    _prepare_to_await(tool.function)

    def call(arguments: Arguments, make_context: Callable[[], Any]) -> Any:
        return tool.run(arguments, make_context() if takes_context else None)

    return call


def _of_function(function: Callable[..., Any]) -> Call:
    wanted = _context_parameter(function)
    _prepare_to_await(function)

    def call(arguments: Arguments, make_context: Callable[[], Any]) -> Any:
        return function(**arguments, **({wanted: make_context()} if wanted else {}))

    return call


def _prepare_to_await(function: Callable[..., Any]) -> None:
    """Import what an async function needs now: in a template once for all calls."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        importlib.import_module("asyncio")


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """The parameter annotated with toolkeep's context; a tool that has one has imported it."""
    context = getattr(sys.modules.get("toolkeep.definitions.tool_context"), "ToolContext", None)
    if context is None:
        return None
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 -- a callable without annotations, or one whose cannot be resolved
        return None
    hints.pop("return", None)
    return next((name for name, hint in hints.items() if hint in (context, context | None)), None)


def _is_agent_tool_class(value: Any) -> bool:
    has_mark = hasattr(value, "TOOL_NAME") or hasattr(value, "get_schema")
    return inspect.isclass(value) and has_mark and hasattr(value, "execute")


def _made(tool_class: type) -> Any:
    """Instantiate an agent-tool class as a keep without services does: logger parameters get a logger."""
    import logging  # a zygote that is to serve tools has it

    try:
        hints = typing.get_type_hints(tool_class.__init__)  # type: ignore[misc]  # its own, whatever it is
    except Exception:  # noqa: BLE001 -- annotations that cannot be resolved say nothing
        hints = {}
    hints.pop("return", None)
    logger = logging.getLogger(f"toolkeep.tools.{tool_class.__name__}")
    return tool_class(**{name: logger for name, hint in hints.items() if hint is logging.Logger})


def _of_instance(instance: Any) -> Call:
    _prepare_to_await(instance.execute)

    async def call(arguments: Arguments, make_context: Callable[[], Any]) -> Any:
        result = await instance.execute(json.dumps(arguments, ensure_ascii=False), make_context())
        if not result.successful:
            raise Failed(result.error_message)
        return json.loads(result.result_json)

    return call
