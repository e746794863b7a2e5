"""`toolkeep policy explain`: a dry run of the decision on a call, with its reasons and ways to change it."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from toolkeep.calls import DEFAULT_POLICY, PermittedCall, Refusal, RegisteredTool, ToolCall
from toolkeep.cli.audit import log_of
from toolkeep.cli.call_arguments import arguments, read_arguments
from toolkeep.cli.options import (
    common,
    files,
    print_json,
    project,
    say,
    say_done,
    say_failed,
    tools_option,
    warn,
)
from toolkeep.cli.policy_replay import flow_words, fold_of
from toolkeep.cli.project_context import ProjectContext
from toolkeep.cli.tool_selection import complete_name
from toolkeep.flow.session_state import SessionState
from toolkeep.flow.session_store import MemorySessionStates, SessionStates
from toolkeep.flow.tracker import Flow
from toolkeep.keep.approval_preview import ApprovalPreview
from toolkeep.keep.approval_preview import preview_approval_need as asking
from toolkeep.keep.open import open_approvals, open_sessions
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.cedar_engine import AgentEntity
from toolkeep.policy.decision_explain import Explanation, PolicyResult, Touch, explain
from toolkeep.policy.policy_settings import Grant
from toolkeep.storage.sqlite.bodies_db import Bodies
from toolkeep.storage.sqlite.sessions_db import SqliteSessionStates
from toolkeep.text.display import echo_name, visible


class Answer(NamedTuple):
    """The explanation of one call."""

    agent: str
    tool: str
    explanation: Explanation
    asking: ApprovalPreview = ApprovalPreview()


@click.command("explain")
@click.argument("name", shell_complete=complete_name)
@arguments
@click.option("--agent", default="operator", show_default=True, help="The agent that would make the call.")
@click.option("--session", default="", help="The session of the call, as the log names it.")
@tools_option
@files
@project
@common
def command(
    name: str,
    arguments: tuple[str, ...],
    agent: str,
    session: str,
    tools: tuple[str, ...],
    files: tuple[Path, ...],
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Explain whether a call of NAME with ARGUMENTS (as of `toolkeep call`) would be allowed.

    Shows what it would touch, what each policy says, whether a person would be asked, and what would have to
    change. Nothing is run, recorded or asked. Exit status 0 if policy allows the call.
    """
    world = ProjectContext(project, files, tools)
    with world.keep:
        text = read_arguments(arguments, world.keep, name)
        answer = _answer(world, name, text, agent, session)
    if as_json:
        print_json(_data(answer))
    else:
        _print(answer)
    if not answer.explanation.is_allowed:
        sys.exit(1)


def _answer(world: ProjectContext, name: str, text: bytes, agent: str, session: str) -> Answer:
    authorizer = world.authorizer(
        (*world.settings.policies, *world.stored_sources()), world.settings.examples
    )
    checked = world.keep.try_validate_arguments(name, text, agent=agent)
    if isinstance(checked, Refusal):
        return Answer(agent, checked.tool, _before_policy(world, authorizer, checked, name, agent))
    watched = None
    if world.watches(authorizer):
        authorizer.flow = Flow(world.flow, _session_states(world), is_dry=True)
        watched = _session(world, authorizer, authorizer.flow, agent, session)
    request = ToolCall(
        id="explain", tool=checked.tool, arguments=None, agent=agent, session=session, flow=watched
    )
    explained = explain(authorizer, world.holder(agent), request, checked)
    if not isinstance(explained.outcome, PermittedCall):
        return Answer(agent, checked.tool, explained)
    try:
        return Answer(agent, checked.tool, explained, _asking(world, explained.outcome))
    finally:
        for one in explained.outcome.touched:
            one.close()


def _session(
    world: ProjectContext, authorizer: Authorizer, flow: Flow, agent: str, name: str
) -> SessionState:
    """The session of a name as the log and the stored states tell of it."""
    found = _recorded(world, authorizer, agent, name) if name and world.state is not None else None
    if found is None:
        if name:
            warn(f"no call of {echo_name(agent)} in session {echo_name(name)} is recorded")
        return flow.look_up(agent, name)
    found.inherit(flow.stored(found.key))
    return found


def _recorded(world: ProjectContext, authorizer: Authorizer, agent: str, name: str) -> SessionState | None:
    if world.state is None or not (world.state.folder / "audit").exists():
        return None
    with log_of(world.root) as log:
        records = [entry.record for entry in log.read()]
    calls = {one["call"] for one in records if one.get("type") == "ToolInvoked" and one["agent"] == agent}
    with closing(Bodies(world.state.folder)) as bodies:
        sessions = fold_of(world, authorizer, bodies)
        for _ in sessions.walk(one for one in records if one.get("call") in calls):
            pass
        return sessions.session(agent, name)


def _session_states(world: ProjectContext) -> SessionStates:
    """The stored states of sessions and measures; none if there are none yet, and nothing is made."""
    if world.settings.database is not None:
        return open_sessions(world.root)
    folder = None if world.state is None else world.state.folder
    if folder is None or not any((folder / name).exists() for name in ("sessions.db", "measures.db")):
        return MemorySessionStates()
    return SqliteSessionStates(folder)


