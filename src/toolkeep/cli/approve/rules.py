"""`toolkeep approve rules`: what people said "always" to."""

import time
from pathlib import Path

import click
import msgspec

from toolkeep.approval.view import moment, name, rows, until
from toolkeep.cli.approve.queue import approvals_of, screen_width
from toolkeep.cli.options import common, print_json, project, say
from toolkeep.clock import iso


@click.command("rules")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """List the rules that hold: id, end, who made it, tool, agent, and the rule itself."""
    with approvals_of(project) as approvals:
        rules = approvals.rules()
    if as_json:
        print_json(
            [
                {
                    **msgspec.to_builtins(rule),
                    "made_at": iso(rule.made_at),
                    "ends_at": iso(rule.ends_at),
                }
                for rule in rules
            ]
        )
        return
    width = screen_width(otherwise=1 << 30)  # unbroken in a file, from which somebody may copy it
    for rule in rules:
        say(f"{name(rule.id)}  ends {moment(rule.ends_at)}, {until(rule.ends_at, time.time())}")
        say(f"  made by {name(rule.approver)} for {name(rule.tool)}, called by {name(rule.agent)}")
        for line in rows(rule.text, width):
            say(line.text)
    if not rules:
        say("no rule holds")
