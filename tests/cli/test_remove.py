"""`toolkeep remove`: an upstream goes with all that is remembered of it, and nothing else does."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.dialogue import Dialogue
from tests.cli.upstreams import DOCUMENT, accept, add, added, imports, toolkeep
from toolkeep.keep.open import open_state, sign_ins_of
from toolkeep.stores.sign_ins import Client, StoredSignIn

pytestmark = pytest.mark.spec("REG-3", "MCP-3")

KEPT = StoredSignIn(
    url="https://shelf.example/mcp",
    issuer="https://login.example",
    resource="https://shelf.example/mcp",
    token_endpoint="https://login.example/token",
    client=Client(id="us"),
    access_token="s3cret-token",
)
OTHER = {**DOCUMENT, "info": {"title": "Other", "version": "1.0"}}


def config(project: Path) -> Path:
    return project / ".agent" / "config.yml"


def removed(project: Path, *words: str) -> dict[str, Any]:
    done = toolkeep(project, "remove", *words, "--yes", "--json")
    assert done.exit_code == 0, done.output
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def pins(project: Path) -> list[str]:
    state = open_state(project)
    assert state is not None
    return sorted(f"{pin.origin} {pin.name}" for pin in state.pins())


def test_what_was_added_is_removed_with_all_that_was_remembered(tmp_path: Path) -> None:
    added(tmp_path)
    assert imports(tmp_path) == {"getBook": "enabled", "listBooks": "enabled"}
    assert toolkeep(tmp_path, "lock").exit_code == 0
    done = toolkeep(tmp_path, "remove", "book_shop", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"""\
--- {config(tmp_path)}
+++ {config(tmp_path)}
@@ -1,6 +0,0 @@
-upstreams:
-  book_shop:
-    openapi: "book_shop.openapi.json"
-    url: "https://shop.example/v1"
-    secrets:
-      "key": {{env: "BOOK_SHOP_KEY"}}

Also removed:
  - {tmp_path}/.agent/book_shop.openapi.json
  - the accepted definitions of 2 tools: getbook, listbooks
  - its lines of toolkeep.lock
✓ removed 'book_shop'
""")  # fmt: skip
    assert sorted(path.name for path in (tmp_path / ".agent").iterdir()) == ["config.yml"]
    assert not (tmp_path / "toolkeep.lock").exists()
    assert (pins(tmp_path), imports(tmp_path)) == ([], {})


def test_nothing_is_changed_through_a_link_that_leads_out_of_the_project(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    project.mkdir()
    added(project)
    (project / ".agent").rename(outside / "agent")
    (project / ".agent").symlink_to(outside / "agent")
    before = config(project).read_text()
    done = toolkeep(project, "remove", "book_shop", "--yes")
    assert (done.exit_code, "is reached through a symlink out of" in done.output) == (1, True)
    assert config(project).read_text() == before


def test_other_upstreams_their_pins_and_their_lines_of_the_lock_stay(tmp_path: Path) -> None:
    added(tmp_path)
    before = imports(tmp_path)
    assert add(tmp_path, OTHER, "--yes").exit_code == 0
    accept(tmp_path)
    assert toolkeep(tmp_path, "lock").exit_code == 0
    gone = removed(tmp_path, "other")
    assert (gone["lock"], gone["sign_in"], len(gone["tools"])) == (True, False, 2)
    accept(tmp_path)
    assert imports(tmp_path) == before
    assert {line.split()[0] for line in pins(tmp_path)} == {"openapi:book_shop"}
    assert toolkeep(tmp_path, "lock", "--check").exit_code == 0


def test_the_rest_of_the_file_has_to_be_accepted_again(tmp_path: Path) -> None:
    added(tmp_path)
    assert add(tmp_path, OTHER, "--yes").exit_code == 0
    accept(tmp_path)
    done = toolkeep(tmp_path, "remove", "other", "--yes")
    assert "Accept the rest of the file to keep it in effect: toolkeep accept" in done.stdout


COMMENTED = """\
# Ours.
upstreams:
  # The first.
  one:  # it is
    openapi: one.json
    # Its address.
    url: https://one.example

    # No more.
  # The second.
  "two":
    openapi: two.json
    url: https://two.example
limits: {max_schema_bytes: 70000}  # and this
"""


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("one", """\
# Ours.
upstreams:
  # The first.
  # The second.
  "two":
    openapi: two.json
    url: https://two.example
limits: {max_schema_bytes: 70000}  # and this
"""),
        ("two", """\
# Ours.
upstreams:
  # The first.
  one:  # it is
    openapi: one.json
    # Its address.
    url: https://one.example

    # No more.
  # The second.