def _before_policy(
    world: ProjectContext, authorizer: Authorizer, refusal: Refusal, name: str, agent: str
) -> Explanation:
    """Explain a call that reaches no decision: a hidden tool, or invalid arguments."""
    tool = world.keep.try_get(name)
    if tool is not None and not authorizer.sees(agent, tool):
        changes = tuple(_hidden(authorizer, tool, agent, world.grants.get(agent)))
    else:
        changes = tuple(f"{error.message}: {error.suggestion}" for error in refusal.errors)
    return Explanation(outcome=refusal, changes=changes)


def _hidden(authorizer: Authorizer, tool: RegisteredTool, agent: str, grant: Grant | None) -> Iterator[str]:
    """Why a tool is hidden from an agent; for the operator only: agents must not learn that it exists."""
    if grant is None:
        yield f"declare the agent: write '{echo_name(agent)}' under agents: in config.yml"
        return
    entity = AgentEntity(
        id=agent,
        permissions=frozenset(grant.permissions),
        capabilities=frozenset(map(str, grant.capabilities)),
    )
    engine = authorizer.active_policies.engine
    verdict = engine.may_see(entity, tool)
    yield from (f"the policies could not be applied: {error}" for error in verdict.errors)
    for policy in (engine.policies.by_id[name] for name in verdict.policies):
        place = f"{policy.source}:{policy.line}:{policy.column}"
        yield f"policy '{policy.id}' ({place}) hides the tool from the agent; change it"


def _asking(world: ProjectContext, call: PermittedCall) -> ApprovalPreview:
    with open_approvals(world.root) as kept:
        return asking(call, kept, is_paranoid=world.settings.is_paranoid)


def _data(answer: Answer) -> dict[str, Any]:
    explained = answer.explanation
    outcome = explained.outcome
    refusal = None
    if isinstance(outcome, Refusal):
        refusal = {"code": outcome.code.value, "message": outcome.errors[0].message}
    decision = outcome.decision
    return {
        "allowed": explained.is_allowed,
        "agent": answer.agent,
        "tool": answer.tool,
        "refusal": refusal,
        "decided_by": list(decision.policies) if decision else [],
        "touches": [touch.to_dict() for touch in explained.touches],
        "policies": [policy.to_dict() for policy in explained.policies],
        "asks": {
            "why": list(answer.asking.why),
            "acts": answer.asking.acts,
            "earlier": answer.asking.earlier,
            "spared_by": explained.spared_by,
        },
        "changes": list(explained.changes),
        "line": str(explained.line or ""),
        "flow": msgspec.to_builtins(decision.flow) if decision and decision.flow else None,
    }


def _print(answer: Answer) -> None:
    explained = answer.explanation
    outcome = explained.outcome
    if isinstance(outcome, Refusal):
        say_failed(f"{answer.agent} may not make this call of {answer.tool}")
        say(f"  {outcome.errors[0].message} ({outcome.code})")
    else:
        say_done(f"{answer.agent} may make this call of {answer.tool}")
        policies = outcome.decision.policies
        is_default = policies == (DEFAULT_POLICY,)
        by = "the default, because you have no policies" if is_default else ", ".join(policies)
        say(f"  permitted by {by}")
    if explained.touches:
        say("", "It would access:")
        for touch in explained.touches:
            say(f"  {_touch_line(touch)}")
            for held in touch.held_down:
                say(f"    but read-only inside: {visible(held)}")
    if explained.policies:
        say("", "Policies, each on its own:")
        for policy in explained.policies:
            say(f"  {_policy_line(policy)}")
    if outcome.decision is not None and outcome.decision.flow:
        say("", f"Flow: {flow_words(outcome.decision.flow)}")
    _print_asking(answer)
    if explained.changes:
        say("", "To allow it:")
        for change in explained.changes:
            say(f"  - {change}")


def _print_asking(answer: Answer) -> None:
    asked = answer.asking
    if spared := answer.explanation.spared_by:
        say("", f"Approval that policies require is waived by {', '.join(spared)}")
    if asked.why:
        twice = ", twice" if asked.acts > 1 else ""
        say("", f"Approval would be required{twice}: {'; '.join(asked.why)}")
    elif asked.earlier:
        say("", f"No approval required: {asked.earlier}")
    elif answer.explanation.is_allowed:
        say("", "No approval required")


def _touch_line(touch: Touch) -> str:
    named = f" ({touch.argument})" if touch.argument else ""
    what = f"{touch.capability} of {touch.thing}{named}" if touch.capability else touch.argument
    if touch.objections:
        return f"{what}: " + "; ".join(objection.what for objection in touch.objections)
    led = f", and may resolve to {' or '.join(touch.leads_to)} addresses only" if touch.leads_to else ""
    return f"{what}: held as {touch.capability}:{touch.grant}{led}" if touch.grant else what


def _policy_line(policy: PolicyResult) -> str:
    finding = policy.finding
    says = "holds" if finding.is_satisfied else "does not hold"
    if finding.error:
        says = f"cannot be evaluated, which denies: {finding.error}"
    reason = f": {policy.reason}" if policy.reason and finding.is_satisfied else ""
    asks = _asking_words(policy) if finding.is_satisfied else ""
    return f"{finding.effect} '{finding.policy}' ({policy.place}) {says}{asks}{reason}"


def _asking_words(policy: PolicyResult) -> str:
    if policy.asks:
        return (
            ", unless a person approves" if policy.finding.effect == "forbid" else ", and requires approval"
        )
    return ", and waives approval that policies require" if policy.is_silent else ""
