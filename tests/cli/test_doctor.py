"""What the command says about rich and poor machines: exit status and whole output."""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolkeep.cli import doctor, escape_report
from toolkeep.cli import main as cli_module
from toolkeep.cli.main import cli
from toolkeep.escape_suite.attempt_catalog import KINDS, declared
from toolkeep.escape_suite.expected import levels_of
from toolkeep.escape_suite.suite import CONTROL, KindRuns, Run, Tell
from toolkeep.sandbox.isolation_cure import MachineFacts
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Finding, Findings, probe
from toolkeep.sandbox.plan import ORDINARY_ID
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPath

NAMESPACES = frozenset(mechanism for mechanism in Mechanism if mechanism.endswith("-namespace"))

RICH = """\
Python 3.11.9, Linux 6.8.0, x86_64
Workers run as you: user 1000
Memory of tools that start processes: limited by a cgroup
Hosts of confined tools: those granted to the call, through a proxy
Imports of confined tools: once for each tool and agent, in a sealed template
Persistent programs: those of a server are listed at its GET /v1/programs, not here

Mechanisms
  ✓ user-namespace
  ✓ pid-namespace
  ✓ mount-namespace
  ✓ network-namespace
  ✓ ipc-namespace
  ✓ landlock
  ✓ landlock-ports
  ✓ seccomp
  ✓ seccomp-supervisor
  ✓ memory-limit
  ✓ memory-watch
  ✓ memory-cgroup
  ✓ clean-start

Levels
  ✓ none
  ✓ standard
  ✓ strict
  ✓ restricted
"""

WITHOUT_LANDLOCK = """\
Python 3.11.9, Linux 6.8.0, x86_64
Workers run as you: user 1000
Memory of tools that start processes: limited by a cgroup
Hosts of confined tools: those granted to the call, through a proxy
Imports of confined tools: in each call, because there are no templates here: strict is not available
Persistent programs: those of a server are listed at its GET /v1/programs, not here

Mechanisms
  ✓ user-namespace
  ✓ pid-namespace
  ✓ mount-namespace
  ✓ network-namespace
  ✓ ipc-namespace
  ✗ landlock
      it is not here
      hint: use Linux 6.2 or later with landlock in the kernel parameter lsm=
  ✓ landlock-ports
  ✓ seccomp
  ✓ seccomp-supervisor
  ✓ memory-limit
  ✓ memory-watch
  ✓ memory-cgroup
  ✓ clean-start

Levels
  ✓ none
  ✓ standard
  ✗ strict
      fs-read needs landlock
      fs-write needs landlock
  ✗ restricted
      fs-read needs landlock
      fs-write needs landlock
"""

WITHOUT_CGROUP = RICH.replace("limited by a cgroup", "watched; memory-cgroup would limit it exactly").replace(
    "  ✓ memory-cgroup\n",
    """\
  - memory-cgroup (optional)
      it is not here
      hint: let the keep make cgroups: in its systemd unit (254 or later) Delegate=memory pids and \
DelegateSubgroup=keep; elsewhere, start it in a cgroup v2 whose parent folder is its user's
""",
)

WITHOUT_TREE_BOUND = """\
Python 3.11.9, Linux 6.8.0, x86_64
Workers run as you: user 1000
Memory of tools that start processes: not limited, so such tools are not run
Hosts of confined tools: those granted to the call, through a proxy
Imports of confined tools: in each call, because there are no templates here: strict is not available
Persistent programs: those of a server are listed at its GET /v1/programs, not here

Mechanisms
  ✓ user-namespace
  ✓ pid-namespace
  ✓ mount-namespace
  ✓ network-namespace
  ✓ ipc-namespace
  ✓ landlock
  ✓ landlock-ports
  ✓ seccomp
  ✓ seccomp-supervisor
  ✓ memory-limit
  ✗ memory-watch
      it is not here
      hint: let this user see its own processes in /proc: no hidepid there, and a kernel with CONFIG_PROC_CHILDREN
  ✗ memory-cgroup
      it is not here
      hint: let the keep make cgroups: in its systemd unit (254 or later) Delegate=memory pids and \
DelegateSubgroup=keep; elsewhere, start it in a cgroup v2 whose parent folder is its user's
  ✓ clean-start

Levels
  ✓ none
  ✗ standard
      memory-bound needs memory-watch, memory-cgroup
  ✗ strict
      memory-bound needs memory-watch, memory-cgroup
  ✓ restricted
"""

