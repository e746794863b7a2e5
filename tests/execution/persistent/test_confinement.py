"""Where a program stays: what of the machine it is shown as its code."""

import sys
from pathlib import Path

import pytest

from toolkeep.execution.persistent.confinement import Confinement, confinement_for_grants, outermost
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.sandbox.trusted_paths import TrustedPaths

pytestmark = pytest.mark.spec("SBX-1")


def shown(code: Path | str, hidden: Path | str = "") -> Confinement:
    Path(code).mkdir(parents=True, exist_ok=True)
    spec = ProcessSpec(argv=(sys.executable,), code=(str(code),))
    return confinement_for_grants((), sys.executable, spec, TrustedPaths(str(hidden)), "/")


def test_the_whole_machine_is_no_code() -> None:
    with pytest.raises(ValueError, match="name less"):
        shown("/")


@pytest.mark.parametrize("code", ["", "state", "state/audit"])
def test_code_that_holds_the_state_or_lies_in_it_is_not_shown(tmp_path: Path, code: str) -> None:
    with pytest.raises(ValueError, match="holds the state of toolkeep"):
        shown(tmp_path / code, tmp_path / "state")


def test_the_state_is_found_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="holds the state of toolkeep"):
        shown(tmp_path / "real", tmp_path / "link" / "state")


def test_code_beside_the_state_is_shown(tmp_path: Path) -> None:
    beside = str(tmp_path / "state-of-the-art")
    assert beside in shown(beside, tmp_path / "state").code


def test_what_lies_in_another_is_shown_with_it() -> None:
    assert outermost(["/srv/a/b", "/srv/a", "/srv/ab"]) == ("/srv/a", "/srv/ab")
