"""Provider of the custom tools in configuration files: turns data into offers; imports and runs nothing."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import replace

from toolkeep.config.accepted_code import KINDS, AcceptedCode
from toolkeep.config.settings import ConfiguredTool, Run, RunKind, Settings
from toolkeep.definitions.serialization import definition_by_author
from toolkeep.errors import Code, DefinitionInvalid, FeatureClosed, Problem, ToolkeepError
from toolkeep.registry.coerce import Offer
from toolkeep.registry.tool_provider import CONFIG, PROJECT
from toolkeep.text.display import echo_name


class ConfigProvider:
    """Offers the custom tools of the user's files, or those of the project's.

    Two providers, because a name belongs to its first provider: a project cannot take over a tool of the
    user.
    """

    def __init__(self, settings: Settings, *, is_project: bool) -> None:
        self.name = PROJECT if is_project else CONFIG
        self.priority = 110 if is_project else 100
        self._settings = settings
        self._is_project = is_project

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each tool, with the reason if it cannot be read."""
        return [self._offer(tool) for tool in self._settings.tools if tool.is_project is self._is_project]

    def _offer(self, tool: ConfiguredTool) -> Offer:
        problems: list[Problem] = []
        data = dict(tool.data) if isinstance(tool.data, dict) else {}
        written = data.pop("run", None)
        run = read_run(written, problems)
        if run is not None and tool.root and run.kind in KINDS:
            run = replace(run, code=AcceptedCode(written, Path(tool.root), tool.code))
        if not isinstance(tool.data, dict):
            wanted = "write name:, description:, version: and so on"
            refusal = DefinitionInvalid(tool.name, [_problem("", "is no object", wanted)])
            return Offer(tool=refusal, name=tool.name, locate=lambda field: str(tool.locate(field)))
        if not isinstance(data.get("version"), str):
            message = "is missing" if data.get("version") is None else "is no text"
            problems.append(_problem("version", message, "write version: '1.0.0', in quotes"))
        if run is not None and data.get("client_executed"):
            problems.append(_problem("run", "conflicts with client_executed", "keep one of the two"))
        data.setdefault("category", "custom")
        refused = None
        if problems:
            rest = {**data, "version": "1.0.0"} if any(p.field == "version" for p in problems) else data
            refused = _refused(tool.name, rest, problems)
        if not self._settings.allows_definitions:
            refused = FeatureClosed(f"custom tool {tool.name!r} is left out", key="features.tools.definition")
        return Offer(
            tool=refused or data,
            name=tool.name,
            runner=run,
            is_custom=True,
            held_back=tool.held_back,
            aliases=tuple(data["aliases"]) if isinstance(data.get("aliases"), list) else (),
            warnings=run_warnings(run, data),
            locate=lambda field: str(tool.locate(field)),
        )


def run_warnings(run: Run | None, data: dict[str, Any]) -> tuple[Problem, ...]:
    """Why calls of a valid tool would do nothing."""
    if run is None:
        return () if data.get("client_executed") else (_NOTHING_RUNS_IT,)
    if run.kind != "http":
        return ()
    from toolkeep.network.http_endpoint import Endpoint

    if _has_variable(run.target):
        return ()
    needs = Endpoint.read(run.target).needs
    listed = data.get("capabilities")
    kinds = [str(text).partition(":")[0] for text in listed] if isinstance(listed, list) else []
    if needs.partition(":")[0] in kinds or "net.write" in kinds:
        return ()
    return (_problem("capabilities", "let the tool reach nothing", f"add {needs}"),)


def _refused(name: str, data: dict[str, Any], problems: Sequence[Problem]) -> ToolkeepError:
    """The problems of a tool, together with those of the rest of its definition."""
    try:
        definition_by_author(data, problems)
    except DefinitionInvalid as error:
        return error
    return DefinitionInvalid(name, problems)


def read_run(run: Any, problems: list[Problem]) -> Run | None:
    """The runner of a tool, by its form only."""
    if run is None:
        return None
    kinds = get_args(RunKind)
    if not isinstance(run, dict) or len(run) != 1 or next(iter(run)) not in kinds:
        problems.append(_problem("run", "names not exactly one of " + ", ".join(kinds), "keep one of them"))
        return None
    ((kind, target),) = run.items()
    if message := _wrong_with(kind, target):
        problems.append(_problem(f"run/{kind}", message, _MENDS[kind]))
        return None
    return Run(kind=kind, target=target)


_MENDS = {
    "python": "write module:function",
    "command": "write a list: program, then arguments",
    "process": (
        "write a list: program, then arguments; "
        "or an object with argv, environment, code, idle_s, between_calls"
    ),
    "http": "write a URL, or an object with url",
    "wasm": "write the path of a .wasm file, or an object with path, and perhaps output and fuel",
}


def _wrong_with(kind: str, target: Any) -> str | None:
    if kind == "command":
        is_argv = isinstance(target, list) and target and all(isinstance(word, str) for word in target)
        return None if is_argv and target[0].strip() else "is not a list of strings, a program first"
    if kind == "wasm" and isinstance(target, dict):
        return _wrong_with_wasm(target)
    if kind == "process":
        return _wrong_with_process(target)
    if kind == "http" and isinstance(target, (dict, str)) and target:
        return _wrong_with_endpoint(target)
    if not isinstance(target, str) or not target.strip():
        return "is no text"
    if kind == "python" and not all(part.strip() for part in target.partition(":")):
        return "does not name a module and a function"
    return None


def _wrong_with_process(target: Any) -> str | None:
    from toolkeep.execution.persistent.spec import ProcessSpec

    try:
        ProcessSpec.read(target)
    except ValueError as error:
        return str(error)
    return None


def _wrong_with_wasm(target: dict[str, Any]) -> str | None:
    path, output, fuel = target.get("path"), target.get("output", "json"), target.get("fuel", 1)
    if not isinstance(path, str) or not path.strip():
        return "has no path"
    if output not in ("json", "text"):
        return "has an output that is neither json nor text"
    if type(fuel) is not int or not 0 < fuel < 1 << 63:
        return "has a fuel that is not a number above 0"
    unknown = target.keys() - {"path", "output", "fuel"}
    return f"has the unknown key {echo_name(min(unknown))}" if unknown else None


def _has_variable(target: Any) -> bool:
    """Whether something is not known before a person has accepted the file."""
    texts = target.values() if isinstance(target, dict) else (target,)
    return any(isinstance(text, str) and "${" in text for text in texts)


def _wrong_with_endpoint(target: Any) -> str | None:
    from toolkeep.network.http_endpoint import Endpoint

    if _has_variable(target):
        return None
    try:
        Endpoint.read(target)
    except ValueError as error:
        return str(error)
    return None


def _problem(field: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)


_NOTHING_RUNS_IT = _problem(
    "run",
    "nothing runs the tool, so its calls can be checked and not made",
    "add run:, or client_executed: true",
)