WITHOUT_NAMESPACES = """\
Python 3.11.9, Linux 6.8.0, x86_64
Workers run as you: user 1000
Memory of tools that start processes: limited by a cgroup
Hosts of confined tools: those granted to the call, through a proxy
Imports of confined tools: in each call, because there are no templates here: strict is not available
Persistent programs: those of a server are listed at its GET /v1/programs, not here

Mechanisms
  ✗ user-namespace
      it is not here
  ✗ pid-namespace
      it is not here
  ✗ mount-namespace
      it is not here
  ✗ network-namespace
      it is not here
  ✗ ipc-namespace
      it is not here
  ✓ landlock
  ✓ landlock-ports
  ✓ seccomp
  ✓ seccomp-supervisor
  ✓ memory-limit
  ✓ memory-watch
  ✓ memory-cgroup
  ✓ clean-start

Levels
  ✓ none
  ✗ standard
      env-clean needs pid-namespace
      tree-kill needs user-namespace, pid-namespace
  ✗ strict
      disk-bound needs mount-namespace
      env-clean needs pid-namespace
      fs-metadata needs mount-namespace
      fs-read needs mount-namespace
      fs-write needs mount-namespace
      ipc-closed needs network-namespace, ipc-namespace
      net-closed needs network-namespace
      tree-kill needs user-namespace, pid-namespace
  ✗ restricted
      disk-bound needs mount-namespace
      env-clean needs pid-namespace
      fs-metadata needs mount-namespace
      fs-read needs mount-namespace
      fs-write needs mount-namespace
      ipc-closed needs network-namespace, ipc-namespace
      net-closed needs network-namespace
      tree-kill needs user-namespace, pid-namespace

Why: AppArmor denies user namespaces to programs without a profile
Cure: toolkeep doctor --profile apparmor | sudo tee /etc/apparmor.d/toolkeep >/dev/null && \
sudo apparmor_parser --replace /etc/apparmor.d/toolkeep
"""


def machine_without(absent: Collection[Mechanism]) -> Findings:
    return Findings(
        tuple(
            Finding(mechanism, works=False, reason="it is not here")
            if mechanism in absent
            else Finding(mechanism, works=True)
            for mechanism in Mechanism
        ),
        machine=MachineFacts(has_apparmor_restriction=True),
    )


