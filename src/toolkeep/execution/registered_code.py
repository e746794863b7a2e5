"""Code of registered tools and granted programs, as part of the trusted set (SBX-6).

Found on disk, never imported. A confined tool is imported by each of its workers, so its whole package
counts; an in-process tool was imported already, so only its own file does. A program counts with everything
installed with it.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolkeep.authoring.code_reference import NoCodeReference, find_reference, is_live
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.execution.program_lookup import absolute, find_program, installed_with
from toolkeep.execution.read_only_paths import CACHE
from toolkeep.execution.tool_code import find_code, own_code
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPath, is_within, links_of

Families = Mapping[str, Sequence[RegisteredTool]]
Grants = Mapping[str, Iterable[Capability]]


class RegisteredCode:
    """Where the code of a keep's tools lies; recomputed when tools change."""

    def __init__(self, families: Callable[[], Families], project: str) -> None:
        """`families` are all versions of all tools, a new object after each change."""
        self._families = families
        self._project = project
        self._seen: Families | None = None
        self._paths: tuple[TrustedPath, ...] = ()
        self._links: tuple[TrustedPath, ...] = ()

    def __call__(self) -> tuple[TrustedPath, ...]:
        """Paths outside of what the process trusts anyway."""
        families = self._families()
        if families is not self._seen:
            tools = [tool for family in families.values() for tool in family]
            found = dict.fromkeys(one for tool in tools for one in self._of(tool))
            # Tools of one upstream share its program.
            written = {path: tool.name for tool in tools for path in self._written(tool)}
            self._links = tuple(
                TrustedPath(link, f"the code of the tool '{name}'")
                for path, name in written.items()
                for link in links_of(path)
            )
            # Already trusted through the process; each path twice would be two mounts.
            already = [one.path for one in THIS_PROCESS.host]
            self._paths = tuple(
                one for one in found if not any(is_within(one.path, path) for path in already)
            )
            self._seen = families
        return self._paths

    def links(self) -> tuple[TrustedPath, ...]:
        """Symlinks on the way to programs, code and modules: replaced, they would lead elsewhere."""
        self()
        return self._links

    def _written(self, tool: RegisteredTool) -> list[str]:
        try:
            if not is_live(tool.runner):
                return list(_written(getattr(tool.runner, "kind", ""), tool.runner, self._base(tool)))
            return own_code(find_reference(tool.runner), []) if _is_confined(tool) else []
        except (ValueError, OSError, NoCodeReference):  # it is not there, and its calls say so
            return []

    def _base(self, tool: RegisteredTool) -> str:
        return self._project if tool.provider == "project" and self._project else "/"

    def _of(self, tool: RegisteredTool) -> Iterator[TrustedPath]:
        what = f"the code of the tool '{tool.name}'"
        try:
            paths = list(self._places(tool))
        except (ValueError, OSError, NoCodeReference):  # it is not there, and its calls say so
            return
        for path in paths:
            yield TrustedPath(path, what)
            if path.endswith(".py"):
                # Bytecode that a tool writes here would run in the next process that imports the source.
                yield TrustedPath(f"{os.path.dirname(path)}/{CACHE}", what)

    def _places(self, tool: RegisteredTool) -> Iterable[str]:
        if is_live(tool.runner):
            if not _is_confined(tool):
                return _file_of(tool.runner)
            return find_code(find_reference(tool.runner), []).packages
        return _named(getattr(tool.runner, "kind", ""), tool.runner, self._base(tool))


def _is_confined(tool: RegisteredTool) -> bool:
    return tool.definition.constraints.required_isolation not in (None, Isolation.NONE)


def programs_of_others(grants: Grants, project: str, agent: str) -> Iterator[TrustedPath]:
    """Programs granted by path to agents other than this one, with what they need.

    Otherwise an agent could replace a binary that another agent runs with a larger grant.
    """
    for other, capabilities in grants.items():
        for held in capabilities:
            if other != agent and held.kind == "process.spawn" and "/" in held.scope:
                path = os.path.join(project, held.scope)
                what = f"a program that agent '{other}' may start"
                yield from (TrustedPath(place, what) for place in installed_with(os.path.abspath(path)))


def _named(kind: str, runner: Any, base: str) -> Iterable[str]:
    """Paths that a configuration, a store or an upstream names."""
    if kind == "python":
        code = find_code(str(runner.target), _search(base), getattr(runner, "seen", ()))
        return (*code.packages, *_sources(runner))
    if kind == "command":
        files = (os.path.realpath(os.path.join(base, word)) for word in runner.target[1:])
        return [*installed_with(find_program(runner.target[0], base)), *filter(os.path.isfile, files)]
    if kind in ("process", "mcp"):
        spec, base = _process_spec(kind, runner, base)
        return spec.shown(base) if spec else ()
    if kind == "wasm":
        return [os.path.realpath(_module(runner, base))]
    return ()


def _written(kind: str, runner: Any, base: str) -> Iterator[str]:
    """The same as written, symlinks kept."""
    words: Sequence[str] = ()
    if kind == "python":
        yield from getattr(runner, "seen", ()) or own_code(str(runner.target), _search(base))
        yield from _sources(runner)
    elif kind == "command":
        words = runner.target
    elif kind in ("process", "mcp"):
        spec, base = _process_spec(kind, runner, base)
        yield from spec.code_words(base) if spec else ()
        yield from (os.path.join(base, absolute(name, base)) for name in (spec.code if spec else ()))
    elif kind == "wasm":
        yield _module(runner, base)
    if words:
        yield find_program(words[0], base)
        yield from filter(os.path.isfile, (os.path.join(base, absolute(word, base)) for word in words[1:]))


def _sources(runner: Any) -> tuple[str, ...]:
    """What code is a copy of: written by a tool, it would be the code after the next reload."""
    copy = getattr(runner, "copy", None)
    return copy.sources if copy is not None else ()


def _search(base: str) -> list[str]:
    return [base, *sys.path] if base != "/" else sys.path


def _process_spec(kind: str, runner: Any, base: str) -> tuple[ProcessSpec | None, str]:
    """Program of a process or an upstream, and its base folder; None for a remote one."""
    target = runner.target
    if kind == "process":
        return ProcessSpec.read(target), base
    if "command" not in target:
        return None, base
    return ProcessSpec.read({"argv": list(target["command"]), "code": target.get("code")}), target["base"]


def _module(runner: Any, base: str) -> str:
    target = getattr(runner, "path", None) or runner.target
    path = target["path"] if isinstance(target, dict) else target
    return os.path.join(base, os.path.expanduser(path))


def _file_of(runner: Any) -> list[str]:
    wanted = inspect.unwrap(runner.function) if hasattr(runner, "function") else type(runner)
    module = sys.modules.get(getattr(wanted, "__module__", ""))
    file = getattr(module, "__file__", None)
    return [os.path.realpath(file)] if file and os.path.isfile(file) else []
