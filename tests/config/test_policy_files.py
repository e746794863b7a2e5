"""Policies that a configuration names: which files are read, and when they count."""

from pathlib import Path
from typing import Any

import pytest

from tests.config.projects import accept, configure, configure_home, project_file, settings_of
from toolkeep import Code, open_keep
from toolkeep.errors import ConfigurationInvalid, FileUnreadable
from toolkeep.policy.policy_settings import Example, PolicySource

pytestmark = pytest.mark.spec("REG-5")

PERMIT = '@id("everybody") permit (principal, action == Action::"call", resource);\n'
FORBID = '@id("nobody") forbid (principal, action == Action::"call", resource);\n'
NAMES = "policies: [main.cedar]\n"


def write(folder: Path, text: str | bytes = PERMIT, name: str = "main.cedar") -> Path:
    return configure(folder, text, name=f".agent/{name}")


def code_of(project: Path) -> Code | None:
    """What a call of the tool that says hello comes to."""
    with open_keep(project=project) as keep:
        return keep.call_sync("agent_hello_world", {"name": "Ada"}).code


def test_the_files_are_read_in_their_order_each_once(tmp_path: Path) -> None:
    configure_home("policies: [b.cedar, deep/a.cedar, b.cedar]")
    first, second = write(Path.home(), PERMIT, "b.cedar"), write(Path.home(), FORBID, "deep/a.cedar")
    assert settings_of(tmp_path).policies == (
        PolicySource(name=str(first), text=PERMIT),
        PolicySource(name=str(second), text=FORBID),
    )


def test_those_of_the_user_and_of_the_project_count_together(tmp_path: Path) -> None:
    configure_home(NAMES)
    write(Path.home(), PERMIT)
    assert code_of(tmp_path) is None
    configure(tmp_path, NAMES)
    write(tmp_path, FORBID)
    accept(tmp_path)
    assert [source.text for source in settings_of(tmp_path).policies] == [PERMIT, FORBID]
    assert code_of(tmp_path) is Code.NOT_PERMITTED


def test_the_policies_of_an_unaccepted_project_permit_nothing_until_a_person_accepts_them(
    tmp_path: Path,
) -> None:
    path = configure(tmp_path, NAMES)
    write(tmp_path)
    settings = settings_of(tmp_path)
    assert settings.policies == ()
    assert settings.policies_held_back == (
        f"{path} names policies that are not accepted yet; run `toolkeep accept`"
    )
    assert code_of(tmp_path) is Code.POLICIES_INVALID
    accept(tmp_path)
    assert settings_of(tmp_path).policies_held_back == ""
    assert code_of(tmp_path) is None


def test_a_person_is_shown_every_policy_and_the_hash_of_the_text(tmp_path: Path) -> None:
    path = configure(tmp_path, NAMES)
    write(tmp_path, PERMIT + FORBID)
    (effect,) = project_file(tmp_path).effects
    assert (effect.kind, str(effect.place)) == ("grants", f"{path}:1:12")
    shown, _, digest = effect.what.partition(" (SHA-256 ")
    assert shown == "policies of main.cedar: permit 'everybody', forbid 'nobody'"
    assert len(digest) == 65


def test_a_person_is_shown_which_policy_spares_questions(tmp_path: Path) -> None:
    configure(tmp_path, NAMES)
    write(tmp_path, PERMIT.replace("permit", "@silent permit", 1) + FORBID)
    (effect,) = project_file(tmp_path).effects
    assert (
        "permit 'everybody' (@silent, so that calls need no approval where @ask policies ask for it), forbid"
        in effect.what
    )


def test_a_changed_policy_is_accepted_anew(tmp_path: Path) -> None:
    configure(tmp_path, NAMES)
    write(tmp_path)
    accept(tmp_path)
    assert code_of(tmp_path) is None
    write(tmp_path, PERMIT + "// only a remark\n")
    assert not project_file(tmp_path).counts
    assert code_of(tmp_path) is Code.POLICIES_INVALID


OUTSIDE = ["../main.cedar", "/etc/passwd", "a/../../main.cedar", "."]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_outside_the_folder_of_the_configuration_stops_the_start(name: str, tmp_path: Path) -> None:
    configure(tmp_path, f"policies: ['{name}']\n")
    write(tmp_path, name="../main.cedar")
    with pytest.raises((ConfigurationInvalid, FileUnreadable), match=f"{tmp_path}/.agent"):
        settings_of(tmp_path)


