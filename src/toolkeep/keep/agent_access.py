"""What an agent may do with each tool, told without arguments: allowed, asks a person, or denied, and why.

Decided by the functions that decide which tools an agent is listed (`callable_tools.lacking`,
`Authorizer.ruled_out`) and by the reasons of the approval stage. Where arguments decide, it says so: `policy
explain` knows the rest.
"""

from typing import Final, Literal

import msgspec

from toolkeep.approval.approve import reasons_of_tool
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.keep.keep import Keep
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.callable_tools import lacking
from toolkeep.policy.cedar_parser import OURS
from toolkeep.policy.cedar_schema import CALL
from toolkeep.policy.policy_set import Policy

Verdict = Literal["allow", "ask", "deny"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of calls of one agent to one tool."""

    verdict: Verdict
    why: str
    depends_on: tuple[str, ...] = ()
    """Policies that read the arguments, and may decide otherwise for some calls."""


def access_of(
    keep: Keep, agent: str, tool: RegisteredTool, problem: str = "", authorizer: Authorizer | None = None
) -> Access:
    """What an agent may do with a tool, as far as it holds for every call.

    `problem` is that of the policies (`Authorizer.problem`), which denies everything; `authorizer` decides
    in place of that of the keep, to try another grant.
    """
    if problem:
        return Access(verdict="deny", why=f"no call is permitted: {problem}")
    authorizer = authorizer or keep.authorizer
    if not authorizer.is_declared(agent):
        return Access(verdict="deny", why="everything is withdrawn from the agent, or it is not declared")
    if hidden := authorizer.hidden_by(agent, tool):
        return Access(verdict="deny", why=f"{_named(hidden)} hides the tool from the agent")
    if tool.state is not ToolState.ENABLED:
        return Access(verdict="deny", why=f"the tool is {tool.state.value}")
    if missing := list(lacking(authorizer.grant_of(agent), tool.definition)):
        return Access(verdict="deny", why=f"the agent lacks {', '.join(missing)}")
    ruled_out = authorizer.ruled_out(agent, tool)
    if ruled_out is not None:
        named = _named(tuple(policy.id for policy in ruled_out))
        reason = "; ".join(policy.reason for policy in ruled_out if policy.reason)
        why = f"{named} forbids it{f': {reason}' if reason else ''}" if ruled_out else "no policy permits it"
        return Access(verdict="deny", why=why)
    return _permitted(keep, authorizer, agent, tool)


def _permitted(keep: Keep, authorizer: Authorizer, agent: str, tool: RegisteredTool) -> Access:
    asking = authorizer.may_ask_by(agent, tool)
    why = [
        *reasons_of_tool(tool, tool.danger, is_paranoid=keep.is_paranoid),
        *(f"policy '{one.id}' asks{f': {one.reason}' if one.reason else ''}" for one in asking),
    ]
    applying = authorizer.active_policies.engine.policies.applying(CALL, tool.definition, agent)
    reading = tuple(one.id for one in applying if not one.id.startswith(OURS) and _reads_call(one))
    if why:
        return Access(verdict="ask", why="; ".join(why), depends_on=reading)
    return Access(verdict="allow", why="what it needs is granted, and nobody is asked", depends_on=reading)


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


def capability_words(capability: Capability) -> str:
    """What a granted capability allows, in words."""
    scope = "the project folder" if capability.scope == "." else capability.scope or "anything"
    words = _WORDS.get(capability.kind)
    return words.format(scope) if words else f"{capability.kind.replace('.', ' ')} of {scope}"
