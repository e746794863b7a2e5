"""`toolkeep audit replay`: does a deterministic call still give what it gave?"""

import asyncio
import sys
from pathlib import Path

import click

from toolkeep.cli.audit.folder import entries_of_call, log_of
from toolkeep.cli.options import common, files, print_json, project, say, say_done, say_failed
from toolkeep.cli.tools import keep_with


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
        call_id = entries_of_call(log, call)[0].record["call"]
    with keep_with(files, project) as keep:
        replayed = asyncio.run(keep.replay(call_id, agent="operator"))
    again = replayed.result
    if as_json:
        hashes = {"recorded": replayed.recorded_hash, "now": again.hash}
        print_json({"same": replayed.is_same, **hashes, "call_id": again.call_id})
    elif replayed.is_same:
        say_done(f"{again.tool} gave the same result again")
    else:
        why = "" if again.ok else f": {again.text}"
        say_failed(f"{again.tool} did not give the same result again{why}")
        say(f"  recorded {replayed.recorded_hash}", f"  now      {again.hash or '(none)'}")
    if not replayed.is_same:
        sys.exit(1)
