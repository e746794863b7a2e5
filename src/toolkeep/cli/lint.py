"""`toolkeep lint`: advice on a tool or on the definitions in a file, without registering them."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkeep.authoring.lint_rules import lint_definition
from toolkeep.cli.options import common, files, print_json, project, say, say_done
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Problem
from toolkeep.providers.vendor_registry import PROVIDERS
from toolkeep.text.display import counted

if TYPE_CHECKING:
    from toolkeep.cli.lint_flow import FlowFindings


@click.command("lint")
@click.argument("target", metavar="[NAME|FILE]", required=False)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="PROVIDER",
    type=click.Choice(PROVIDERS),
    help="Also report what this model provider does not support; repeatable.",
)
@click.option("--flow", is_flag=True, help="Also report missing roles of arguments and labels of results.")
@files
@project
@common
def command(
    target: str | None,
    files: tuple[Path, ...],
    project: Path | None,
    providers: tuple[str, ...],
    *,
    flow: bool,
    as_json: bool,
) -> None:
    """Check a tool by NAME, the definitions of a FILE in JSON or YAML, or all tools.

    Problems prevent registration; the rest is advice. Exit status 0 if there are none.
    """
    targets = list(_targets(target, files, project))
    undeclared = _undeclared([one for _, one, _ in targets if one], files, project) if flow else None
    reports = [
        _report(name, definition, problems, providers, undeclared, permissions=_permissions(project))
        for name, definition, problems in targets
    ]
    if as_json:
        print_json(reports)
    elif not reports:
        say("no definitions to check")
    else:
        for report in reports:
            _print(report)
    if any(report["problems"] or report["findings"] for report in reports):
        sys.exit(1)


def _targets(
    target: str | None, files: tuple[Path, ...], project: Path | None
) -> Iterator[tuple[str, ToolDefinition | None, tuple[Problem, ...]]]:
    is_file = target is not None and (
        "/" in target or Path(target).suffix in (".json", ".yml", ".yaml", ".py") or Path(target).is_file()
    )
    if target is not None and not is_file:
        from toolkeep.cli.tool_selection import keep_with

        yield target, keep_with(files, project).get(target).definition, ()
        return
    for path in (*files, *([Path(target)] if target else [])):
        yield from _of_file(path)
    if target is None and not files:
        from toolkeep.cli.tool_selection import keep_with

        yield from ((tool.name, tool.definition, ()) for tool in keep_with((), project).tools())


def _undeclared(
    definitions: Sequence[ToolDefinition], files: tuple[Path, ...], project: Path | None
) -> "FlowFindings":
    from toolkeep.cli.lint_flow import FlowFindings

    return FlowFindings(definitions, files, project)


def _permissions(project: Path | None) -> Sequence[str]:
    """Permissions that the project would add, accepted or not: linting runs nothing."""
    from toolkeep.keep.open import open_state, project_folder, read_proposed

    root = project_folder(project)
    return read_proposed(root, open_state(root)).permissions


def _of_file(path: Path) -> Iterator[tuple[str, ToolDefinition | None, tuple[Problem, ...]]]:
    from toolkeep.errors import DefinitionError
    from toolkeep.sources.definition_files import load_definitions

    for loaded in load_definitions(path):
        problems = loaded.error.problems if isinstance(loaded.error, DefinitionError) else ()
        yield loaded.name, loaded.definition, problems


def _report(
    name: str,
    definition: ToolDefinition | None,
    problems: tuple[Problem, ...],
    providers: tuple[str, ...],
    undeclared: "FlowFindings | None",
    *,
    permissions: Sequence[str],
) -> dict[str, Any]:
    from toolkeep.registry.admit import check_definition

    findings: list[dict[str, Any]] = []
    if definition is not None:
        refusing, warning = check_definition(definition, permissions=permissions)
        problems = (*problems, *refusing)
        findings = [{"rule": "warning", **_without_code(problem)} for problem in warning]
        findings += [finding.to_dict() for finding in lint_definition(definition)]
        for provider in providers:
            refused, lost = _for_provider(definition, provider)
            problems = (*problems, *refused)
            findings += lost
        if undeclared is not None and not problems:
            findings += undeclared.of(definition)
    return {
        "tool": name,
        "problems": [problem.to_dict() for problem in problems],
        "findings": findings,
    }


def _for_provider(
    definition: ToolDefinition, provider: str
) -> tuple[tuple[Problem, ...], list[dict[str, str]]]:
    """Why a provider cannot express the tool, or what is lost."""
    from toolkeep.errors import DefinitionInvalid
    from toolkeep.providers.single_tool import exported_alone

    try:
        losses = exported_alone(definition, provider).losses
    except DefinitionInvalid as error:
        return error.problems, []
    fix = "toolkeep still checks it"
    return (), [
        {
            "rule": provider,
            "field": f"parameters{loss.pointer}",
            "message": f"{loss.keyword}: {loss.became}: {loss.note}",
            "fix": fix,
        }
        for loss in losses
        if loss.became != "kept"
    ]


def _without_code(problem: Problem) -> dict[str, str]:
    return {key: value for key, value in problem.to_dict().items() if key != "code"}


def _print(report: dict[str, Any]) -> None:
    count = len(report["problems"]) + len(report["findings"])
    if not count:
        say_done(f"{report['tool']}: no findings")
        return
    say(f"{report['tool']}: {counted(count, 'finding')}")
    for problem in report["problems"]:
        text = f" {problem['field']}: {problem['message']}; {problem['fix']}"
        say(text, label=f"  [{problem['code']}]", color="red")
    for finding in report["findings"]:
        text = f" {finding['field']}: {finding['message']}; {finding['fix']}"
        say(text, label=f"  [{finding['rule']}]", color="yellow")
