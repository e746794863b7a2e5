"""What `git_push` says of a push to a folder; to servers it pushes in `tests/network/inside/pushing.py`."""

from pathlib import Path

import pytest

from tests.tools.test_git import new_repository, pair, plain, refusal
from toolkeep.definitions.tool_context import ToolContext
from toolkeep.tools.git_push import git_push

pytestmark = pytest.mark.spec("TLS-1", "TLS-3")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path.resolve() / "repository")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "there.git"
    folder.mkdir()
    plain(folder, "init", "-q", "--bare", "-b", "main", "--template=")
    return folder


def push(repository: Path, bare: Path | None = None, **more: str) -> str:
    folder = ("there.git", str(bare)) if bare else None
    return git_push(pair(repository), folder=folder, context=ToolContext(), **more)


def tip(repository: Path, branch: str = "main") -> str:
    return plain(repository, "rev-parse", f"refs/heads/{branch}").strip()


def commit(repository: Path, text: str) -> None:
    (repository / "a.txt").write_text(text)
    plain(repository, "commit", "-q", "-a", "-m", text)


def test_a_branch_is_pushed_and_pushed_again(repository: Path, bare: Path) -> None:
    first = tip(repository)[:12]
    assert push(repository, bare) == f"Pushed {first} to the new branch 'main' of 'there.git'"
    assert push(repository, bare) == f"'main' of 'there.git' is at {first} already; nothing was pushed"
    commit(repository, "three")
    assert push(repository, bare) == f"Pushed {tip(repository)[:12]} to 'main' of 'there.git'"
    assert tip(bare) == tip(repository)
    assert plain(bare, "fsck", "--strict") == ""
    assert plain(bare, "log", "--format=%s", "main") == "three\nThe first\n"


def test_a_branch_gets_another_name_there(repository: Path, bare: Path) -> None:
    plain(repository, "branch", "feature/one")
    said = push(repository, bare, branch="feature/one", to_branch="review/one")
    assert said == f"Pushed {tip(repository)[:12]} to the new branch 'review/one' of 'there.git'"
    assert plain(bare, "for-each-ref", "--format=%(refname)") == "refs/heads/review/one\n"


def test_what_others_pushed_is_not_lost(repository: Path, bare: Path, tmp_path: Path) -> None:
    push(repository, bare)
    other = tmp_path / "other"
    plain(tmp_path, "clone", "-q", str(bare), str(other))
    plain(other, "-c", "user.name=B", "-c", "user.email=b@x", "commit", "-q", "--allow-empty", "-m", "theirs")
    plain(other, "push", "-q", "origin", "main")
    before = tip(bare)
    commit(repository, "mine")
    assert refusal(lambda: push(repository, bare)) == (
        "'main' was not pushed to 'there.git': the branch there has commits that this one does not have; "
        "fetch and merge them first, nothing is forced"
    )
    assert tip(bare) == before


def test_a_folder_that_is_no_bare_repository_is_refused(repository: Path, tmp_path: Path) -> None:
    work = new_repository(tmp_path / "work")
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (work, empty):
        assert "is not a bare repository" in refusal(lambda folder=folder: push(repository, folder))  # type: ignore[misc]


@pytest.mark.parametrize("hook", ["pre-receive", "update", "post-receive", "reference-transaction"])
def test_hooks_that_have_a_say_there_are_not_passed_over(hook: str, repository: Path, bare: Path) -> None:
    (bare / "hooks").mkdir()
    (bare / "hooks" / hook).write_text("#!/bin/sh\nexit 1\n")
    assert f"'there.git' has hooks ({hook}), which decide" in refusal(lambda: push(repository, bare))
    assert plain(bare, "for-each-ref") == ""


def test_hooks_in_another_place_are_not_passed_over(repository: Path, bare: Path) -> None:
    plain(bare, "config", "core.hooksPath", "/somewhere")
    assert "has hooks (core.hookspath)" in refusal(lambda: push(repository, bare))


def test_without_a_place_the_remotes_are_named_without_passwords(repository: Path) -> None:
    assert refusal(lambda: push(repository)) == (
        "Say where to push: either url, an https address, or folder, a bare repository on this machine. "
        "The repository names no remote"
    )
    plain(repository, "remote", "add", "origin", "https://ada:s3cr3t@git.example/books.git")
    said = refusal(lambda: push(repository))
    assert said.endswith("The repository names: origin https://git.example/books.git")


def test_both_places_at_once_are_refused(repository: Path, bare: Path) -> None:
    assert "either url" in refusal(lambda: push(repository, bare, url="https://git.example/a.git"))


@pytest.mark.parametrize(
    "name", ["-f", "+main", "a b", "a..b", "a:b", "refs@{1}", "a/", "x.lock", "a//b", "..", "a\nb", "^a", "ä"]
)
def test_what_is_no_branch_is_refused(name: str, repository: Path, bare: Path) -> None:
    assert "is not a valid branch name" in refusal(lambda: push(repository, bare, branch=name))
    assert "is not a valid branch name" in refusal(lambda: push(repository, bare, to_branch=name))


def test_a_branch_that_is_not_there_is_said_to_be(repository: Path, bare: Path) -> None:
    assert refusal(lambda: push(repository, bare, branch="none")) == (
        "There is no branch 'none' with a commit in this repository"
    )
    plain(repository, "checkout", "-q", "--detach")
    assert refusal(lambda: push(repository, bare)) == "The repository is on no branch; say which one to push"


def test_objects_that_are_missing_are_not_pushed_around(repository: Path, bare: Path) -> None:
    blob = plain(repository, "rev-parse", "HEAD:a.txt").strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    assert "some are missing or broken" in refusal(lambda: push(repository, bare))
    assert plain(bare, "for-each-ref") == ""


def test_a_repository_of_another_form_is_refused(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.git"
    other.mkdir()
    plain(other, "init", "-q", "--bare", "--object-format=sha256", "--template=")
    assert "in another form" in refusal(lambda: push(repository, other))


def test_nothing_of_the_repository_decides_about_the_push(
    repository: Path, bare: Path, tmp_path: Path
) -> None:
    mark, other = tmp_path / "ran", tmp_path / "elsewhere.git"
    other.mkdir()
    plain(other, "init", "-q", "--bare", "--template=")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("pre-push", "reference-transaction", "post-index-change"):
        (hooks / hook).symlink_to(program)
    settings = {
        f"url.{other}.insteadOf": str(bare),
        f"url.{other}.pushInsteadOf": str(bare),
        f"remote.{bare}.url": str(other),
        f"remote.{bare}.pushurl": str(other),
        "core.hooksPath": str(tmp_path),
        "core.fsmonitor": str(program),
        "core.alternateRefsCommand": str(program),
        "push.gpgSign": "true",
        "gpg.program": str(program),
        "push.recurseSubmodules": "on-demand",
        "pack.packObjectsHook": str(program),
        "uploadpack.packObjectsHook": str(program),
    }
    for name, value in settings.items():
        plain(repository, "config", name, value)
    push(repository, bare)
    assert tip(bare) == tip(repository)
    assert plain(other, "for-each-ref") == ""
    assert not mark.exists()