def run_on(
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    absent: Collection[Mechanism] = (),
    found: Findings | None = None,
    user: int = 1000,
) -> Result:
    host = doctor.Host(python="3.11.9", kernel="Linux 6.8.0", processor="x86_64", user=user)
    monkeypatch.setattr(doctor, "this_host", lambda: host)
    monkeypatch.setattr(doctor, "probe", lambda: found or machine_without(absent))
    monkeypatch.setattr(doctor, "try_template", lambda: "")
    return CliRunner().invoke(cli, ["doctor", *arguments], prog_name="toolkeep", catch_exceptions=False)


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("absent", "status", "shown"),
    [
        ((), 0, RICH),
        ({Mechanism.LANDLOCK}, 1, WITHOUT_LANDLOCK),
        (NAMESPACES, 1, WITHOUT_NAMESPACES),
        ({Mechanism.MEMORY_CGROUP}, 0, WITHOUT_CGROUP),
        ({Mechanism.MEMORY_CGROUP, Mechanism.MEMORY_WATCH}, 1, WITHOUT_TREE_BOUND),
    ],
    ids=["rich", "without Landlock", "without namespaces", "without cgroup", "without tree bound"],
)
def test_it_says_what_the_machine_gives_and_how_to_get_the_rest(
    absent: Collection[Mechanism], status: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_on(monkeypatch, absent=absent)
    assert (result.exit_code, result.stdout, result.stderr) == (status, shown, "")


def test_root_is_told_who_workers_run_as(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_on(monkeypatch, user=0)
    whom = "You are root; workers run as user 1900000001"
    assert result.stdout == RICH.replace("Workers run as you: user 1000", whom)


@pytest.mark.spec("SBX-4")
def test_it_says_whether_hosts_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_on(monkeypatch, absent={Mechanism.LANDLOCK_PORTS})
    assert result.exit_code == 0  # every level is there
    assert "Hosts of confined tools: none; landlock-ports would" in result.stdout
    assert "hint: use Linux 6.7 or later; until then tools at strict reach no host" in result.stdout


@pytest.mark.spec("SBX-1")
def test_as_json_it_names_every_mechanism_and_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_on(monkeypatch, "--json", absent={Mechanism.LANDLOCK}, user=0)
    missing = {"fs-read": ["landlock"], "fs-write": ["landlock"]}
    remedy = "use Linux 6.2 or later with landlock in the kernel parameter lsm="
    expected = {
        "python": "3.11.9",
        "kernel": "Linux 6.8.0",
        "processor": "x86_64",
        "user": 0,
        "worker_user": ORDINARY_ID,
        "tree_bound": "memory-cgroup",
        "has_hosts": True,
        "template_failure": "strict is not available",
        "cure": {"cause": "this kernel lacks landlock", "remedy": remedy},
        "mechanisms": [
            {"name": "landlock", "works": False, "reason": "it is not here", "remedy": remedy}
            if mechanism is Mechanism.LANDLOCK
            else {"name": mechanism.value, "works": True, "reason": "", "remedy": ""}
            for mechanism in Mechanism
        ],
        "levels": [
            {"name": "none", "available": True, "missing": {}, "reason": ""},
            {"name": "standard", "available": True, "missing": {}, "reason": ""},
            {"name": "strict", "available": False, "missing": missing, "reason": ""},
            {"name": "restricted", "available": False, "missing": missing, "reason": ""},
        ],
        "trusted": [],
    }
    assert (result.exit_code, json.loads(result.stdout), result.stderr) == (1, expected, "")


@pytest.mark.spec("SBX-6")
def test_it_lists_what_no_tool_may_write_because_the_host_trusts_it() -> None:
    shown = {one.path: one.what for one in doctor.this_host().trusted}
    assert shown[os.path.realpath(Path(cli_module.__file__).parent.parent)] == "toolkeep itself"
    assert shown[os.path.realpath(sys.executable)] == "the Python interpreter"
    host = doctor.Host(
        python="3.11.9",
        kernel="Linux 6.8.0",
        processor="x86_64",
        user=1000,
        trusted=tuple(
            TrustedPath("/opt/\x1b[2Jenv", what)
            for what in ("the environment of Python", "a folder of PATH", "a folder of PATH")
        ),
    )
    printed = "\n".join(doctor.trusted_lines(host))
    assert printed.endswith("granted\n  /opt/\\u001b[2Jenv: a folder of PATH; the environment of Python")


@pytest.mark.spec("SBX-6")
def test_it_lists_the_files_that_the_configuration_names() -> None:
    (Path.home() / ".agent").mkdir()
    (Path.home() / ".agent" / "config.yml").write_text("audit: {checkpoint_file: /mnt/elsewhere/books.txt}\n")
    assert "  /mnt/elsewhere/books.txt: the file of checkpoints" in doctor.trusted_lines(doctor.this_host())


def test_with_a_configuration_that_cannot_be_read_it_says_so_and_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (Path.home() / ".agent").mkdir()
    (Path.home() / ".agent" / "config.yml").write_text("no: [configuration")
    assert doctor.this_host().trusted == THIS_PROCESS.host
    assert "files named by the configuration are not listed" in capsys.readouterr().err


@pytest.mark.spec("SBX-1")
def test_a_level_whose_worker_does_not_start_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = machine_without(())
    found = Findings(whole.findings, {Isolation.STRICT: "unshare: not permitted"}, "run as somebody else")
    result = run_on(monkeypatch, found=found)
    lines = "  ✗ strict\n      unshare: not permitted\n      hint: run as somebody else\n"
    without = RICH.replace(
        "once for each tool and agent, in a sealed template",
        "in each call, because there are no templates here: strict is not available",
    )
    assert (result.exit_code, result.stdout) == (1, without.replace("  ✓ strict\n", lines))


# --- attacks -------------------------------------------------------------------------------------

ATTACKED = """
Escape attempts
  ✗ standard
      files_read: all 5 contained
      files_write: all 3 contained
      processes: {processes} not run, of {processes}
        ✗ sleep_past_the_deadline and {more} more could not be run: the host failed
      results: {results} contained, 1 escaped, of {all_results}
        ✗ say_garbage escaped: the call ended as ok
  ✗ strict: not available here, so not tested
  ✗ restricted: not available here, so not tested

Inconclusive: these fail without the sandbox too
      say_half_of_a_frame: it does nothing here
"""


def all_contained(kind: str, levels: Collection[Isolation], *spared: str) -> Iterator[Run]:
    for attempt in declared(kind).values():
        for level in levels:
            if attempt.name not in spared:
                yield Run(attempt.name, CONTROL, (attempt.shows,), "", "")
            yield Run(attempt.name, level.value, (), "ok", "")


def contains_all(levels: Collection[Isolation], tell: Tell) -> tuple[KindRuns, ...]:
    return tuple(KindRuns(kind, tuple(all_contained(kind, levels))) for kind in KINDS)


def contains_little(levels: Collection[Isolation], tell: Tell) -> tuple[KindRuns, ...]:
    found = {runs.kind: runs for runs in contains_all(levels, tell)}
    results = [
        run for run in found["results"].runs if run.attempt not in ("say_garbage", "say_half_of_a_frame")
    ]
    results += [
        Run("say_garbage", CONTROL, ("confused",), "", ""),
        Run("say_garbage", "standard", ("the call ended as ok",), "ok", ""),
        Run("say_half_of_a_frame", CONTROL, (), "", ""),
        Run("say_half_of_a_frame", "standard", (), "died", ""),
    ]
    found["processes"] = KindRuns("processes", (), "the host failed")
    found["results"] = KindRuns("results", tuple(results))
    return tuple(found.values())


@pytest.mark.spec("SBX-5")
def test_an_attack_names_what_got_out_what_did_not_run_and_what_was_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(escape_report, "attack", contains_little)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = run_on(monkeypatch, "--attack", absent={Mechanism.LANDLOCK})
    counted = {
        kind: sum(
            Isolation.STANDARD in levels_of(attempt) and attempt.only_for != "root"
            for attempt in declared(kind).values()
        )
        for kind in KINDS
    }
    shown = ATTACKED.format(
        processes=counted["processes"],
        more=counted["processes"] - 1,
        results=counted["results"] - 2,
        all_results=counted["results"],
    ).replace(" contained, 1 escaped,", " contained, 1 escaped, 1 not shown,")
    assert (result.exit_code, result.stdout, result.stderr) == (1, WITHOUT_LANDLOCK + shown, "")


@pytest.mark.spec("SBX-5")
def test_an_attack_that_gets_nowhere_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escape_report, "attack", contains_all)
    result = run_on(monkeypatch, "--attack", "--json")
    said = json.loads(result.stdout)["attack"]
    kinds = [kind for level in said["levels"] for kind in level["kinds"]]
    assert (result.exit_code, said["contained"], result.stderr) == (0, True, "")
    assert [level["name"] for level in said["levels"]] == ["standard", "strict", "restricted"]
    assert all(level["attacked"] and level["not_promised"] for level in said["levels"])
    assert all(kind["contained"] == kind["attempts"] > 0 for kind in kinds)


def test_a_machine_without_any_level_is_not_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_on(monkeypatch, "--attack", "--json", absent=NAMESPACES)
    said = json.loads(result.stdout)["attack"]
    assert (result.exit_code, said["contained"]) == (1, False)
    assert [level["attacked"] for level in said["levels"]] == [False, False, False]


def test_progress_is_told_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escape_report, "is_terminal", lambda _: True)
    monkeypatch.setattr(escape_report, "attack", contains_all)
    result = run_on(monkeypatch, "--attack", "--json")
    assert (json.loads(result.stdout)["attack"]["contained"], result.stderr != "") == (True, True)


