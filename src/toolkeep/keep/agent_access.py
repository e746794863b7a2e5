"""What an agent may do with each tool, told without arguments: allowed, asks a person, or denied, and why.

Decided by the functions that decide which tools an agent is listed (`callable_tools.lacking`,
`Authorizer.ruled_out`) and by the reasons of the approval stage. Where arguments decide, it says so: `policy
explain` knows the rest.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

from toolkeep.approval.approve import reasons_of_tool
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.parameter_marks import TOUCH_FORMS
from toolkeep.definitions.vocabulary import ToolState, TouchForm
from toolkeep.keep.keep import Keep
from toolkeep.policy.authorize import Authorizer, asking_reason
from toolkeep.policy.callable_tools import lacking
from toolkeep.policy.cedar_parser import OURS
from toolkeep.policy.cedar_schema import CALL
from toolkeep.policy.grant_advice import line_for_tools
from toolkeep.policy.policy_set import Policy
from toolkeep.policy.touched_resources import ANY_SCOPE

Verdict = Literal["allow", "ask", "deny"]
Cause = Literal["policies", "agent", "withdrawn", "policy", "disabled", "quarantined", "grant", "permission"]
"""Why every call is denied: no `policies` can be used, the `agent` is not declared, what the tool needs is
`withdrawn`, a `policy` forbids it or none permits it, the tool is `disabled` or `quarantined`, or the agent
lacks a `grant` or a `permission`."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of calls of one agent to one tool."""

    verdict: Verdict
    why: str
    depends_on: tuple[str, ...] = ()
    """Policies that read the arguments, and may decide otherwise for some calls."""
    limited_to: tuple[str, ...] = ()
    """The granted capabilities that the arguments have to stay inside; `no KIND` for one that only some calls
    need and the agent does not hold. A call that names anything else is denied."""
    cause: Cause | None = None
    """Of a denial."""
    line: str = ""
    """The line of the configuration that grants what the agent lacks."""


def access_of(
    keep: Keep, agent: str, tool: RegisteredTool, problem: str = "", authorizer: Authorizer | None = None
) -> Access:
    """What an agent may do with a tool, as far as it holds for every call.

    `problem` is that of the policies (`Authorizer.problem`), which denies everything; `authorizer` decides
    in place of that of the keep, to try another grant.
    """
    if problem:
        return Access(verdict="deny", cause="policies", why=f"no call is permitted: {problem}")
    authorizer = authorizer or keep.authorizer
    if not authorizer.is_declared(agent):
        why = "everything is withdrawn from the agent, or it is not declared"
        return Access(verdict="deny", cause="withdrawn" if agent in keep.withdrawn else "agent", why=why)
    if hidden := authorizer.hidden_by(agent, tool):
        why = f"{_named(hidden)} hides the tool from the agent"
        return Access(verdict="deny", cause="policy", why=why)
    if tool.state is not ToolState.ENABLED:
        cause: Cause = "disabled" if tool.state is ToolState.DISABLED else "quarantined"
        return Access(verdict="deny", cause=cause, why=f"the tool is {tool.state.value}")
    if missing := list(lacking(authorizer.grant_of(agent), tool.definition)):
        return _lacking(keep, authorizer, agent, tool, missing)
    ruled_out = authorizer.ruled_out(agent, tool)
    if ruled_out is not None:
        named = _named(tuple(policy.id for policy in ruled_out))
        reason = "; ".join(policy.reason for policy in ruled_out if policy.reason)
        why = f"{named} forbids it{f': {reason}' if reason else ''}" if ruled_out else "no policy permits it"
        return Access(verdict="deny", cause="policy", why=why)
    return _permitted(keep, authorizer, agent, tool)


def _lacking(
    keep: Keep, authorizer: Authorizer, agent: str, tool: RegisteredTool, missing: list[str]
) -> Access:
    why = f"the agent lacks {', '.join(missing)}"
    permissions = tool.definition.required_permissions
    kinds = {one if one in permissions else one.partition(":")[0] for one in missing}
    if kinds & {
        one if one in permissions else one.partition(":")[0] for one in keep.withdrawn.get(agent, ())
    }:
        return Access(verdict="deny", cause="withdrawn", why=f"{why}, of which something is withdrawn")
    line = line_for_tools(authorizer.grant_of(agent), agent, [tool.definition])
    return Access(
        verdict="deny", cause="permission" if kinds <= set(permissions) else "grant", why=why, line=line
    )


