"""What a remembered yes covers: exactly the arguments that were approved, but for what a person frees."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.definitions.examples import JSON, made, with_properties
from toolkeep.approval.approval_store import MemoryApprovals
from toolkeep.approval.approve import ApprovalGate
from toolkeep.approval.coverage import Argument, ConstraintRefused, constraints_of, covers
from toolkeep.approval.question import Question
from toolkeep.approval.question_text import rule_text
from toolkeep.calls import CheckedCall, PermittedCall, RegisteredTool, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.policy.active_policies import ActivePolicies
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.policy_settings import Grant
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-4")


def registered(name: str, properties: dict[str, Any], **fields: Any) -> RegisteredTool:
    described = {key: {"description": f"The {key}.", **schema} for key, schema in properties.items()}
    required = fields.pop("required", [])
    keywords = fields.pop("keywords", {})
    parameters = with_properties(described, required=required, **keywords)
    return admit(made(name=name, parameters=parameters, danger="medium", **fields))


TEXT = {"type": "string"}
MAIL = registered(
    "send_mail",
    {
        "to": {"type": ["string", "array"], "items": TEXT},
        "subject": TEXT,
        "body": {**TEXT, "x-flow": "content"},
        "retries": {"type": "integer", "x-flow": "option"},
        "amount": {"type": "number"},
        "urgent": {"type": ["boolean", "null"]},
        "headers": {"type": "object", "additionalProperties": TEXT},
        "url": TEXT,
    },
)
OPEN = registered("open", {"text": TEXT}, keywords={"additionalProperties": TEXT})
LOGIN = registered("log_in", {"user": TEXT, "key": {**TEXT, "x-secret": True}})
SENSITIVE = registered("whisper", {"hmac": TEXT}, sensitive=True)
PEEK = registered("peek", {"path": {**TEXT, "x-touches": "fs.read"}}, capabilities=["fs.read:*"])
PEEKS = registered(
    "peeks",
    {"paths": {"type": "array", "items": {**TEXT, "x-touches": "fs.read"}}},
    capabilities=["fs.read:*"],
)
FETCH = registered("fetch", {"url": {**TEXT, "x-touches": "net.read"}}, capabilities=["net.read:*"])
RUN = registered(
    "run_line",
    {"line": {**TEXT, "x-touches": "process.spawn"}, "timeout": {"type": "integer"}},
    capabilities=["process.spawn:*"],
)
RUN_LIST = registered(
    "run_list",
    {"argv": {"type": "array", "items": TEXT, "x-touches": "process.spawn"}},
    capabilities=["process.spawn:*"],
)
NONE = registered("none", {})

CALLS: list[PermittedCall] = []
HELD = (
    "fs.read:/",
    "net.read:example.org",
    "net.read:other.example",
    "process.spawn:/bin/bash",
    "process.spawn:/bin/ls",
)


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    while CALLS:
        for one in CALLS.pop().touched:
            one.close()


def permitted(tool: RegisteredTool, **arguments: Any) -> PermittedCall:
    """A call as it comes out of the door of policy."""
    grant = Grant(capabilities=tuple(map(Capability.read, HELD)))
    judge = Authorizer(
        ActivePolicies(), agents={"local": grant}, project="/", state_folder=None, tools=lambda: [tool]
    )
    request = ToolCall(id="1", tool=tool.name, arguments=None, agent="local")
    call = judge.authorize(request, CheckedCall(registered=tool, arguments=arguments))
    assert isinstance(call, PermittedCall), call
    CALLS.append(call)
    return call


def question(tool: RegisteredTool, **arguments: Any) -> Question:
    call = permitted(tool, **arguments)
    sealed = tool.arguments.secrecy.replace(arguments, lambda secret: {"hmac": f"of {secret}"})
    return ApprovalGate(MemoryApprovals())._question(call, canonical_bytes(sealed), ("it is asked",))


def choices(tool: RegisteredTool, **arguments: Any) -> tuple[Argument, ...]:
    return question(tool, **arguments).choices


def passes(
    tool: RegisteredTool, one: dict[str, Any], other: dict[str, Any], chosen: dict[str, str] | None = None
) -> bool:
    """Whether a yes to one call covers another."""
    constraints = constraints_of(choices(tool, **one), chosen or {})
    assert covers(constraints, choices(tool, **one))  # the call itself is always covered
    return covers(constraints, choices(tool, **other))


BASE: dict[str, Any] = {
    "to": ["ada@example.org"],
    "subject": "Hi",
    "body": "Hello",
    "retries": 1,
    "amount": 1.5,
    "urgent": True,
    "headers": {"x": "1"},
}

# --- without a choice --------------------------------------------------------------------------------


def test_content_and_options_may_differ() -> None:
    assert passes(MAIL, BASE, {**BASE, "body": "Something else", "retries": 9})
    assert passes(MAIL, BASE, {key: value for key, value in BASE.items() if key != "body"})


DIFFERENT: dict[str, dict[str, Any]] = {
    "another recipient": {**BASE, "to": ["eve@example.org"]},
    "one recipient more": {**BASE, "to": ["ada@example.org", "eve@example.org"]},
    "the same twice": {**BASE, "to": ["ada@example.org", "ada@example.org"]},
    "no recipient": {**BASE, "to": []},
    "text for a list": {**BASE, "to": "ada@example.org"},
    "other text": {**BASE, "subject": "hi"},
    "text with a space": {**BASE, "subject": "Hi "},
    "lookalike text": {**BASE, "subject": "H\u0456"},
    "another number": {**BASE, "amount": 1.5001},
    "false": {**BASE, "urgent": False},
    "null": {**BASE, "urgent": None},
    "one less": {key: value for key, value in BASE.items() if key != "urgent"},
    "a member more": {**BASE, "headers": {"x": "1", "y": "2"}},
    "another member": {**BASE, "headers": {"x": "2"}},
    "one more": {**BASE, "url": "https://example.org"},
    "nothing": {},
}


@pytest.mark.parametrize("arguments", DIFFERENT.values(), ids=DIFFERENT)
def test_every_other_argument_must_be_equal(arguments: dict[str, Any]) -> None:
    assert not passes(MAIL, BASE, arguments)


def test_null_is_another_value_than_none_at_all() -> None:
    assert not passes(MAIL, {}, {"urgent": None})
    assert not passes(MAIL, {"urgent": None}, {})
    assert passes(MAIL, {"urgent": None}, {"urgent": None})


def test_an_argument_that_the_tool_does_not_declare_is_bound_too() -> None:
    assert passes(OPEN, {"text": "a", "more": "b"}, {"text": "a", "more": "b"})
    assert not passes(OPEN, {"text": "a", "more": "b"}, {"text": "a", "more": "c"})
    assert not passes(OPEN, {"text": "a", "more": "b"}, {"text": "a"})
    assert not passes(OPEN, {"text": "a"}, {"text": "a", "more": "b"})
    assert not passes(OPEN, {"text": "a"}, {"text": "a", "more": "b"}, {"text": "any"})


def test_a_tool_without_arguments_is_covered() -> None:
    assert passes(NONE, {}, {})
    assert rule_text(question(NONE), ()) == "local calls none 1.0.0, which takes no arguments"


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON),
    st.dictionaries(st.sampled_from(["a", "b"]), JSON),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_call_is_covered_if_and_only_if_its_arguments_are_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert passes(ANYTHING, one, other) == (canonical_bytes(one) == canonical_bytes(other))
    assert passes(ANYTHING, one, one)


ANYTHING = registered("anything", {}, keywords={"additionalProperties": {}})

# --- what is named -----------------------------------------------------------------------------------


def test_a_path_is_compared_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    link = tmp_path / "link"
    link.symlink_to("a")
    monkeypatch.chdir(tmp_path)
    constraints = constraints_of(choices(PEEK, path="link"), {})
    assert covers(constraints, choices(PEEK, path=f"{tmp_path}/./a"))
    link.unlink()
    link.symlink_to("b")
    assert not covers(constraints, choices(PEEK, path="link"))


def test_a_url_is_compared_as_it_is_written() -> None:
    assert not passes(FETCH, {"url": "https://example.org/a"}, {"url": "https://example.org/b"})
    assert passes(FETCH, {"url": "https://example.org/a"}, {"url": "https://example.org/a"})


COMMANDS: list[tuple[RegisteredTool, dict[str, Any], dict[str, Any]]] = [
    (RUN, {"line": "/bin/bash -c 'echo hello'"}, {"line": "/bin/bash -c 'rm -rf /'"}),
    (RUN, {"line": "/bin/bash -c 'echo hello'"}, {"line": "/bin/bash  -c 'echo hello'"}),
    (RUN_LIST, {"argv": ["/bin/bash", "-c", "echo"]}, {"argv": ["/bin/bash", "-c", "rm"]}),
]


@pytest.mark.parametrize(("tool", "one", "other"), COMMANDS)
def test_a_yes_for_one_command_line_covers_no_other(
    tool: RegisteredTool, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not passes(tool, one, other)
    assert passes(tool, one, one)


# --- what a person chooses ---------------------------------------------------------------------------


def test_an_argument_can_be_freed_and_content_can_be_bound() -> None:
    assert passes(MAIL, BASE, {**BASE, "subject": "Other"}, {"subject": "any"})
    assert not passes(MAIL, BASE, {**BASE, "subject": "Other", "amount": 2}, {"subject": "any"})
    assert not passes(MAIL, BASE, {**BASE, "body": "Other"}, {"body": "equal"})


def test_credentials_and_commands_cannot_be_freed() -> None:
    for tool, arguments, name, why in (
        (RUN, {"line": "/bin/ls"}, "line", "a command"),
        (RUN_LIST, {"argv": ["/bin/ls"]}, "argv", "a command"),
        (LOGIN, {"user": "ada", "key": "hunter2"}, "key", "a credential"),
        (LOGIN, {"user": "ada"}, "key", "a credential"),
        (SENSITIVE, {"hmac": "x"}, "arguments", "a credential"),
    ):
        for word in ("any", "folder:/", "max:1"):
            with pytest.raises(ConstraintRefused, match=f"it is {why}"):
                constraints_of(choices(tool, **arguments), {name: word})


def test_a_secret_is_bound_by_its_keyed_hash_and_never_told() -> None:
    one = question(LOGIN, user="ada", key="hunter2")
    assert not passes(LOGIN, {"user": "ada", "key": "a"}, {"user": "ada", "key": "b"})
    assert passes(LOGIN, {"user": "ada", "key": "a"}, {"user": "eve", "key": "a"}, {"user": "any"})
    assert "hunter2" not in repr(one.choices)
    assert not passes(SENSITIVE, {"hmac": "a"}, {"hmac": "b"})


def test_a_folder_bounds_a_path(tmp_path: Path) -> None:
    for name in ("docs/a", "docs/deep/b", "docs2/c", "d"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "docs/out").symlink_to("../d")
    root = tmp_path.resolve()
    (argument,) = choices(PEEK, path=f"{root}/docs/a")
    assert argument.bounds[:2] == (f"folder:{root}/docs", f"folder:{root}")
    constraints = constraints_of((argument,), {"path": f"folder:{root}/docs"})
    reached = {
        name: covers(constraints, choices(PEEK, path=f"{root}/{name}"))
        for name in ("docs/a", "docs/deep/b", "docs2/c", "d", "docs/out", "docs/../d", "docs", "docs/")
    }
    assert [name for name, is_covered in reached.items() if is_covered] == ["docs/a", "docs/deep/b"]
    several = constraints_of(choices(PEEKS, paths=[f"{root}/docs/a"]), {"paths": f"folder:{root}/docs/"})
    assert covers(several, choices(PEEKS, paths=[f"{root}/docs/a", f"{root}/docs/deep/b"]))
    assert not covers(several, choices(PEEKS, paths=[f"{root}/docs/a", f"{root}/d"]))
    assert not covers(several, choices(PEEKS, paths=[]))


def test_a_folder_does_not_cover_itself(tmp_path: Path) -> None:
    """Reading one file in a folder is another thing than to remove or move the whole of it."""
    root = str(tmp_path.resolve())
    (argument,) = choices(PEEK, path=root)
    assert argument.bounds[0] == f"folder:{tmp_path.resolve().parent}"
    for bound in argument.bounds:
        assert covers(constraints_of((argument,), {"path": bound}), (argument,))
    with pytest.raises(ConstraintRefused):
        constraints_of((argument,), {"path": f"folder:{root}"})
    (top,) = choices(PEEK, path="/")
    assert top.bounds == ()
    with pytest.raises(ConstraintRefused):
        constraints_of((top,), {"path": "folder:/"})


BOUNDED: dict[str, tuple[str, Any, str, list[Any], list[Any]]] = {
    "host": (
        "url", "https://example.org/a", "host:example.org",
        ["https://example.org/b?c"],
        ["http://example.org/a", "https://example.org:8443/", "https://example.org.evil.example/",
         "https://evil.example/?https://example.org", "https://example.org@evil.example/", "example.org", ""],
    ),
    "mail domain": (
        "to", "ada@example.org", "domain:example.org",
        ["bob@example.org", "bob@EXAMPLE.org", ["ada@example.org", "bob@example.org"]],
        ["eve@evil.example", "eve@evil.example,ada@example.org", "ada@example.org, eve@evil.example",
         ["ada@example.org", "eve@evil.example"], ["ada@example.org", "everybody"], [], "eve@sub.example.org", "eve@evil-example.org", "@example.org",
         '"eve@evil.example" <ada@example.org>', "ada@example.org\nbcc: eve@evil.example", "ada@example.org ",
         "eve%evil.example@example.org", "evil.example!eve@example.org", "-feve@example.org"],
    ),
    "maximum": ("amount", 10, "max:100", [0, 100, 99.99], [100.01, -1, 1e300]),
}  # fmt: skip


@pytest.mark.parametrize("case", BOUNDED)
def test_an_argument_can_be_bounded(case: str) -> None:
    name, value, bound, inside, outside = BOUNDED[case]
    for other in inside:
        assert passes(MAIL, {**BASE, name: value}, {**BASE, name: other}, {name: bound}), other
    for other in outside:
        assert not passes(MAIL, {**BASE, name: value}, {**BASE, name: other}, {name: bound}), other


def test_bounds_that_cover_the_call_are_offered() -> None:
    arguments = {"to": "ada@example.org", "amount": 3, "url": "http://example.org/x", "subject": "Hi"}
    offered = {one.name: one.bounds for one in choices(MAIL, **arguments) if one.bounds}
    assert offered == {
        "to": ("domain:example.org",),
        "amount": ("max:3",),
        "url": ("host:http://example.org",),
    }


@pytest.mark.parametrize(
    "chosen",
    [
        {"too": "any"},
        {"to": "sometimes"},
        {"to": "domain:evil.example"},
        {"to": "domain:"},
        {"to": "folder:/"},
        {"subject": "max:1"},
        {"amount": "max:1"},
        {"amount": "max:NaN"},
        {"amount": "max:Infinity"},
        {"amount": "max:"},
        {"url": "host:example.org"},
    ],
)
def test_a_choice_that_does_not_cover_the_call_itself_is_refused(chosen: dict[str, str]) -> None:
    with pytest.raises(ConstraintRefused):
        constraints_of(choices(MAIL, **{**BASE, "to": "ada@example.org"}), chosen)


# --- what is shown -----------------------------------------------------------------------------------


def test_what_passes_unasked_is_said_for_every_argument() -> None:
    asked = question(MAIL, to="ada@example.org", subject="Hi\u202e", body="x" * 500, amount=3)
    text = rule_text(asked, constraints_of(asked.choices, {"to": "domain:example.org", "amount": "max:10"}))
    assert text.split("\n") == [
        "local calls send_mail 1.0.0 with",
        "  to at the mail domain example.org",
        '  subject equal to "Hi\\u202e"',
        "  amount from 0 to 10",
        "  urgent left out",
        "  headers left out",
        "  url left out",
        "  body anything",
        "  retries anything",
    ]