limits: {max_schema_bytes: 70000}  # and this
"""),
    ],
)  # fmt: skip
def test_comments_order_and_everything_else_stay(tmp_path: Path, name: str, after: str) -> None:
    config(tmp_path).parent.mkdir()
    config(tmp_path).write_text(COMMENTED)
    config(tmp_path).chmod(0o640)
    removed(tmp_path, name)
    assert config(tmp_path).read_text() == after
    assert config(tmp_path).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "text",
    [
        "upstreams: {one: {openapi: one.json}, two: {openapi: two.json}}\n",
        "upstreams:\n  one: {\n  openapi: one.json,\n url: x}\n  two: {openapi: two.json}\n",
        "upstreams:\n  one: &same\n    openapi: one.json\n  two: *same\n",
    ],
)
def test_what_cannot_be_taken_out_is_left_to_a_person(tmp_path: Path, text: str) -> None:
    config(tmp_path).parent.mkdir()
    config(tmp_path).write_text(text)
    done = toolkeep(tmp_path, "remove", "one", "--yes")
    assert done.exit_code == 1
    assert "cannot be removed automatically" in done.stderr
    assert config(tmp_path).read_text() == text


def test_tokens_of_a_sign_in_are_forgotten(tmp_path: Path) -> None:
    config(tmp_path).parent.mkdir()
    entry = "  shelf:\n    mcp: shelf.mcp.json\n    url: https://shelf.example/mcp\n    oauth: {}\n"
    config(tmp_path).write_text(f"upstreams:\n{entry}")
    tokens = sign_ins_of(open_state(tmp_path))
    assert tokens is not None
    tokens.put("shelf", KEPT)
    tokens.put("other", KEPT)
    done = toolkeep(tmp_path, "remove", "shelf", "--yes")
    assert "  - the tokens of your sign-in\n" in done.stdout
    assert "The server was not told. Revoke the access there too." in done.stdout
    assert (tokens.get("shelf"), tokens.get("other") is None) == (None, False)


def test_what_is_left_of_an_upstream_that_no_file_names_is_removed_too(tmp_path: Path) -> None:
    added(tmp_path)
    imports(tmp_path)
    config(tmp_path).write_text("")
    gone = removed(tmp_path, "book_shop")
    assert gone["tools"] == ["getbook", "listbooks"]
    assert pins(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "'nothing': is not an upstream of this project"),
        ("../../etc/x", "is not a valid upstream name"),
        ("Book Shop", "is not a valid upstream name"),
    ],
)
def test_what_is_not_there_is_not_removed(tmp_path: Path, name: str, said: str) -> None:
    added(tmp_path)
    before = config(tmp_path).read_text()
    done = toolkeep(tmp_path, "remove", name, "--yes")
    assert (done.exit_code, said in done.stderr) == (1, True), done.output
    assert config(tmp_path).read_text() == before


def test_a_file_that_add_did_not_write_stays(tmp_path: Path) -> None:
    config(tmp_path).parent.mkdir()
    precious = tmp_path / "precious.json"
    precious.write_text("{}")
    (tmp_path / ".agent" / "one.mcp.json").symlink_to(precious)
    config(tmp_path).write_text(
        "upstreams:\n  one:\n    openapi: ../precious.json\n    url: https://a.example\n"
    )
    assert removed(tmp_path, "one")["listing"] is None
    assert precious.exists()


def test_nothing_is_removed_without_a_yes(tmp_path: Path) -> None:
    added(tmp_path)
    before = config(tmp_path).read_text()
    assert toolkeep(tmp_path, "remove", "book_shop").exit_code == 1
    with Dialogue(["remove", "book_shop"], cwd=tmp_path) as dialogue:
        dialogue.until("Remove this? [y/N]: ")
        dialogue.enter("\n")
        assert dialogue.end()[0] == 1
    assert config(tmp_path).read_text() == before
    with Dialogue(["remove", "book_shop"], cwd=tmp_path) as dialogue:
        dialogue.until("Remove this? [y/N]: ")
        dialogue.enter("y\n")
        assert dialogue.end()[0] == 0
    assert config(tmp_path).read_text() == ""


def test_an_upstream_of_one_s_own_file_is_left_to_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    assert add(home, DOCUMENT, "--yes").exit_code == 0
    monkeypatch.setenv("HOME", str(home))
    done = toolkeep(project, "remove", "book_shop", "--yes")
    assert (done.exit_code, "is an upstream of your user configuration" in done.stderr) == (1, True), (
        done.output
    )
    assert "book_shop" in config(home).read_text()
