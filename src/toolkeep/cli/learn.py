"""`toolkeep learn`: propose the narrowest policies that would have allowed what agents did (FLO-8)."""

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolkeep.cli.audit import bodies_of, log_of
from toolkeep.cli.options import common, files, print_json, project, say, say_done, warn, write_new
from toolkeep.cli.policy_replay import body_in, tool_of
from toolkeep.cli.progress import progress
from toolkeep.cli.project_context import ProjectContext
from toolkeep.config.policy_files import EXAMPLES, read_examples
from toolkeep.errors import ConfigurationInvalid, NotRecorded
from toolkeep.flow.recorded_sessions import RecordedSessions
from toolkeep.host.clock import now, stamp
from toolkeep.policy.active_policies import read_all, shipped_policies
from toolkeep.policy.cedar_validation import check_policies
from toolkeep.policy.learned_policies import (
    MARGIN,
    TOOLS,
    Bound,
    Learned,
    Sample,
    examples_text,
    learn,
    printable,
    yaml_flow,
)
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.policy.recorded_behavior import FEW_CALLS, RecordedBehavior, bounded, proposed_measures
from toolkeep.text.display import counted, echo_name

_AGO: Final = re.compile(r"(\d{1,5})([hdw])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168}


@click.command("learn")
@click.option("--since", metavar="WHEN", help="Learn from calls since then: 2026-11-01, or 30d, 12h, 2w ago.")
@click.option("--agent", help="Learn what this agent does; by default, each agent by itself.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the policies to FILE.cedar, and their examples beside it.",
)
@files
@project
@common
def command(
    since: str | None,
    agent: str | None,
    out: Path | None,
    files: tuple[Path, ...],
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Propose policies that allow what agents did in the recorded sessions, and nothing else.

    Every one forbids: tools that were never used, origins of arguments, hosts and folders that were never
    seen, measures far above what is usual. They change nothing until you read them and put them in force.
    Whoever could write into a recorded session may have chosen what is in it: the output says which calls
    each policy rests on.
    """
    after = _time(since) if since else ""
    world = ProjectContext(project, files, is_accepted=True)
    with world.keep:
        if agent is not None and agent not in world.grants:
            raise NotRecorded(f"there is no agent {echo_name(agent)!r}", "see: toolkeep agents")
        behavior = _behavior(world, project, after, agent)
        proposal = Proposal(world, behavior, _cedar_path(out).stem if out else "learned")
        if not proposal.learned.clauses:
            raise NotRecorded(
                "no recorded call shows anything", "make calls first, or name an earlier --since"
            )
        if as_json:
            print_json(proposal.data())
        elif out is None:
            say(*proposal.cedar().splitlines())
        if out is not None:
            proposal.write(out)
        for line in proposal.remarks():
            warn(line)
    if out is not None and not as_json:
        path = _cedar_path(out)
        say_done(f"wrote {counted(len(proposal.learned.clauses), 'policy', 'policies')} to {path}")
        say(f"  read it, then see what it would do: toolkeep policy replay --beside {path}")
        say(f"  and put it in force: toolkeep policy put {path}, or name it under policies in config.yml")


def _time(given: str) -> str:
    """A time in the form of the log."""
    if ago := _AGO.fullmatch(given):
        return stamp(time.time() - int(ago[1]) * _HOURS[ago[2]] * 3600)
    try:
        meant = datetime.fromisoformat(given)
    except ValueError as error:
        message = f"{echo_name(given)!r} is no time; write 2026-11-01, 2026-11-01T12:00, 30d, 12h or 2w"
        raise click.BadParameter(message, param_hint="--since") from error
    local = meant.astimezone() if meant.tzinfo is None else meant
    return stamp(local.astimezone(UTC).timestamp())


def _behavior(world: ProjectContext, project: Path | None, since: str, agent: str | None) -> RecordedBehavior:
    """What the log of a project tells."""
    tools = world.tools()
    declared = bounded(world.flow.measures.declared)
    names = {one.name for one in declared}
    proposed = [one for one in proposed_measures(tools) if one.name not in names]
    behavior = RecordedBehavior(
        tools,
        world.grants.keys() if agent is None else {agent},
        (*declared, *proposed),
        since=since,
    )
    with log_of(project) as log, bodies_of(project) as bodies, progress("Reading recorded sessions"):
        sessions = RecordedSessions(world.flow, tool=partial(tool_of, world), body=partial(body_in, bodies))
        behavior.fold((entry.record for entry in log.read()), sessions)
    return behavior


class Proposal:
    """Learned policies that were checked against the tools of the project, with examples that hold."""

    def __init__(self, world: ProjectContext, behavior: RecordedBehavior, name: str) -> None:
        """`name` is what they would be put in force as, in the place of earlier ones."""
        self._behavior = behavior
        others = (one for one in world.stored_sources() if one.name != name)
        in_force = (*world.settings.policies, *others)
        learned = learn(
            behavior.agents,
            declared={one.name: one for one in world.flow.measures.declared},
            registered=[tool.name for tool in world.tools()],
            needs_permit=not in_force,
            is_standard=world.flow.is_standard,
        )
        wrong = _wrong(world, in_force, learned)
        self.left_out = len(wrong)
        clauses = tuple(one for one in learned.clauses if one.id not in wrong)
        self.learned = msgspec.structs.replace(learned, clauses=clauses)
        self.examples = ""
        if not wrong:
            authorizer = world.authorizer((*in_force, _source(self.learned)), is_trial=True)

            def holds(sample: Sample) -> bool:
                try:
                    (example,) = read_examples("example", f"- {yaml_flow(sample.data)}".encode())
                except ConfigurationInvalid:
                    return False
                # What is read back must be what was recorded, whatever the values are made of.
                is_same = example.arguments == sample.data["arguments"]
                return is_same and not authorizer.example_problem(example)

            self.examples = examples_text(learned.samples, holds)

    def cedar(self) -> str:
        """The file of policies."""
        return (
            "".join(f"// {printable(line)}".rstrip() + "\n" for line in self._head())
            + "\n"
            + self.learned.text
        )

    def _head(self) -> Iterator[str]:
        agents = self._behavior.agents
        calls = sum(use.calls.calls for use in agents.values())
        seen = f"{counted(calls, 'recorded call')} of {counted(len(agents), 'agent')}"
        yield f"Learned on {now()[:10]} from {seen}. This is a proposal."
        yield "Each policy forbids what no recorded call needed; none permits anything new."
        yield "Where outsiders chose a value, the policy asks a person and never names the value."
        yield f"WEAK: fewer than {FEW_CALLS} calls, or one session, show something that the policy lets pass."
        yield "Whoever wrote into a recorded session may have made those calls: toolkeep audit show CALL"
        if self.learned.bounds:
            yield ""
            yield "Measures that nobody declared. To bound them, put these lines into config.yml."
            yield f"A limit is {MARGIN} times what two sessions or days reached; the highest stand beside it."
            yield from _bounds_as_yaml(self.learned.bounds)

    def write(self, out: Path) -> None:
        """Write both files, which must not exist."""
        path = _cedar_path(out)
        write_new(path, self.cedar())
        if self.examples:
            write_new(path.with_name(path.name.removesuffix(".cedar") + EXAMPLES), self.examples)

    def remarks(self) -> Iterator[str]:
        """What the policies do not show."""
        behavior, weak = self._behavior, sum(one.is_weak for one in self.learned.clauses)
        if weak:
            yield f"{counted(weak, 'policy rests', 'policies rest')} on few calls or one session; marked WEAK"
        for agent in self.learned.crowded:
            used = f"{echo_name(agent)!r} used more than {TOOLS} tools"
            yield f"{used}: no policy forbids it those that it never used"
        if behavior.unwatched:
            sessions = counted(len(behavior.unwatched), "session was", "sessions were")
            yield f"{sessions} recorded without flow: nothing is known there about who named a value"
        if behavior.left_out:
            calls = counted(behavior.left_out, "call was", "calls were")
            yield f"{calls} left out: refused, denied, failed, or of a tool or agent that is gone"
        if self.left_out:
            yield f"{counted(self.left_out, 'policy', 'policies')} left out that these tools do not fit"

    def data(self) -> dict[str, Any]:
        """Everything as JSON."""
        behavior = self._behavior
        return {
            "success": True,
            "policies": self.cedar(),
            "examples": self.examples,
            "clauses": [msgspec.to_builtins(one) for one in self.learned.clauses],
            "measures": [msgspec.to_builtins(one) for one in self.learned.bounds],
            "left_out": {"calls": behavior.left_out, "policies": self.left_out},
            "unwatched_sessions": len(behavior.unwatched),
        }


def _source(learned: Learned) -> PolicySource:
    return PolicySource(name="learned", text=learned.text)


def _wrong(world: ProjectContext, in_force: Sequence[PolicySource], learned: Learned) -> set[str]:
    """The ids of clauses that could not be used: none, as far as anybody knows."""
    sources = (*in_force, _source(learned))
    policies = read_all(
        sources, shipped_policies(world.flow.measures, is_flow_standard=world.flow.is_standard)
    )
    problems = check_policies(policies, world.tools(), world.grants, world.flow.measures.by_name)
    ours = {one.id for one in learned.clauses}
    if others := [one for one in problems if one.policy not in ours]:
        raise PoliciesRefused(others)
    return {one.policy for one in problems}


def _bounds_as_yaml(bounds: Sequence[Bound]) -> Iterator[str]:
    """A fragment of a configuration; of several agents the highest limit, since a budget is for all."""
    highest: dict[str, Bound] = {}
    for one in bounds:
        held = highest.get(one.name)
        if held is None or float(one.limit) > float(held.limit):
            highest[one.name] = one
    yield "flow:"
    yield "  measures:"
    for one in highest.values():
        fields = ", ".join(f"{key}: {value}" for key, value in one.declaration.items())
        yield f"    {one.name}: {{{fields}}}"
    yield "  budget:"
    for one in highest.values():
        weak = ", WEAK" if one.is_weak else ""
        yield f"    {one.name}: {one.limit}  # {one.agent}: {', then '.join(one.highest)}{weak}"


def _cedar_path(out: Path) -> Path:
    return out if out.suffix == ".cedar" else out.with_name(f"{out.name}.cedar")
