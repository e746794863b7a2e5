"""What the workflows of `.github` run, on what, and with which rights."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in FOLDER.iterdir())


def read(name: str) -> Any:
    return yaml.load((FOLDER / name).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 -- text only


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_two() -> None:
    assert NAMES == ["release.yml", "test.yml"]


def test_the_test_command_runs_on_every_python_of_the_classifiers_and_both_architectures() -> None:
    (job,) = read("test.yml")["jobs"].values()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert job["strategy"]["matrix"] == {"python": found, "runner": ["ubuntu-24.04", "ubuntu-24.04-arm"]}
    assert "python:${{ matrix.python }}-" in job["container"]["image"]
    assert job["runs-on"] == "${{ matrix.runner }}"
    assert [step["run"] for step in job["steps"] if "run" in step] == ["scripts/test"]


def test_the_lowest_of_them_is_the_one_that_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (
        project["requires-python"]
        == f">={read('test.yml')['jobs']['test']['strategy']['matrix']['python'][0]}"
    )


def test_a_release_is_built_by_the_script_and_everything_of_it_is_attested_and_kept() -> None:
    made = steps(read("release.yml"))
    assert "scripts/build dist" in [step.get("run") for step in made]
    uses = {step["uses"].partition("@")[0]: step for step in made if "uses" in step}
    assert uses["actions/attest-build-provenance"]["with"]["subject-path"] == "dist/*"
    assert uses["actions/upload-artifact"]["with"]["path"] == "dist/*"


@pytest.mark.parametrize("name", NAMES)
def test_no_right_is_given_that_a_job_does_not_name(name: str) -> None:
    workflow = read(name)
    assert workflow["permissions"] == {}
    given = {right: level for job in workflow["jobs"].values() for right, level in job["permissions"].items()}
    attests = {"id-token": "write", "attestations": "write"} if name == "release.yml" else {}
    assert given == {"contents": "read", **attests}


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_pinned_by_its_commit_with_its_version_beside_it(name: str) -> None:
    lines = re.findall(r"uses: (.*)", (FOLDER / name).read_text(encoding="utf-8"))
    assert [
        line for line in lines if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)
    ] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_step_keeps_the_token_of_the_checkout_or_reads_a_secret(name: str) -> None:
    checkouts = [step for step in steps(read(name)) if step.get("uses", "").startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == ["false"]
    assert "secrets." not in (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_no_script_holds_words_of_whoever_made_the_event(name: str) -> None:
    """An expression in `run` is pasted into the shell, with whatever a branch or title says."""
    assert [step["run"] for step in steps(read(name)) if "${{" in step.get("run", "")] == []
