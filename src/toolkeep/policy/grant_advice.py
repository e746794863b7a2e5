"""Says which line of the configuration grants what a call lacks: for the operator, never for a model."""

import json
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toolkeep.definitions.parameter_marks import TOUCH_FORMS
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.network.hosts import Host
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Grant
from toolkeep.policy.resolved_path import ResolvedPath
from toolkeep.policy.touched_resources import ANY_SCOPE, Touched
from toolkeep.text.display import echo_name

CONFIG_FILE = ".agent/config.yml"
_SCOPES = {
    TouchForm.PATH: ".",
    TouchForm.URL: "HOST",
    TouchForm.HOST: "HOST",
    TouchForm.ARGV: "PROGRAM",
    TouchForm.DATABASE: "DATABASE",
}


class GrantLine(NamedTuple):
    """What to write into the configuration."""

    added: str
    entry: str = ""
    """The entry of the file that it is added to; empty if it is a line of its own."""

    def __str__(self) -> str:
        return f"{self.entry}: add to {self.added}" if self.entry else self.added


def line_to_add(
    agent: str, grant: Grant | None, capabilities: Iterable[str] = (), permissions: Iterable[str] = ()
) -> GrantLine:
    """One line of YAML, or what to add to the agent that the file declares already."""
    lacking = {"capabilities": _list(capabilities), "permissions": _list(permissions)}
    said = ", ".join(f"{key}: {value}" for key, value in lacking.items() if value != "[]")
    if grant is None or grant == DEFAULT_GRANT:
        return GrantLine(f"agents: {{{json.dumps(echo_name(agent))}: {{inherit: defaults, {said}}}}}")
    return GrantLine(said, entry=f"agents: {json.dumps(echo_name(agent))}")


def advice(line: GrantLine) -> str:
    """What to do with a line, in one sentence."""
    return f"Add to {CONFIG_FILE}, then run `toolkeep accept`: {line}"


def line_for_tools(grant: Grant | None, agent: str, tools: Sequence[ToolDefinition]) -> str:
    """The line that grants what every call of these tools needs; empty if they lack no grant.

    A scope that only a call names is the whole project, or a word to replace.
    """
    held = grant or Grant()
    kinds = {one.kind for one in held.capabilities}
    lacking = [one for tool in tools for one in tool.capabilities if one not in held.capabilities]
    capabilities = [
        any_of(one.kind) if one.scope in ANY_SCOPE else str(one)
        for one in lacking
        if one.kind not in kinds or one.scope not in ANY_SCOPE
    ]
    permissions = [
        name for tool in tools for name in tool.required_permissions if name not in held.permissions
    ]
    lacks = capabilities or permissions
    return str(line_to_add(agent, grant, capabilities, permissions)) if lacks else ""


def any_of(kind: str) -> str:
    """A capability where only a call names the scope: the whole project, or a word to replace."""
    form = TOUCH_FORMS.get(kind)  # None for what upstreams serve, by their names
    return f"{kind}:{'NAME' if form is None else _SCOPES[form]}"


def scope_of(touched: Touched, project: str) -> str:
    """The scope that a grant of a resource would have.

    A path is relative to the project. A file that is to be made does not exist yet: it takes the folder.
    """
    if isinstance(touched.thing, Host):
        return touched.thing.scope
    if not isinstance(touched.thing, ResolvedPath):
        return touched.shown
    path = touched.shown
    if not os.path.lexists(path):
        path = os.path.dirname(path)
    real = os.path.realpath(project)
    if path == real:
        return "."
    return f"./{path.removeprefix(f'{real}/')}" if path.startswith(f"{real}/") else path


def _list(values: Iterable[str]) -> str:
    # JSON strings are YAML strings too, whatever they hold.
    return json.dumps(list(dict.fromkeys(values)), ensure_ascii=False)
