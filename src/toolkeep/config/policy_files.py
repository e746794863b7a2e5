"""The policy files that a configuration names, and the examples beside them, as texts.

`policies/main.cedar` may have `policies/main.examples.yml` beside it: calls that the policies should allow or
deny. All are in the folder of the configuration, which no tool may write: a tool could otherwise permit
itself anything.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from toolkeep.config.paths import PROJECT_FILE
from toolkeep.errors import ConfigurationInvalid, FileUnreadable
from toolkeep.json_values.yaml import Document, read_yaml
from toolkeep.policy.policy_settings import Example, PolicySource
from toolkeep.text.display import visible

EXAMPLES = ".examples.yml"

ReadBytes = Callable[[Path], bytes | None]


class PolicyFile(NamedTuple):
    """A policy file, read and not yet in force."""

    source: PolicySource
    examples: tuple[Example, ...]
    summary: str
    """What a person sees before accepting it: every policy by id, and the hash of the whole text."""


def read_policy_files(folder: Path, names: Sequence[str], read: ReadBytes) -> list[PolicyFile]:
    """The files in order; raises `ConfigurationInvalid` or `FileUnreadable`."""
    return [_read_file(folder, name, read) for name in dict.fromkeys(names)]


def _read_file(folder: Path, name: str, read: ReadBytes) -> PolicyFile:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or not parts:
        fault = f"policies: '{visible(name)}' must be in the folder of the configuration; move it there"
        raise ConfigurationInvalid([f"{folder / PROJECT_FILE.name}: {fault}"])
    path = folder / name
    raw = read(path)
    if raw is None:
        raise FileUnreadable(str(path), "is named under policies but does not exist")
    _check_inside(folder, path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise FileUnreadable(str(path), "is not UTF-8") from error
    source = PolicySource(name=str(path), text=text)
    beside = path.with_name(path.name.removesuffix(".cedar") + EXAMPLES)
    examples = read(beside)
    if examples is not None:
        _check_inside(folder, beside)
    digest = hashlib.sha256(raw).hexdigest()
    return PolicyFile(
        source=source,
        examples=tuple(read_examples(str(beside), examples)) if examples is not None else (),
        summary=f"policies of {visible(name)}: {_summary(source)} (SHA-256 {digest})",
    )


def _check_inside(folder: Path, path: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise FileUnreadable(str(path), "is a symlink out of the configuration's folder")


def check_together(sources: Sequence[PolicySource]) -> None:
    """Raise `ConfigurationInvalid` for ids that two files share."""
    from toolkeep.policy.cedar_parser import read_policies
    from toolkeep.policy.policy_set import PoliciesRefused

    try:
        read_policies(sources)
    except PoliciesRefused as refused:
        raise ConfigurationInvalid(list(map(str, refused.problems))) from refused


_SPARES: Final = " (@silent, so that calls need no approval where @ask policies ask for it)"

_SHADOW: Final = " (@shadow, so that it is only recorded what it would decide)"


def _summary(source: PolicySource) -> str:
    from toolkeep.policy.cedar_parser import read_policies
    from toolkeep.policy.policy_set import PoliciesRefused

    try:
        policies = read_policies([source]).policies
    except PoliciesRefused as refused:
        raise ConfigurationInvalid(list(map(str, refused.problems))) from refused
    return (
        ", ".join(
            f"{policy.effect} '{policy.id}'{_SPARES * policy.is_silent}{_SHADOW * policy.is_shadow}"
            for policy in policies
        )
        or "none"
    )


def read_examples(place: str, raw: bytes) -> Iterator[Example]:
    """The examples in a YAML text; raises `ConfigurationInvalid`."""
    document = read_yaml(raw, place)
    data = document.data
    if data is None:
        return
    if not isinstance(data, list):
        raise ConfigurationInvalid([f"{place}: the examples must be a list"])
    for index, item in enumerate(data):
        yield _example(document, f"/{index}", item)


_EXPECTED: Final = ("allow", "ask", "deny")
_KEYS: Final = {"tool", "arguments", "said", "result", *_EXPECTED}


def _example(document: Document, pointer: str, item: Any) -> Example:
    """An example: one call, or the calls of a session in order."""
    place = str(document.place(pointer))
    if not isinstance(item, dict) or not item.keys() <= {"agent", "session", *_KEYS}:
        raise ConfigurationInvalid([f"{place}: an example has agent, and session or {_WORDS}"])
    agent = str(item.get("agent", "local"))
    if "session" not in item:
        return _call({key: item[key] for key in item if key != "agent"}, place, agent)
    calls = item["session"]
    if item.keys() - {"agent", "session"} or not isinstance(calls, list) or not calls:
        raise ConfigurationInvalid([f"{place}: the session of an example is a list of calls, beside agent"])
    first, *then = (
        _call(call, str(document.place(f"{pointer}/session/{number}")), agent)
        for number, call in enumerate(calls)
    )
    return replace(first, then=tuple(then))


_WORDS: Final = "tool, arguments, said, result, and allow, ask or deny"


def _call(item: Any, place: str, agent: str) -> Example:
    if not isinstance(item, dict) or not item.keys() <= _KEYS:
        raise ConfigurationInvalid([f"{place}: a call of an example has {_WORDS}"])
    arguments, said = item.get("arguments", {}), item.get("said", "")
    expected = {key: item[key] for key in _EXPECTED if key in item}
    is_one = len(expected) == 1 or expected.keys() == {"allow", "ask"}
    if not is_one or not isinstance(item.get("tool"), str) or not isinstance(arguments, dict):
        raise ConfigurationInvalid(
            [f"{place}: an example needs a tool, arguments, and one of allow, ask and deny"]
        )
    if not isinstance(said, str):
        raise ConfigurationInvalid([f"{place}: what an example says the user said is text"])
    for key, value in expected.items():
        is_unasked = value is False and key == "ask" and "allow" in expected
        if value is not True and not isinstance(value, str) and not is_unasked:
            raise ConfigurationInvalid([f"{place}: {key} is true, or the id of the policy that decides"])
    decides = expected.get("deny", expected.get("allow"))
    return Example(
        place=place,
        agent=agent,
        tool=item["tool"],
        arguments=arguments,
        is_allowed="deny" not in expected,
        policy=decides if isinstance(decides, str) else "",
        asks=expected.get("ask"),
        said=said,
        result=item.get("result", UNSET),
    )
