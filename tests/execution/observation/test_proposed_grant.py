import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from toolkeep.definitions.capability import Capability
from toolkeep.execution.observation.observed_project import ObservedProject
from toolkeep.execution.observation.proposed_grant import Observation, Proposal, propose_grant

pytestmark = pytest.mark.spec("MCP-2", "SBX-1")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with credentials, the keep's state and a project."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        *(".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", "state/key", "notes/todo.md"),
        *("project/server.py", "project/.env", "project/.agent/config.yml", "project/package.json"),
        *("project/data/a.csv", "project/data/b.csv", "project/conf/one.toml", "project/deep/sub/x.txt"),
        *("project/vault/.ssh/id_rsa", "project/vault/list.txt"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def proposed(
    home: Path,
    named: Iterable[tuple[str, str]] = (),
    contacts: Iterable[tuple[str, str, int]] = (),
    *,
    asked: Iterable[str] = (),
    held: Iterable[str] = (),
    last_words: str = "",
    state: str = "state",
) -> Proposal:
    """The proposal for names below the home."""
    root = f"{home}/project"
    project = ObservedProject.of(
        root,
        f"{home}/{state}",
        code=[f"{root}/server.py"],
        asked=[str(home / path) for path in asked],
        held=map(Capability.read, held),
        programs=[os.path.realpath("/usr/bin/python3")],
    )
    return propose_grant(
        Observation(
            project=project,
            named=frozenset((what, str(home / name)) for what, name in named),
            contacts=frozenset(contacts),
            rounds=1,
            tools=None,
            needs_nothing=False,
            last_words=last_words,
        )
    )


def capabilities(proposal: Proposal) -> list[str]:
    return [line.capability for line in proposal.lines]


def test_several_files_are_a_folder_and_one_is_itself(home: Path) -> None:
    made = proposed(
        home,
        [
            *(("read", "project/data/a.csv"), ("read", "project/data/b.csv"), ("look", "project/deep")),
            *(("read", "project/conf/one.toml"), ("read", "project/gone"), ("list", "project/deep")),
            *(("read", "project/deep/sub/x.txt"), ("read", "project/server.py"), ("list", "project")),
        ],
    )
    assert [(line.words, line.capability) for line in made.lines] == [
        ("reads ./conf/one.toml", "fs.read:./conf/one.toml"),
        ("reads ./data (2 files)", "fs.read:./data"),
        ("reads ./deep (1 file)", "fs.read:./deep"),
    ]
    assert made.notes == ()


def test_a_new_file_needs_its_folder_and_what_is_written_may_be_read(home: Path) -> None:
    made = proposed(
        home,
        [
            ("write", "project/data/new/db"),
            ("read", "project/data/a.csv"),
            ("write", "project/conf/one.toml"),
        ],
    )
    assert capabilities(made) == ["fs.write:./conf/one.toml", "fs.write:./data"]
    in_root = proposed(home, [("write", "project/db")])
    assert in_root.lines == ()
    assert in_root.notes == (". may have credentials in it (./.env)",)


def test_what_is_granted_is_not_proposed_again(home: Path) -> None:
    named = [("read", "project/data/a.csv"), ("write", "project/data/a.csv")]
    assert capabilities(proposed(home, named, held=["fs.read:./data"])) == ["fs.write:./data/a.csv"]
    assert proposed(home, named, held=["fs.write:data"]).lines == ()
    denied = proposed(home, contacts=[("GET", "a.example", 443)], held=["net.write:a.example"])
    assert (denied.lines, len(denied.notes)) == ((), 1)  # its address is not public


@pytest.mark.parametrize("asked", [(), ("",), (".ssh", ".aws", ".config", "state"), ("project/vault", "/")])
def test_credentials_configuration_and_state_are_never_offered(home: Path, asked: tuple[str, ...]) -> None:
    link = home / "project" / "keys"
    link.symlink_to(home / ".ssh")
    (home / "project" / "harmless").symlink_to(home / ".aws" / "credentials")
    never = (
        *(".ssh", ".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", "state", "state/key"),
        *("project/.env", "project/.agent/config.yml", "project/keys/id_ed25519", "project/harmless"),
        *("project/vault", "project/vault/.ssh/id_rsa", "", "/root/.ssh", "/"),
    )
    for what in ("read", "list", "look", "write", "run"):
        assert proposed(home, [(what, name) for name in never], asked=asked).lines == ()
    assert proposed(home, [("list", "project/deep")], state="project/deep/sub").lines == ()
    notes = proposed(
        home, [("read", name) for name in (".ssh/id_ed25519", "state/key", "project/harmless")]
    ).notes
    assert notes == (
        *("~/.ssh/id_ed25519 may hold credentials", "./harmless may hold credentials"),
        "~/state/key is the state of toolkeep",
    )


def test_nothing_outside_the_project_is_offered_unless_the_person_named_it(home: Path) -> None:
    named = [("read", "notes/todo.md")]
    outside = proposed(home, named)
    assert outside.lines == ()
    assert outside.notes == (
        "~/notes/todo.md is outside the project; grant it yourself if it should be used",
    )
    assert proposed(home, named, asked=["/"]).lines == ()
    assert capabilities(proposed(home, named, asked=["notes"])) == ["fs.read:~/notes/todo.md"]
    (home / "project" / "out").symlink_to(home / "notes")
    led = proposed(home, [("read", "project/out/todo.md")])
    assert (led.lines, led.notes) == ((), ("./out/todo.md leads outside the project",))


def test_a_proposal_is_short_and_safe_to_print(home: Path) -> None:
    many = []
    for number in range(60):
        folder = home / "project" / f"d{number:02}"
        folder.mkdir()
        (folder / "f").write_text("")
        many.append(("read", f"project/d{number:02}/f"))
    for name in ("a\x1b[2Jb", "a\nfs.read:~", "a\u202eb", "a\udcffb"):
        (home / "project" / name).write_text("")
        many.append(("read", f"project/{name}"))
    long = home / "notes" / ("n" * 200) / ("n" * 200)
    long.parent.mkdir()
    long.write_text("")
    made = proposed(home, [*many, ("read", str(long))])
    assert (len(made.lines), len(made.notes) <= 21) == (20, True)
    for text in (*made.notes, *(line.words + line.capability for line in made.lines)):
        assert text.isprintable()
        assert len(text) <= 200
    alone = proposed(home, many[-4:])
    assert alone.lines == ()
    assert r"./a\u001b[2Jb has characters in its name that do not show" in alone.notes


def test_programs_are_offered_by_name_and_never_from_elsewhere(home: Path) -> None:
    for name in ("project/run.sh", "notes/run.sh", "project/npm", "project/plain"):
        (home / name).write_text("#!/bin/sh\n")
        (home / name).chmod(0o600 if name.endswith("plain") else 0o700)
    named = (
        "/usr/bin/env",
        "/usr/bin/python3",
        "/nowhere/git",
        "project/run.sh",
        "notes/run.sh",
        "project/npm",
        "project/plain",
    )
    made = proposed(home, [("run", name) for name in named])
    assert [(line.words, line.capability) for line in made.lines] == [
        ("runs ./run.sh", "process.spawn:./run.sh"),
        ("runs env", "process.spawn:env"),
    ]
    assert made.notes == (
        "~/notes/run.sh is outside the project; grant it yourself if it should be used",
        "./npm installs packages, which nobody checks then; grant it yourself if it should be started",
    )


def test_only_public_hosts_are_offered(home: Path) -> None:
    made = proposed(
        home,
        contacts=[
            *(
                ("CONNECT", "api.example.com", 443),
                ("GET", "api.example.com", 80),
                ("GET", "plain.example", 80),
                ("DNS", "seen.example", 0),
            ),
            *(("CONNECT", "db.example.com", 5432), ("GET", "169.254.169.254", 80), ("GET", "localhost", 80)),
            *(("GET", "metadata.google.internal", 80), ("CONNECT", "evil\x1b.example", 443)),
        ],
    )
    assert capabilities(made) == [
        *(
            "net.write:api.example.com",
            "net.write:db.example.com:5432",
            "net.read:plain.example",
            "net.write:seen.example",
        ),
    ]
    assert made.lines[0].words == "connects to api.example.com:443"
    assert len(made.notes) == 3


def test_variables_are_named_from_its_last_words(home: Path) -> None:
    made = proposed(home, last_words="KeyError: 'GITHUB_TOKEN' \x1b[2J; HTTP; set GITHUB_TOKEN")
    assert made.notes == ("its last words name GITHUB_TOKEN; give a variable with --env",)
