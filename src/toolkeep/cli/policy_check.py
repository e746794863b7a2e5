"""`toolkeep policy check`: read policy files and their examples, and report every problem."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from toolkeep.cli.options import common, files, print_json, project, say, say_done, say_failed, warn
from toolkeep.cli.project_context import ProjectContext
from toolkeep.config.env_interpolation import Substitution
from toolkeep.config.paths import config_paths, home_folder
from toolkeep.config.policy_files import read_policy_files
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import ConfigurationInvalid, FileUnreadable
from toolkeep.host.files import read_ordinary
from toolkeep.json_values.yaml import read_yaml
from toolkeep.keep.open import project_folder
from toolkeep.limits import CONFIG_FILE_BYTES
from toolkeep.policy.active_policies import lacks_permit, read_all, shipped_policies
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.cedar_validation import check_policies
from toolkeep.policy.impossible_comparisons import comparison_notes
from toolkeep.policy.policy_set import PoliciesRefused, Policy, PolicyProblem, Uid, tool_ancestors
from toolkeep.policy.policy_settings import Example, PolicySource
from toolkeep.text.display import counted, visible

_PLACED = re.compile(r"(?P<source>.+?):(?P<line>\d+):(?P<column>\d+): (?P<message>.*)", re.DOTALL)
_read = partial(read_ordinary, limit=CONFIG_FILE_BYTES)


class PolicyPath(NamedTuple):
    """A policy file, relative to a folder that it may not leave."""

    folder: Path
    name: str


class PolicyTexts(NamedTuple):
    """The contents of policy files, and their problems."""

    sources: tuple[PolicySource, ...]
    examples: tuple[Example, ...]
    problems: tuple[PolicyProblem, ...]


def given(files: Iterable[Path]) -> list[PolicyPath]:
    """The files named on the command line."""
    return [PolicyPath(path.parent, path.name) for path in files]


def configured(root: Path) -> list[PolicyPath]:
    """The files named in the user's and the project's configuration, accepted or not."""
    paths = config_paths(root, home_folder())
    return [one for path in (*paths.user, paths.project) if path for one in _named_in(path)]


def _named_in(config: Path) -> Iterator[PolicyPath]:
    raw = _read(config)
    data: Any = None if raw is None else Substitution(read_yaml(raw, str(config)), None).resolved
    names = data.get("policies") if isinstance(data, dict) else None
    # Other values are reported by the check of the configuration.
    for name in (
        dict.fromkeys(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    ):
        yield PolicyPath(config.parent, name)


def read_texts(paths: Sequence[PolicyPath]) -> PolicyTexts:
    """Read all files."""
    sources: list[PolicySource] = []
    examples: list[Example] = []
    problems: list[PolicyProblem] = []
    for path in paths:
        try:
            source = _source(path)
            sources.append(source)
            read_policies([source])
            for file in read_policy_files(path.folder, [path.name], _read):
                examples.extend(file.examples)
        except PoliciesRefused as refused:
            problems.extend(refused.problems)
        except ConfigurationInvalid as invalid:
            problems.extend(map(problem_of, invalid.faults))
        except FileUnreadable as unreadable:
            problems.append(problem_of(unreadable.message))
    if not problems:
        try:
            read_policies(sources)  # together: ids must be unique
        except PoliciesRefused as refused:
            problems.extend(refused.problems)
    return PolicyTexts(tuple(sources), tuple(examples), tuple(problems))


def problem_of(text: str, fix: str = "fix the file") -> PolicyProblem:
    """Parse a problem whose text may start with a position."""
    if placed := _PLACED.fullmatch(text):
        line, column = int(placed["line"]), int(placed["column"])
        return PolicyProblem(
            source=placed["source"], line=line, column=column, message=placed["message"], fix=fix
        )
    source, _, message = text.partition(": ")
    return PolicyProblem(source=source, message=message, fix=fix)


def _source(path: PolicyPath) -> PolicySource:
    file = path.folder / path.name
    raw = _read(file)
    if raw is None:
        missing = PolicyProblem(source=str(file), message="does not exist", fix="write it, or name another")
        raise PoliciesRefused([missing])
    try:
        return PolicySource(name=str(file), text=raw.decode())
    except UnicodeDecodeError as error:
        raise FileUnreadable(str(file), "is not UTF-8") from error


class Report(NamedTuple):
    """The findings of a check."""

    texts: PolicyTexts
    policies: tuple[Policy, ...]
    problems: tuple[PolicyProblem, ...]
    notes: tuple[PolicyProblem, ...]
    """Valid, but perhaps not intended."""


beside_option = click.option(
    "--beside", "is_beside", is_flag=True, help="Together with the policies in force, not instead of them."
)


def beside(texts: PolicyTexts, world: ProjectContext) -> PolicyTexts:
    """The texts together with the policies in force, and the examples of the texts alone.

    In the place of those of the state that `policy put` would replace.
    """
    names = {Path(source.name).stem for source in texts.sources}
    others = (one for one in world.stored_sources() if one.name not in names)
    return texts._replace(sources=(*world.settings.policies, *others, *texts.sources))


@click.command("check")
@click.argument("policies", metavar="[FILES]...", nargs=-1, type=click.Path(path_type=Path))
@beside_option
@files
@project
@common
def command(
    policies: tuple[Path, ...],
    files: tuple[Path, ...],
    project: Path | None,
    *,
    is_beside: bool,
    as_json: bool,
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
        world = ProjectContext(project, files, is_accepted=True)
        report = inspect(beside(texts, world) if is_beside else texts, world)
        if report.problems:
            _say_held_back(world)
    if as_json:
        print_json(_data(report))
    else:
        _print(report)
    if report.problems:
        sys.exit(1)


def _say_held_back(world: ProjectContext) -> None:
    """Files of tools that nobody accepted are not read, so their tools are unknown here."""
    if any(not file.counts for file in world.settings.files):
        for file in world.settings.tools_files:
            warn(f"the tools of {visible(file.name)} are not checked until you accept them")


def inspect(texts: PolicyTexts, world: ProjectContext) -> Report:
    """Check parsed policies against the tools and agents of the project, then run their examples."""
    own = read_policies(texts.sources).policies
    every = read_all(texts.sources, shipped_policies(world.flow.measures))
    problems = check_policies(every, world.tools(), world.grants, world.flow.measures.by_name)
    if not problems:
        problems = list(_failing(texts, world))
    notes = () if problems else tuple(_notes(own, world))
    return Report(texts, own, tuple(problems), notes)


def _failing(texts: PolicyTexts, world: ProjectContext) -> Iterator[PolicyProblem]:
    authorizer = world.authorizer(texts.sources, is_trial=True)
    for example in texts.examples:
        if problem := authorizer.example_problem(example):
            yield problem_of(problem, "change the policies, or the example")


def _notes(policies: tuple[Policy, ...], world: ProjectContext) -> Iterator[PolicyProblem]:
    tools = world.tools()
    for policy in policies:
        about = [tool for tool in tools if _admits(policy, tool.definition)]
        if not about:
            yield policy.problem("matches no tool that exists now", "keep it if the tool will be added")
        yield from comparison_notes(policy, about)
        if policy.is_silent and not any(other.asks for other in policies):
            yield policy.problem(
                "is @silent, but no policy asks, so it has no effect",
                "remove @silent, or annotate the policy that should ask with @ask",
            )
    if lacks_permit(policies):
        yield PolicyProblem(
            source=policies[0].source,
            message="no policy permits any call",
            fix='write one, such as permit (principal, action == Action::"call", resource);',
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
        say_done("no policies: only grants decide")
    else:
        policies = counted(len(report.policies), "policy", "policies")
        numbers = f"{policies}, {counted(len(report.texts.examples), 'example')}"
        say_done(f"{numbers}: no problems")


def print_problems(problems: tuple[PolicyProblem, ...]) -> None:
    """Print problems."""
    for problem in problems:
        say_failed(str(problem))
