"""`toolkeep doctor`: which isolation levels this machine supports, and how to get the others.

Tries each mechanism in a throw-away process, and with `--attack` runs the escape suite. Opens no keep and
runs nothing of a project; it reads the configuration for the files that it names. The result holds for
this machine and user, now. With `--identity` it asks the identity providers of the configuration instead.
"""

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from toolkeep.cli.options import common, print_json, say, warn
from toolkeep.cli.progress import progress
from toolkeep.errors import ToolkeepError
from toolkeep.sandbox.container_check import FLAGS
from toolkeep.sandbox.isolation_cure import NAMESPACES
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Finding, Findings, probe, try_template
from toolkeep.sandbox.plan import ORDINARY_ID
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPath, resolved
from toolkeep.text.display import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine and user that toolkeep runs on."""

    python: str
    kernel: str
    """Its name and release."""
    processor: str
    user: int
    trusted: tuple[TrustedPath, ...] = ()
    """What this process executes, imports or believes, and a keep that is opened here."""

    @property
    def worker_user(self) -> int:
        """The user of sandbox workers: an ordinary user, even if this process is root."""
        return self.user or ORDINARY_ID


def this_host() -> Host:
    """The machine and user of this process."""
    return Host(
        python=platform.python_version(),
        kernel=f"{platform.system()} {platform.release()}",
        processor=platform.machine(),
        user=os.geteuid(),
        trusted=(*THIS_PROCESS.host, *_of_configuration()),
    )


def _of_configuration() -> tuple[TrustedPath, ...]:
    """Files that the configuration makes the keep itself read or write."""
    from toolkeep.keep.open import open_state, project_folder, read_configuration, trusted_files

    try:
        project = project_folder()
        return resolved(trusted_files(read_configuration(project, open_state(project)))).paths
    except ToolkeepError as error:
        warn(f"files named by the configuration are not listed: {error}")
        return ()


@click.command("doctor")
@click.option("--attack", "is_attack", is_flag=True, help="Also run the escape suite; takes a minute or two.")
@click.option(
    "--identity",
    "is_identity",
    is_flag=True,
    help="Only check the identity providers of the configuration.",
)
@click.option(
    "--profile",
    type=click.Choice(["apparmor", "docker"]),
    help="Only print a profile that lets toolkeep confine tools where a system's defaults forbid it.",
)
@common
def command(*, is_attack: bool, is_identity: bool, profile: str | None, as_json: bool) -> None:
    """Check which isolation this machine supports.

    Tries every mechanism of the kernel and lists what works, why the rest does not, and how to get it; then
    what no confined tool can write, because toolkeep itself runs or believes it. Exit status 0 if every level
    is available.

    With --attack, hostile tools then try to get out of every level, in namespaces that are thrown away, after
    secrets that are made for them. Exit status 0 if no attempt escaped that a level promises to contain.

    With --identity, each provider is asked for its metadata and keys, and compared with the configuration:
    what is wrong, and how to mend it. Nobody is signed in. Exit status 0 if nothing is wrong; a question mark
    is what the provider does not say.
    """
    if is_identity:
        from toolkeep.cli.identity_report import report_identity

        sys.exit(0 if report_identity(as_json=as_json) else 1)
    if profile is not None:
        _print_profile(profile)
        return
    host = this_host()
    with progress("Trying the mechanisms of the kernel"):
        findings = probe()
        failure = try_template() if findings.is_available(Isolation.STRICT) else "strict is not available"
    if not as_json:
        _print(host, findings, failure)
    data, is_contained = _attacked(findings, as_json=as_json) if is_attack else ({}, True)
    if as_json:
        print_json(_data(host, findings, failure) | data)
    if not is_contained or not all(map(findings.is_available, Isolation)):
        sys.exit(1)


def _print_profile(name: str) -> None:
    """Print a profile on stdout, and how to install it on stderr."""
    from toolkeep.sandbox.host_profiles import apparmor_profile, seccomp_profile
    from toolkeep.sandbox.isolation_cure import INSTALL_APPARMOR

    if name == "docker":
        click.echo(json.dumps(seccomp_profile(), indent=2))
        say("Docker, Podman: save it as toolkeep-seccomp.json, and start the container with", err=True)
        say(f"  {FLAGS}", err=True)
        say("Kubernetes: save it below /var/lib/kubelet/seccomp on each node, and set", err=True)
        say("  seccompProfile: {type: Localhost, localhostProfile: toolkeep-seccomp.json}", err=True)
        say("  appArmorProfile: {type: Unconfined}", err=True)
        return
    program = Path(sys.argv[0]).resolve()
    if program.name != "toolkeep":
        raise click.UsageError("Run it as `toolkeep`: the profile is for that program, not for every Python.")
    click.echo(apparmor_profile(str(program)), nl=False)
    say(f"Install it: {INSTALL_APPARMOR}", err=True)
    say("For a program that imports toolkeep: aa-exec --profile toolkeep -- python program.py", err=True)


def _attacked(findings: Findings, *, as_json: bool) -> tuple[dict[str, Any], bool]:
    """Results of the escape suite as data, and whether every attempt was contained."""
    from toolkeep.cli.escape_report import as_data, attack_here, print_attack

    found = attack_here(findings)
    if not as_json:
        print_attack(found)
    return {"attack": as_data(found)}, found.is_contained


def _data(host: Host, findings: Findings, template_failure: str) -> dict[str, Any]:
    return {
        "python": host.python,
        "kernel": host.kernel,
        "processor": host.processor,
        "user": host.user,
        "worker_user": host.worker_user,
        "tree_bound": findings.tree_bound,
        "has_hosts": findings.has_hosts,
        "template_failure": template_failure,
        "cure": _cure_data(findings),
        "mechanisms": [_mechanism(finding, findings) for finding in findings.findings],
        "levels": [_level(level, findings) for level in Isolation],
        "trusted": [one._asdict() for one in host.trusted],
    }


def _cure_data(findings: Findings) -> dict[str, str] | None:
    cure = findings.cure(Isolation.STRICT)
    return None if cure is None else cure._asdict()


def _mechanism(finding: Finding, findings: Findings) -> dict[str, Any]:
    return {
        "name": finding.mechanism.value,
        "works": finding.works,
        "reason": finding.reason,
        "remedy": findings.remedy_for(finding),
    }


def _level(level: Isolation, findings: Findings) -> dict[str, Any]:
    missing = {
        promise.value: [finding.mechanism.value for finding in lacking]
        for promise, lacking in findings.missing(level).items()
    }
    return {
        "name": level.value,
        "available": findings.is_available(level),
        "missing": missing,
        "reason": "" if missing else findings.unstarted.get(level, ""),
    }


def _print(host: Host, findings: Findings, template_failure: str) -> None:
    say(f"Python {host.python}, {host.kernel}, {host.processor}")
    say(_whom(host))
    say(f"Memory of tools that start processes: {_TREE_BOUNDS[findings.tree_bound]}")
    say(f"Hosts of confined tools: {_HOSTS[findings.has_hosts]}")
    say(f"Imports of confined tools: {_imports(template_failure)}")
    say("Persistent programs: those of a server are listed at its GET /v1/programs, not here")
    say("", "Mechanisms")
    needed = {one for level in Isolation for lacking in findings.missing(level).values() for one in lacking}
    for finding in findings.findings:
        details = _reason(finding, findings)
        if finding.works or finding in needed:
            _print_line(finding.mechanism, is_good=finding.works, details=details)
        else:
            say(f"  - {finding.mechanism} (optional)", *(f"      {detail}" for detail in details))
    say("", "Levels")
    for level in Isolation:
        _print_line(level, is_good=findings.is_available(level), details=_lacks(level, findings))
    cure = findings.cure(Isolation.STRICT)
    if cure is not None and any(_is_told_once(finding, findings) for finding in findings.findings):
        say("", f"Why: {cure.cause}", f"Cure: {cure.remedy}")
    for line in trusted_lines(host):
        say(line)


def _imports(template_failure: str) -> str:
    if not template_failure:
        return "once for each tool and agent, in a sealed template"
    return f"in each call, because there are no templates here: {visible(template_failure)}"


def trusted_lines(host: Host) -> Iterator[str]:
    """The trusted files as text."""
    if host.trusted:
        yield ""
        yield "Trusted: read-only for every confined tool, whatever it is granted"
    for path in sorted({one.path for one in host.trusted}):
        reasons = sorted({one.what for one in host.trusted if one.path == path})
        yield f"  {visible(path)}: {'; '.join(reasons)}"


def _lacks(level: Isolation, findings: Findings) -> Iterator[str]:
    missing = findings.missing(level)
    for promise, lacking in missing.items():
        yield f"{promise} needs {', '.join(finding.mechanism for finding in lacking)}"
    if not missing and level in findings.unstarted:
        yield findings.unstarted[level]
        yield f"hint: {findings.remedy}"


_TREE_BOUNDS: Final[Mapping[Mechanism | None, str]] = {
    Mechanism.MEMORY_CGROUP: "limited by a cgroup",
    Mechanism.MEMORY_WATCH: "watched; memory-cgroup would limit it exactly",
    None: "not limited, so such tools are not run",
}


_HOSTS: Final = {
    True: "those granted to the call, through a proxy",
    False: "none; landlock-ports would allow the granted ones",
}


def _whom(host: Host) -> str:
    if host.user == host.worker_user:
        return f"Workers run as you: user {host.worker_user}"
    return f"You are root; workers run as user {host.worker_user}"


def _reason(finding: Finding, findings: Findings) -> Iterator[str]:
    if finding.works:
        return
    yield finding.reason
    if not _is_told_once(finding, findings):
        yield f"hint: {findings.remedy_for(finding)}"


def _is_told_once(finding: Finding, findings: Findings) -> bool:
    """Whether a missing mechanism has the same cure as others, which stands below the levels."""
    return not finding.works and (finding.mechanism in NAMESPACES or findings.machine.platform != "linux")


def _print_line(name: str, *, is_good: bool, details: Iterable[str]) -> None:
    say(f" {name}", label="  ✓" if is_good else "  ✗", color="green" if is_good else "red")
    for detail in details:
        say(f"      {detail}")
