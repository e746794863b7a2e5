"""`toolkeep audit replay`: does a deterministic call still give what it gave?"""

import sys
from pathlib import Path

import click

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.cli.audit.folder import entries_of_call, log_of, state_of
from toolkeep.cli.options import common, files, print_json, project, say
from toolkeep.cli.tools import keep_with
from toolkeep.definitions.vocabulary import Determinism
from toolkeep.errors import NotRecorded
from toolkeep.storage.bodies import Bodies


@click.command("replay")
@click.argument("call")
@files
@project
@common
def command(call: str, files: tuple[Path, ...], project: Path | None, *, as_json: bool) -> None:
    """Run the recorded CALL again and compare the hashes of the results.

    Only pure and deterministic tools can be replayed. Exit status 0 if both results are the same.
    """
    with log_of(project) as log:
        records = [entry.record for entry in entries_of_call(log, call)]
    invoked = next((r for r in records if r["type"] == "ToolInvoked"), None)
    completed = next((r for r in records if r["type"] == "ToolCompleted"), None)
    if invoked is None or completed is None or completed["status"] != "ok":
        raise NotRecorded(f"call {call[:64]!r} has no result to compare with")
    arguments = _arguments(project, invoked)
    with keep_with(files, project) as keep:
        tool = keep.get(f"{invoked['tool']}@{invoked['version']}")
        _refuse_unlike(tool.definition_hash, invoked, tool.definition.determinism)
        again = keep.call_sync(f"{tool.name}@{tool.version}", arguments, agent="operator")
    is_same = again.ok and again.hash == completed["result_hash"]
    data = {
        "same": is_same,
        "recorded": completed["result_hash"],
        "now": again.hash,
        "call_id": again.call_id,
    }
    if as_json:
        print_json(data)
    elif is_same:
        say(f" {tool.name} gave the same result again", label="✓", color="green")
    else:
        why = "" if again.ok else f": {again.text}"
        say(f" {tool.name} did not give the same result again{why}", label="✗", color="red")
        say(f"  recorded {completed['result_hash']}\n  now      {again.hash or '(none)'}")
    if not is_same:
        sys.exit(1)


def _arguments(project: Path | None, invoked: dict[str, str]) -> bytes:
    if not invoked.get("has_arguments"):
        raise NotRecorded("the arguments of this call were not kept: they are secret or too large")
    try:
        return Bodies(state_of(project)).get(invoked["argument_hash"])
    except BodyUnavailable as error:
        raise NotRecorded(f"the arguments of this call are gone: {error.message}") from error


def _refuse_unlike(definition_hash: str, invoked: dict[str, str], determinism: Determinism | None) -> None:
    if definition_hash != invoked["definition_hash"]:
        raise NotRecorded(f"the definition of {invoked['tool']!r} is not the one that was called")
    if determinism not in (Determinism.PURE, Determinism.DETERMINISTIC):
        raise NotRecorded(f"{invoked['tool']!r} does not promise the same result twice")
