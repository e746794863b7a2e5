"""Says which line of the configuration grants what a call lacks: for the operator, never for a model."""

import json
import os
from collections.abc import Iterable

from toolkeep.network.hosts import Host
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Grant
from toolkeep.policy.resolved_path import ResolvedPath
from toolkeep.policy.touched_resources import Touched
from toolkeep.text.display import echo_name

CONFIG_FILE = ".agent/config.yml"


def line_to_add(
    agent: str, grant: Grant | None, capabilities: Iterable[str] = (), permissions: Iterable[str] = ()
) -> str:
    """One line of YAML, or what to add to the agent that the file declares already."""
    lacking = {"capabilities": _list(capabilities), "permissions": _list(permissions)}
    said = ", ".join(f"{key}: {value}" for key, value in lacking.items() if value != "[]")
    if grant is None or grant == DEFAULT_GRANT:
        return f"agents: {{{json.dumps(echo_name(agent))}: {{inherit: defaults, {said}}}}}"
    return f"agents: {json.dumps(echo_name(agent))}: add to {said}"


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
