"""`toolkeep policy replay`: which recorded calls would other policies decide differently?"""

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec
from msgspec import UNSET

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.calls import FlowRecord, RegisteredTool
from toolkeep.cli.audit import log_of, state_of
from toolkeep.cli.options import common, files, print_json, project, say, say_done
from toolkeep.cli.policy_check import beside, beside_option, given, inspect, print_problems, read_texts
from toolkeep.cli.progress import progress
from toolkeep.cli.project_context import ProjectContext
from toolkeep.flow.recorded_sessions import RecordedDecision, RecordedSessions, recorded_decisions
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.decision_replay import Difference, Replayed, Replayer
from toolkeep.policy.policy_set import PolicyProblem
from toolkeep.storage.sqlite.bodies_db import Bodies
from toolkeep.text.display import counted, visible


@click.command("replay")
@click.argument("policies", metavar="FILES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many of the newest calls at most.",
)
@beside_option
@files
@project
@common
def command(
    policies: tuple[Path, ...],
    limit: int,
    files: tuple[Path, ...],
    project: Path | None,
    *,
    is_beside: bool,
    as_json: bool,
) -> None:
    """Evaluate recorded calls with the policies of FILES instead of those in force when they were made.

    Shows each call that would be decided differently, by which policies before and by which now, and in how
    many sessions. Nothing is run or recorded. Exit status 0 if every call that can be judged would be decided
    as it was.
    """
    state = state_of(project)
    texts = read_texts(given(policies))
    if texts.problems:
        _refuse(texts.problems, as_json=as_json)
    world = ProjectContext(project, files, is_accepted=True)
    if is_beside:
        texts = beside(texts, world)
    if problems := inspect(texts, world).problems:
        _refuse(problems, as_json=as_json)
    with log_of(project) as log:
        records = [entry.record for entry in log.read()]
    total = sum(1 for _ in recorded_decisions(records))
    bodies = Bodies(state)
    authorizer = world.authorizer(texts.sources, is_trial=True)
    sessions = fold_of(world, authorizer, bodies)
    authorizer.flow = sessions.flow
    try:
        replayer = Replayer(authorizer, check=world.check, holder=world.holder)
        with progress("Evaluating recorded calls"):
            replayed = replayer.replay(sessions.walk(records), older=total - limit)
    finally:
        bodies.close()
        world.keep.close()
    if as_json:
        print_json(_data(replayed, total, len(sessions.unwatched)))
    else:
        _print(replayed, total, len(sessions.unwatched))
    if replayed.differences:
        sys.exit(1)


def fold_of(world: ProjectContext, authorizer: Authorizer, bodies: Bodies) -> RecordedSessions:
    """What rebuilds the sessions of the log, if policies read them."""
    return RecordedSessions(
        world.flow if world.watches(authorizer) else None,
        tool=partial(tool_of, world),
        body=partial(body_in, bodies),
        counted=authorizer.active_policies.counted,
    )


def _refuse(problems: tuple[PolicyProblem, ...], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"success": False, "problems": [msgspec.to_builtins(problem) for problem in problems]})
    else:
        print_problems(problems)
    sys.exit(1)


def tool_of(world: ProjectContext, call: RecordedDecision) -> RegisteredTool | None:
    """The tool of a recorded call; None if it is gone or changed."""
    tool = world.keep.try_get(f"{call.tool}@{call.version}")
    return tool if tool is not None and tool.definition_hash == call.definition_hash else None


def body_in(bodies: Bodies, digest: str) -> bytes | None:
    """A kept body; None if it is not stored."""
    try:
        return bodies.get(digest)
    except BodyUnavailable:
        return None


def _data(replayed: Replayed, total: int, unwatched: int) -> dict[str, Any]:
    return {
        "success": not replayed.differences,
        "calls": total,
        "judged": replayed.same + len(replayed.differences),
        "same": replayed.same,
        "sessions": len({_conversation(one) for one in replayed.differences}),
        "differences": [difference.to_dict() for difference in replayed.differences],
        "unjudged": dict(replayed.unjudged),
        "unwatched_sessions": unwatched,
    }


def _print(replayed: Replayed, total: int, unwatched: int) -> None:
    for difference in replayed.differences:
        for line in _lines(difference):
            say(line)
    judged = replayed.same + len(replayed.differences)
    if replayed.differences:
        say("", f"{len(replayed.differences)} of {judged} calls would be decided differently")
        within = len({_conversation(one) for one in replayed.differences})
        say(f"  in {counted(within, 'session')}: {_changes(replayed.differences)}")
    else:
        say_done(f"all {judged} calls that can be evaluated would be decided as before")
    for reason, number in sorted(replayed.unjudged.items()):
        say(f"  {number} not evaluated: {reason}")
    looked_at = judged + sum(replayed.unjudged.values())
    if looked_at < total:
        say(f"  {total - looked_at} older calls not evaluated; raise --limit")
    if unwatched:
        sessions = counted(unwatched, "session was", "sessions were")
        say(f"  {sessions} recorded without flow: nothing there counts as named by the user")


def _conversation(difference: Difference) -> tuple[str, str]:
    recorded = difference.recorded
    key = recorded.flow.session if recorded.flow is not None else recorded.agent
    return key, recorded.session or recorded.conversation


def _changes(differences: tuple[Difference, ...]) -> str:
    """How many changed in which way."""
    counts = Counter(f"{one.was} → {one.decision}" for one in differences)
    return ", ".join(f"{number} {change}" for change, number in sorted(counts.items()))


def _lines(difference: Difference) -> list[str]:
    was = difference.recorded
    because = f"; {difference.why}" if difference.why else ""
    lines = [
        f"{difference.was} → {difference.decision}  {was.time}  {was.call}  {was.agent}  {was.tool}",
        f"    decided by {_ids(difference.was_by)}, now by {_ids(difference.policies)}{because}",
    ]
    return lines if difference.flow is None else [*lines, f"    {flow_words(difference.flow)}"]


def flow_words(flow: FlowRecord) -> str:
    """The session, and where arguments with authority came from."""
    state = " and ".join(word for word, holds in (("opened", flow.opened), ("secret", flow.secret)) if holds)
    measures = {} if flow.measures is UNSET else flow.measures
    return "; ".join(
        [
            f"session {state or 'clean'}",
            *(f"{visible(name)} from {', '.join(origins)}" for name, origins in flow.origins.items()),
            *(f"{name} {value}" for name, value in measures.items()),
        ]
    )


def _ids(policies: tuple[str, ...]) -> str:
    return ", ".join(policies) or "no policy"
