"""Tools whose code a server sent: unpacked into a private folder, verified, and registered from there.

Nothing of it is imported here: calls run in the sandbox, as those of a file of tools do. What this trusts:
the servers that the configuration lets install code. Even such a server cannot have code run outside the
sandbox, or under the name of a tool that this machine has by itself.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.config.fleet_settings import TrustedServer, covers
from toolkeep.config.settings import Run
from toolkeep.config.tools_file import find_tools_file
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import ToolkeepError
from toolkeep.execution.code_identity import code_hash_of, isolation_of
from toolkeep.fleet.code_bundle import MODULE, Bundle, BundleInvalid, read_bundle, write_bundle
from toolkeep.fleet.messages import Install
from toolkeep.keep.keep import Keep
from toolkeep.registry.coerce import Offer

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
            root = self._unpacked(bundle, hashlib.sha256(packed).hexdigest())
            self._register(f"server {server.key}", request, definition, _offer(bundle, root, definition))
        except BundleInvalid as error:
            raise CodeRefused(str(error)) from error
        except ToolkeepError as error:
            raise CodeRefused(error.message) from error

    def _unpacked(self, bundle: Bundle, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolkeep-code-")))
        root = self._folder / name
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


def _offer(bundle: Bundle, root: Path, definition: ToolDefinition) -> Offer:
    if bundle.kind == "wasm":
        target = {"path": str(root / MODULE), "output": bundle.output, "fuel": bundle.fuel}
        return Offer(tool=definition, runner=Run(kind="wasm", target=target), is_custom=True)
    file = find_tools_file(bundle.target, root)
    # A name that is not in the bundle would lead to a module that is installed on this machine.
    if not file.code or not all(part.isidentifier() for part in bundle.reference.split(".")):
        raise CodeRefused("it names no tool of its own files")
    runner = Run(
        kind="python",
        target=f"{file.place}:{bundle.reference}",
        code=file.accepted_code(),
        places=file.places,
    )
    return Offer(tool=definition, runner=runner, is_custom=True, code_hash=file.seal)
