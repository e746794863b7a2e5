"""`toolkeep policy check`: are the policies right, and do they decide the examples as they should?"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from toolkeep.assembly import project_folder
from toolkeep.cli.options import common, files, print_json, project, say, say_done, say_failed, warn
from toolkeep.cli.policy.sources import PolicyTexts, configured, given, problem_of, read_texts
from toolkeep.cli.policy.world import World
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.policy.cedar_schema import CALL
from toolkeep.policy.checking import check_policies
from toolkeep.policy.comparing import comparison_notes
from toolkeep.policy.policies import Policy, PolicyProblem, Uid, tool_ancestors
from toolkeep.policy.reading import read_policies
from toolkeep.policy.rulebook import read_all
from toolkeep.wording import counted


class Report(NamedTuple):
    """What a check found."""

    texts: PolicyTexts
    policies: tuple[Policy, ...]
    problems: tuple[PolicyProblem, ...]
    notes: tuple[PolicyProblem, ...]
    """What is no mistake and may surprise."""


@click.command("check")
@click.argument("policies", metavar="[FILES]...", nargs=-1, type=click.Path(path_type=Path))
@files
@project
@common
def command(
    policies: tuple[Path, ...], files: tuple[Path, ...], project: Path | None, *, as_json: bool
) -> None:
    """Check the policies of FILES, or of the configuration, with the examples beside them.

    A project's file need not be accepted: checking runs and grants nothing. NAME.examples.yml beside
    NAME.cedar lists calls that should be allowed or denied. Exit status 0 if all is right.
    """
    paths = given(policies) if policies else configured(project_folder(project))
    texts = read_texts(paths)
    if texts.problems:
        report = Report(texts, (), texts.problems, ())
    else:
        report = inspect(texts, World(project, files, is_accepted=True))
    if as_json:
        print_json(_data(report))
    else:
        _print(report)
    if report.problems:
        sys.exit(1)


def inspect(texts: PolicyTexts, world: World) -> Report:
    """Check texts that can be read against the tools and agents there are, then by their examples."""
    own = read_policies(texts.sources).policies
    problems = check_policies(read_all(texts.sources), world.keep.tools(), world.grants)
    if not problems:
        problems = list(_failing(texts, world))
    notes = () if problems else tuple(_notes(own, world))
    return Report(texts, own, tuple(problems), notes)


def _failing(texts: PolicyTexts, world: World) -> Iterator[PolicyProblem]:
    authorizer = world.authorizer(texts.sources)
    for example in texts.examples:
        if problem := authorizer.example_problem(example):
            yield problem_of(problem, "change the policies, or the example")


def _notes(policies: tuple[Policy, ...], world: World) -> Iterator[PolicyProblem]:
    tools = world.keep.tools()
    for policy in policies:
        about = [tool for tool in tools if _admits(policy, tool.definition)]
        if not about:
            yield policy.problem("is about no tool that there is now", "leave it, if one is to come")
        yield from comparison_notes(policy, about)
        if policy.is_silent and not any(other.asks for other in policies):
            yield policy.problem(
                "is @silent, and no policy asks, so that it spares nothing",
                "take @silent away, or annotate the policy that should ask with @ask",
            )
    if policies and not any(policy.effect == "permit" and policy.applies_to(CALL) for policy in policies):
        yield PolicyProblem(
            source=policies[0].source,
            message="no policy permits any call",
            mend='write one, such as permit (principal, action == Action::"call", resource);',
        )


def _admits(policy: Policy, tool: ToolDefinition) -> bool:
    return policy.resource.admits(Uid("Tool", tool.name), tool_ancestors(tool))


def _data(report: Report) -> dict[str, Any]:
    return {
        "success": not report.problems,
        "files": [source.name for source in report.texts.sources],
        "policies": len(report.policies),
        "examples": len(report.texts.examples),
        "problems": [msgspec.to_builtins(problem) for problem in report.problems],
        "notes": [msgspec.to_builtins(note) for note in report.notes],
    }


def _print(report: Report) -> None:
    print_problems(report.problems)
    for note in report.notes:
        warn(str(note), err=False)
    if report.problems:
        say("", f"{counted(len(report.problems), 'problem')}")
    elif not report.texts.sources:
        say_done("no policies: what agents hold decides alone")
    else:
        policies = counted(len(report.policies), "policy", "policies")
        numbers = f"{policies}, {counted(len(report.texts.examples), 'example')}"
        say_done(f"{numbers}: all right")


def print_problems(problems: tuple[PolicyProblem, ...]) -> None:
    """Problems for a person."""
    for problem in problems:
        say_failed(str(problem))
