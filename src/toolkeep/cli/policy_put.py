"""`toolkeep policy put`: put policies in force, in the state and beside those of the configuration."""

import hashlib
from functools import partial
from pathlib import Path

import click

from toolkeep.cli.approval_prompt import person
from toolkeep.cli.operator_change import agree, apply
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.policy_check import given, read_texts
from toolkeep.cli.tool_selection import keep_with
from toolkeep.config.policy_files import EXAMPLES
from toolkeep.host import clock
from toolkeep.keep.policy_trial import Trial
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.server.api.admin_change import Change
from toolkeep.server.api.stored_policy_routes import difference
from toolkeep.stores.registry_state import StoredPolicies
from toolkeep.text.display import counted


@click.command("put")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--name", default="", help="What they are called; by default as FILE is, without its suffix.")
@click.option(
    "--shadow", "is_shadow", is_flag=True, help="Only record what they would decide; they have no effect."
)
@click.option("--hash", "given_hash", metavar="SHA256", help="Do not ask, if this is the hash of FILE.")
@project
@common
def command(
    file: Path, name: str, given_hash: str | None, project: Path | None, *, is_shadow: bool, as_json: bool
) -> None:
    """Put the policies of FILE in force, with the examples beside it, instead of earlier ones of that name.

    They are copied into the state and count beside those of the configuration, at once, in every running
    server. Shows the difference and which recorded calls they would decide otherwise, and asks in a terminal;
    elsewhere pass --hash. The log gets your name and the difference.
    """
    name = name or file.stem
    texts = read_texts(given([file]))
    if texts.problems:
        raise PoliciesRefused(texts.problems)
    beside = file.with_name(file.name.removesuffix(".cedar") + EXAMPLES)
    text, examples = file.read_text(), beside.read_text() if beside.exists() else ""
    if is_shadow:
        text = in_shadow(text)
    who = f"operator:{person()}"
    stored = StoredPolicies(name=name, text=text, examples=examples, put_by=who, put_at=clock.now())
    with keep_with(project=project) as keep:
        keep.check_policies(name, stored)
        replayed, _ = Trial(keep, name, stored).replay()
        say(*difference(keep, name, stored).splitlines(), err=True)
        changed = counted(len(replayed.differences), "recorded call")
        say(f"{changed} would be decided otherwise; see: toolkeep policy replay", err=True)
        agree(f"Put {name} in force?", hashlib.sha256(text.encode()).hexdigest(), given_hash)
        put = partial(keep.put_policies, name, text, examples=examples, by=who)
        apply(keep, Change(what="policies", name=name, difference=difference(keep, name, stored)), put)
    if as_json:
        print_json({"success": True, "name": name, "put_by": who})
    else:
        say_done(f"{name} is in {'shadow' if is_shadow else 'force'}")


def in_shadow(text: str) -> str:
    """The policies of a text, each with `@shadow` before it."""
    lines = text.split("\n")
    policies = read_policies([PolicySource(name="", text=text)]).policies
    for one in sorted(policies, key=lambda one: (one.line, one.column), reverse=True):
        if not one.is_shadow:
            line, at = lines[one.line - 1], one.column - 1
            lines[one.line - 1] = f"{line[:at]}@shadow {line[at:]}"
    return "\n".join(lines)
