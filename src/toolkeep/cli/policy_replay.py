"""`toolkeep policy replay`: which recorded calls would other policies decide differently?"""

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.cli.audit import log_of, state_of
from toolkeep.cli.options import common, files, print_json, project, say, say_done
from toolkeep.cli.policy_check import given, inspect, print_problems, read_texts
from toolkeep.cli.progress import progress
from toolkeep.cli.project_context import ProjectContext
from toolkeep.policy.decision_replay import Difference, Replayed, Replayer, recorded_decisions
from toolkeep.policy.policy_set import PolicyProblem
from toolkeep.storage.sqlite.bodies_db import Bodies


@click.command("replay")
@click.argument("policies", metavar="FILES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many of the newest calls at most.",
)
@files
@project
@common
def command(
    policies: tuple[Path, ...], limit: int, files: tuple[Path, ...], project: Path | None, *, as_json: bool
) -> None:
    """Evaluate recorded calls with the policies of FILES instead of those in force when they were made.

    Shows each call that would be decided differently, by which policies before and by which now. Nothing is
    run or recorded. Exit status 0 if every call that can be judged would be decided as it was.
    """
    state = state_of(project)
    texts = read_texts(given(policies))
    if texts.problems:
        _refuse(texts.problems, as_json=as_json)
    world = ProjectContext(project, files, is_accepted=True)
    if problems := inspect(texts, world).problems:
        _refuse(problems, as_json=as_json)
    with log_of(project) as log:
        calls = recorded_decisions(entry.record for entry in log.read())
    bodies = Bodies(state)
    try:
        replayer = Replayer(
            world.authorizer(texts.sources),
            tool=world.keep.try_get,
            arguments=partial(_arguments, bodies),
            check=world.check,
            holder=world.holder,
        )
        with progress("Evaluating recorded calls"):
            replayed = replayer.replay(calls[-limit:])
    finally:
        bodies.close()
        world.keep.close()
    if as_json:
        print_json(_data(replayed, len(calls)))
    else:
        _print(replayed, len(calls))
    if replayed.differences:
        sys.exit(1)


def _refuse(problems: tuple[PolicyProblem, ...], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"success": False, "problems": [msgspec.to_builtins(problem) for problem in problems]})
    else:
        print_problems(problems)
    sys.exit(1)


def _arguments(bodies: Bodies, digest: str) -> Mapping[str, Any] | None:
    try:
        data = json.loads(bodies.get(digest))
    except (BodyUnavailable, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _data(replayed: Replayed, total: int) -> dict[str, Any]:
    return {
        "success": not replayed.differences,
        "calls": total,
        "judged": replayed.same + len(replayed.differences),
        "same": replayed.same,
        "differences": [difference.to_dict() for difference in replayed.differences],
        "unjudged": dict(replayed.unjudged),
    }


def _print(replayed: Replayed, total: int) -> None:
    for difference in replayed.differences:
        for line in _lines(difference):
            say(line)
    judged = replayed.same + len(replayed.differences)
    if replayed.differences:
        say("", f"{len(replayed.differences)} of {judged} calls would be decided differently")
    else:
        say_done(f"all {judged} calls that can be evaluated would be decided as before")
    for reason, number in sorted(replayed.unjudged.items()):
        say(f"  {number} not evaluated: {reason}")
    looked_at = judged + sum(replayed.unjudged.values())
    if looked_at < total:
        say(f"  {total - looked_at} older calls not evaluated; raise --limit")


def _lines(difference: Difference) -> list[str]:
    was = difference.recorded
    before, after = ("allow", "deny") if was.is_allowed else ("deny", "allow")
    because = f"; {difference.why}" if difference.why else ""
    return [
        f"{before} → {after}  {was.time}  {was.call}  {was.agent}  {was.tool}",
        f"    decided by {_ids(was.policies)}, now by {_ids(difference.policies)}{because}",
    ]


def _ids(policies: tuple[str, ...]) -> str:
    return ", ".join(policies) or "no policy"
