"""Tools whose code a server sent: unpacked into a private folder, verified, and registered from there.

Nothing of it is imported here: calls run in the sandbox, as those of a file of tools do. What this trusts:
the servers that the configuration lets install code. Even such a server cannot have code run outside the
sandbox, or under the name of a tool that this machine has by itself. A package is imported from its folder by
the workers of its own tools alone, and so replaces none that is installed for others.
"""

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from toolkeep.config.fleet_settings import TrustedServer, covers
from toolkeep.config.project_code import is_path
from toolkeep.config.settings import Run
from toolkeep.config.tools_file import find_tools_file
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import ToolkeepError
from toolkeep.execution.code_identity import code_hash_of, hash_of, isolation_of
from toolkeep.fleet.code_bundle import (
    MODULE,
    Bundle,
    BundleInvalid,
    has_machine_code,
    machine_here,
    read_bundle,
    write_bundle,
)
from toolkeep.fleet.installed_package import lacking, metadata_of
from toolkeep.fleet.messages import Install
from toolkeep.keep.keep import Keep
from toolkeep.registry.coerce import Offer

log = logging.getLogger("toolkeep.fleet")

_CONFINED: Final = ("strict", "restricted", "wasm")
"""At `standard` code sees this machine as the user of the worker does, with the worker's key."""
_BUNDLES: Final = 256
"""Kept at once, each of at most 32 MiB; a worker that is started anew has none."""


class CodeRefused(Exception):
    """Code of a server is not used."""


class DeliveredCode:
    """The tools that servers installed in this process."""

    def __init__(self, keep: Keep, levels: tuple[str, ...]) -> None:
        self._keep = keep
        self._levels = levels
        self._folder: Path | None = None

    def close(self) -> None:
        """Remove the code."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def install(self, server: TrustedServer, request: Install, packed: bytes) -> None:
        """Register a tool whose code a server sent; raises `CodeRefused`. Waits for files."""
        if not server.code or not covers(server.tools, request.tool.name):
            raise CodeRefused("this server may not install it")
        try:
            definition = _definition(request)
            bundle = read_bundle(packed)
            _check_usable(bundle)
            root = self._unpacked(_laid_out(bundle))
            self._register(f"server {server.key}", request, definition, _offer(bundle, root, definition))
        except BundleInvalid as error:
            raise CodeRefused(str(error)) from error
        except ToolkeepError as error:
            raise CodeRefused(error.message) from error
        package = f"{bundle.pin.name} {bundle.pin.version}" if bundle.pin else ""
        extra = {"server": server.name or server.key, "tool": request.tool.name, "package": package}
        log.info("code of a server was installed", extra={**extra, "hash": request.tool.code_hash})

    def _unpacked(self, bundle: Bundle) -> Path:
        if self._folder is None:
            self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolkeep-code-")))
        root = self._folder / hash_of(sorted(bundle.files.items()))  # tools of one package share it
        if root.exists():
            return root
        if sum(1 for _ in self._folder.iterdir()) >= _BUNDLES:
            raise CodeRefused("this worker holds as much code of servers as it may")
        made = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            write_bundle(bundle, made)
            made.rename(root)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return root

    def _register(self, provider: str, request: Install, definition: ToolDefinition, offer: Offer) -> None:
        # Not methods of `Keep`: only a worker takes tools from elsewhere while it runs.
        registry, registrar = self._keep._registry, self._keep._registrar  # noqa: SLF001
        tool = registrar.admit(offer, provider=provider)
        if code_hash_of(tool, self._keep.project) != request.tool.code_hash:
            raise CodeRefused("its code is not that of its hash")
        level = isolation_of(tool)
        if level not in _CONFINED or level not in self._levels:
            raise CodeRefused(f"it would run at {level}, where this worker runs no code of servers")
        registry.exchange([definition.name], [tool], provider=provider)


def _definition(request: Install) -> ToolDefinition:
    try:
        data: Any = msgspec.json.decode(request.definition)
    except (msgspec.DecodeError, ValueError) as error:
        raise CodeRefused("its definition cannot be read") from error
    definition = definition_from_dict(data)
    if (definition.name, definition.hash) != (request.tool.name, request.tool.definition_hash):
        raise CodeRefused("its definition is not that of its hash")
    if not definition.source.is_by_hand:
        raise CodeRefused("it is an import")
    return definition


def _check_usable(bundle: Bundle) -> None:
    """Raise `CodeRefused` for code that this machine cannot run, before any of it is written."""
    if has_machine_code(bundle.files) and bundle.machine != machine_here():
        made_for = bundle.machine or "no known machine"
        raise CodeRefused(f"it has extension modules for {made_for}, and this is {machine_here()}")
    if bundle.kind != "package":
        return
    module, pin = bundle.target.partition(".")[0], bundle.pin
    if pin is None or {name.partition("/")[0] for name in bundle.files} not in ({module}, {f"{module}.py"}):
        raise CodeRefused("it is not one package")
    # The tool's own packages are found before the standard library, and before an installed toolkeep.
    if module in sys.stdlib_module_names or module == "toolkeep":
        raise CodeRefused(f"its package is called '{module}', like one of Python or toolkeep")
    if lacks := lacking(pin.requires):
        raise CodeRefused(f"{pin.name} {pin.version} needs {lacks}")


def _laid_out(bundle: Bundle) -> Bundle:
    """A package as it would be installed, with the metadata that tells its version."""
    if bundle.pin is None:
        return bundle
    return replace(bundle, files={**bundle.files, **metadata_of(bundle.pin)})


def _offer(bundle: Bundle, root: Path, definition: ToolDefinition) -> Offer:
    if bundle.kind == "wasm":
        target = {"path": str(root / MODULE), "output": bundle.output, "fuel": bundle.fuel}
        return Offer(tool=definition, runner=Run(kind="wasm", target=target), is_custom=True)
    if not all(part.isidentifier() for part in bundle.reference.split(".")):
        raise CodeRefused("it names no tool of its own files")
    if bundle.kind == "package":
        return Offer(tool=definition, runner=_package_run(bundle, root), is_custom=True)
    file = find_tools_file(bundle.target, root)
    # A name that is not in the bundle would lead to a module that is installed on this machine.
    if not file.code or not (is_path(file.place) or _is_among(file.place, file.places)):
        raise CodeRefused("it names no tool of its own files")
    runner = Run(
        kind="python",
        target=f"{file.place}:{bundle.reference}",
        code=file.accepted_code(),
        places=file.places,
    )
    return Offer(tool=definition, runner=runner, is_custom=True, code_hash=file.seal)


def _package_run(bundle: Bundle, root: Path) -> Run:
    module = bundle.target.partition(".")[0]
    package, single = root / module, root / f"{module}.py"
    place = single if single.is_file() else package
    has_start = place == single or (package / "__init__.py").is_file()
    if not has_start or not all(part.isidentifier() for part in bundle.target.split(".")):
        raise CodeRefused("it names no tool of its own files")
    return Run(
        kind="python",
        target=f"{bundle.target}:{bundle.reference}",
        places=(str(place),),
        metadata=tuple(map(str, root.glob("*.dist-info"))),
    )


def _is_among(module: str, places: tuple[str, ...]) -> bool:
    top = module.partition(".")[0]
    return any(Path(place).name.removesuffix(".py") == top for place in places)
