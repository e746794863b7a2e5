"""Files of policies and the examples beside them: read as far as can be, with every problem on the way."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolkeep.config.environment import Substitution
from toolkeep.config.paths import config_paths, home_folder
from toolkeep.config.policies import read_policy_files
from toolkeep.documents import read_yaml
from toolkeep.errors import ConfigurationInvalid, FileUnreadable
from toolkeep.files import read_ordinary
from toolkeep.limits import CONFIG_FILE_BYTES
from toolkeep.policy.policies import PoliciesRefused, PolicyProblem
from toolkeep.policy.reading import read_policies
from toolkeep.policy.settings import Example, PolicySource

_PLACED = re.compile(r"(?P<source>.+?):(?P<line>\d+):(?P<column>\d+): (?P<message>.*)", re.DOTALL)
_read = partial(read_ordinary, limit=CONFIG_FILE_BYTES)


class PolicyPath(NamedTuple):
    """A file of policies as it is named: relative to a folder that it may not leave."""

    folder: Path
    name: str


class PolicyTexts(NamedTuple):
    """What files of policies hold, and everything that is wrong with them by themselves."""

    sources: tuple[PolicySource, ...]
    examples: tuple[Example, ...]
    problems: tuple[PolicyProblem, ...]


def given(files: Iterable[Path]) -> list[PolicyPath]:
    """Files that the caller names."""
    return [PolicyPath(path.parent, path.name) for path in files]


def configured(root: Path) -> list[PolicyPath]:
    """The files that the configuration of a user and a project names, accepted or not."""
    paths = config_paths(root, home_folder())
    return [one for path in (*paths.user, paths.project) if path for one in _named_in(path)]


def _named_in(config: Path) -> Iterator[PolicyPath]:
    raw = _read(config)
    data: Any = None if raw is None else Substitution(read_yaml(raw, str(config)), None).resolved
    names = data.get("policies") if isinstance(data, dict) else None
    # Whatever else stands there is said by the check of the configuration itself.
    for name in (
        dict.fromkeys(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    ):
        yield PolicyPath(config.parent, name)


def read_texts(paths: Sequence[PolicyPath]) -> PolicyTexts:
    """Everything that the files hold."""
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
            read_policies(sources)  # together: no two may have the same id
        except PoliciesRefused as refused:
            problems.extend(refused.problems)
    return PolicyTexts(tuple(sources), tuple(examples), tuple(problems))


def problem_of(text: str, mend: str = "mend the file") -> PolicyProblem:
    """A problem from text that may begin with its place."""
    if placed := _PLACED.fullmatch(text):
        line, column = int(placed["line"]), int(placed["column"])
        return PolicyProblem(
            source=placed["source"], line=line, column=column, message=placed["message"], mend=mend
        )
    source, _, message = text.partition(": ")
    return PolicyProblem(source=source, message=message, mend=mend)


def _source(path: PolicyPath) -> PolicySource:
    file = path.folder / path.name
    raw = _read(file)
    if raw is None:
        missing = PolicyProblem(source=str(file), message="does not exist", mend="write it, or name another")
        raise PoliciesRefused([missing])
    try:
        return PolicySource(name=str(file), text=raw.decode())
    except UnicodeDecodeError as error:
        raise FileUnreadable(str(file), "is no UTF-8") from error