@pytest.mark.parametrize("target", ["../elsewhere.cedar", "/dev/null", "nowhere.cedar"])
def test_a_link_out_of_the_folder_stops_the_start(target: str, tmp_path: Path) -> None:
    configure(tmp_path, NAMES)
    (tmp_path / "elsewhere.cedar").write_text(PERMIT)
    (tmp_path / ".agent" / "main.cedar").symlink_to(target)
    with pytest.raises(FileUnreadable):
        settings_of(tmp_path)


BAD: dict[str, tuple[str | bytes | None, str]] = {
    "missing": (None, "does not exist"),
    "no UTF-8": (b"\xff", "is not UTF-8"),
    "no Cedar": ("permit everything;", "main.cedar:1"),
    "no id": ('permit (principal, action == Action::"call", resource);', "main.cedar:1:1"),
    "our id": ('@id("toolkeep.call") permit (principal, action, resource);', "toolkeep."),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_used_stops_the_start_and_is_named(case: str, tmp_path: Path) -> None:
    text, word = BAD[case]
    configure(tmp_path, NAMES)
    if text is not None:
        write(tmp_path, text)
    with pytest.raises((ConfigurationInvalid, FileUnreadable), match=word) as error:
        settings_of(tmp_path)
    assert "main.cedar" in str(error.value)


# --- examples ----------------------------------------------------------------------------------------


def examples(tmp_path: Path, text: str) -> tuple[Example, ...]:
    configure_home(NAMES)
    write(Path.home())
    write(Path.home(), text, "main.examples.yml")
    return settings_of(tmp_path).examples


def test_the_examples_beside_a_file_are_read(tmp_path: Path) -> None:
    text = """\
- {tool: agent_hello_world, arguments: {name: Ada}, allow: true}
- {tool: agent_hello_world, agent: planner, deny: nobody}
- agent: planner
  session:
    - {tool: a, said: Do b, allow: true, ask: false, result: [1]}
    - {tool: b, ask: outside}
"""
    place = Path.home() / ".agent" / "main.examples.yml"
    assert examples(tmp_path, text) == (
        Example(
            place=f"{place}:1:3",
            agent="local",
            tool="agent_hello_world",
            arguments={"name": "Ada"},
            is_allowed=True,
        ),
        Example(
            place=f"{place}:2:3",
            agent="planner",
            tool="agent_hello_world",
            is_allowed=False,
            policy="nobody",
        ),
        Example(
            place=f"{place}:5:7",
            agent="planner",
            tool="a",
            is_allowed=True,
            asks=False,
            said="Do b",
            result=[1],
            then=(
                Example(
                    place=f"{place}:6:7",
                    agent="planner",
                    tool="b",
                    is_allowed=True,
                    asks="outside",
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        ("allow: true", None),
        ("allow: everybody", None),
        ("allow: another", Code.POLICIES_INVALID),
        ("deny: true", Code.POLICIES_INVALID),
    ],
)
def test_nothing_is_permitted_while_an_example_does_not_hold(
    verdict: str, code: Code | None, tmp_path: Path
) -> None:
    examples(tmp_path, f"- {{tool: agent_hello_world, arguments: {{name: Ada}}, {verdict}}}\n")
    assert code_of(tmp_path) is code


BAD_EXAMPLES: dict[str, Any] = {
    "an object": "tool: a\nallow: true\n",
    "text in the list": "- hello\n",
    "an unknown key": "- {tool: a, allow: true, why: not}\n",
    "no verdict": "- {tool: a}\n",
    "two verdicts": "- {tool: a, allow: true, deny: true}\n",
    "a verdict that is no": "- {tool: a, allow: false}\n",
    "a number as tool": "- {tool: 1, allow: true}\n",
    "a list of arguments": "- {tool: a, arguments: [1], allow: true}\n",
    "a question of a denied call": "- {tool: a, ask: true, deny: true}\n",
    "no question without a verdict": "- {tool: a, ask: false}\n",
    "a number that asks": "- {tool: a, allow: true, ask: 0}\n",
    "words that are no text": "- {tool: a, allow: true, said: [a]}\n",
    "a call beside a session": "- {tool: a, session: [{tool: a, allow: true}]}\n",
    "an empty session": "- session: []\n",
    "an agent for each call": "- session: [{tool: a, agent: b, allow: true}]\n",
    "text in a session": "- session: [a]\n",
}


@pytest.mark.parametrize("case", BAD_EXAMPLES)
def test_examples_that_cannot_be_read_stop_the_start(case: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match="example"):
        examples(tmp_path, BAD_EXAMPLES[case])