def test_without_attacks_nothing_of_the_suite_is_loaded() -> None:
    code = "import sys; from toolkeep.cli import doctor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert not [name for name in done.stdout.split() if name.startswith("toolkeep.escape_suite")]


def test_what_the_machine_answers_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Findings((Finding(Mechanism.SECCOMP, works=False, reason="\x1b[2Jno"),))
    monkeypatch.setattr(doctor, "probe", lambda: found)
    result = CliRunner().invoke(cli, ["doctor"], prog_name="toolkeep", catch_exceptions=False)
    assert (result.exit_code, "\x1b" in result.stdout) == (1, False)


@pytest.mark.spec("SBX-1")
def test_on_this_machine_it_says_what_the_probe_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text("this is: [no configuration")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["doctor", "--json"], prog_name="toolkeep", catch_exceptions=False)
    said = json.loads(result.stdout)
    found = probe()
    works = {finding.mechanism.value: finding.works for finding in found.findings}
    available = {level.value: found.is_available(level) for level in Isolation}
    assert {one["name"]: one["works"] for one in said["mechanisms"]} == works
    assert {one["name"]: one["available"] for one in said["levels"]} == available
    assert result.exit_code == (0 if all(available.values()) else 1)
    assert list(tmp_path.rglob("*")) == [tmp_path / ".agent", tmp_path / ".agent" / "config.yml"]