def _permitted(keep: Keep, authorizer: Authorizer, agent: str, tool: RegisteredTool) -> Access:
    asking = authorizer.may_ask_by(agent, tool)
    why = [
        *reasons_of_tool(tool, tool.danger, is_paranoid=keep.is_paranoid),
        *map(asking_reason, asking),
    ]
    applying = authorizer.active_policies.engine.policies.applying(CALL, tool.definition, agent)
    reading = tuple(one.id for one in applying if not one.id.startswith(OURS) and _reads_call(one))
    limits, limited_to = _limits(keep, authorizer, agent, tool)
    verdict: Verdict = "ask" if why else "allow"
    if limits:
        said = "; ".join([*why, limits]) if why else f"nobody is asked; {limits}"
    else:
        said = "; ".join(why) or "what it needs is granted, and nobody is asked"
    return Access(verdict=verdict, why=said, depends_on=reading, limited_to=limited_to)


def _limits(
    keep: Keep, authorizer: Authorizer, agent: str, tool: RegisteredTool
) -> tuple[str, tuple[str, ...]]:
    """What the arguments may name, in words and as capabilities; empty if that is anything or nothing."""
    held = [one for one in authorizer.grant_of(agent).capabilities if one.scope not in ANY_SCOPE]
    words: list[str] = []
    limited_to: list[str] = []
    for kind in dict.fromkeys(mark.kind for _, mark in authorizer.touch_plan(tool).marks):
        granted = [one for one in held if one.kind == kind]
        if any(one.scope == "/" for one in granted):
            continue
        others = _OTHERS[TOUCH_FORMS[kind]]
        if granted:
            may = " and ".join(capability_words(one, keep.project) for one in granted)
            words.append(f"it may {may}; other {others} are denied")
        else:
            words.append(f"calls that need {kind} are denied")
        limited_to += map(str, granted) if granted else [f"no {kind}"]
    return "; ".join(words), tuple(dict.fromkeys(limited_to))


_OTHERS: Final = {
    TouchForm.PATH: "paths",
    TouchForm.URL: "hosts",
    TouchForm.HOST: "hosts",
    TouchForm.ARGV: "programs",
    TouchForm.DATABASE: "databases",
}


def _reads_call(policy: Policy) -> bool:
    return bool(policy.context_reads or policy.context_looks)


def _named(policies: tuple[str, ...]) -> str:
    return f"policy {', '.join(repr(one) for one in policies)}" if policies else "a policy"


_WORDS: Final = {
    "fs.read": "read files in {}",
    "fs.write": "write files in {}",
    "net.read": "fetch from {}",
    "net.write": "send to {}",
    "process.spawn": "run {}",
    "db.read": "read the database {}",
    "db.write": "write the database {}",
}


def capability_words(capability: Capability, project: str) -> str:
    """What a granted capability allows, in words."""
    scope = shown_scope(capability, project) or "anything"
    if scope == _PROJECT and _is_path(capability):
        scope = "the project folder"
    words = _WORDS.get(capability.kind)
    return words.format(scope) if words else f"{capability.kind.replace('.', ' ')} of {scope}"


_PROJECT: Final = "./"


def shown_scope(capability: Capability, project: str) -> str:
    """The scope of a granted capability; a path inside the project as `./PATH`, however it was granted."""
    scope = capability.scope
    # What `..` after a link leads to is not what its text says.
    if scope in ANY_SCOPE or not _is_path(capability) or ".." in scope.split("/"):
        return scope
    path = Path(project, scope)
    if not path.is_relative_to(project):
        return str(path)
    inside = str(path.relative_to(project))
    return _PROJECT if inside == "." else f"./{inside}"


def _is_path(capability: Capability) -> bool:
    return TOUCH_FORMS.get(capability.kind) is TouchForm.PATH
