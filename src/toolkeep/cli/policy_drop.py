"""`toolkeep policy drop`: take policies of the state out of force."""

import hashlib
from functools import partial
from pathlib import Path

import click

from toolkeep.cli.operator_change import agree, apply
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.tool_selection import keep_with
from toolkeep.errors import NotAccepted
from toolkeep.server.api.admin_change import Change
from toolkeep.server.api.stored_policy_routes import difference


@click.command("drop")
@click.argument("name")
@click.option("--hash", "given_hash", metavar="SHA256", help="Do not ask, if this is the hash of their text.")
@project
@common
def command(name: str, given_hash: str | None, project: Path | None, *, as_json: bool) -> None:
    """Take the policies called NAME out of force, which `toolkeep policy put` or the page put there.

    Asks in a terminal; elsewhere pass --hash. Without any policy, all that is granted is permitted.
    """
    with keep_with(project=project) as keep:
        held = next((one for one in keep.stored_policies if one.name == name), None)
        if held is None:
            known = ", ".join(one.name for one in keep.stored_policies) or "none"
            raise NotAccepted("the state has no policies of that name", hint=f"there are: {known}")
        keep.check_policies(name, None)
        changes = difference(keep, name, None)
        say(*changes.splitlines(), err=True)
        agree(f"Take {name} out of force?", hashlib.sha256(held.text.encode()).hexdigest(), given_hash)
        apply(
            keep,
            Change(what="policies", name=name, difference=changes),
            partial(keep.drop_policies, name),
        )
    if as_json:
        print_json({"success": True, "name": name})
    else:
        say_done(f"{name} is out of force")
