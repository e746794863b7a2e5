"""`toolkeep approve revoke`: a rule ends now. Needs no terminal: people are asked again, no more."""

from pathlib import Path

import click

from toolkeep.cli.approve.queue import NotAnswered, approvals_of
from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.limits import LISTED_NAMES
from toolkeep.wording import echo_name, listing

_PREFIX = "rule-"


@click.command("revoke")
@click.argument("rule_id", metavar="RULE_ID")
@project
@common
def command(rule_id: str, project: Path | None, *, as_json: bool) -> None:
    """End the rule RULE_ID, or the one whose id begins so; such calls are asked about again."""
    with approvals_of(project) as approvals:
        ids = [rule.id for rule in approvals.rules()]
        wanted = _PREFIX + rule_id.removeprefix(_PREFIX)
        found = [one for one in ids if wanted != _PREFIX and one.startswith(wanted)]
        if len(found) != 1 or not approvals.revoke(found[0]):
            what = "several rules begin with" if len(found) > 1 else "there is no rule"
            these = listing(ids, len(ids), LISTED_NAMES)
            hint = f"these hold: {these}" if ids else "no rule holds"
            raise NotAnswered(f"{what} {echo_name(rule_id)!r}", hint=hint)
    if as_json:
        print_json({"revoked": found[0]})
    else:
        say_done(f"revoked {found[0]}")
