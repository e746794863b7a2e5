"""Kernel probe: finds out which isolation levels this machine can enforce.

Each mechanism runs in a throw-away process and must show its effect, and a real worker of each level must
handle a call. A level that misses a guarantee is refused by name, with what is missing and how to fix it; it
is never weakened silently. Results hold for this machine and user, now: nothing is cached where another could
write a false "yes".
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from msgspec.structs import replace

from toolkeep.errors import ToolkeepError
from toolkeep.sandbox.errors import SandboxUnavailable
from toolkeep.sandbox.isolation_cure import REMEDIES, Cure, MachineFacts, cure_for, machine_facts
from toolkeep.sandbox.isolation_levels import (
    TREE_BOUNDS,
    Guarantee,
    Isolation,
    Mechanism,
    memory_bound,
    missing,
    needed,
)
from toolkeep.sandbox.launch import Trial, tried_alone
from toolkeep.sandbox.memory_trial import try_tree_bound
from toolkeep.sandbox.plan import Recipe, WorkerPlan, ZygotePlan
from toolkeep.sandbox.seccomp_filters import for_level, templated
from toolkeep.sandbox.worker_exchange import Ending, Reply
from toolkeep.sandbox.worker_pool import Key, Pool, PoolSize

_SECONDS: Final = 20.0
"""Time limit of the call at each level; a loaded machine needs one or two seconds."""

_TOOL: Final = "os:getpid"
_EXPECTED: Final = Reply(Ending.OK, value=1)
"""A worker is PID 1 of its pid namespace."""

AS_ORDINARY: Final = "run as an ordinary user; root needs CAP_SYS_ADMIN to start workers"
BY_REASON: Final = (
    "see what the reason names; levels are made for an ordinary user of an ordinary Linux system"
)


class Finding(msgspec.Struct, frozen=True):
    """Whether one mechanism works here, and why not."""

    mechanism: Mechanism
    works: bool
    reason: str = ""


class Findings(msgspec.Struct, frozen=True):
    """Result of the probe."""

    findings: tuple[Finding, ...]
    unstarted: Mapping[Isolation, str] = msgspec.field(default_factory=dict)
    """Levels whose worker could not be started or did not answer, with the reason."""
    remedy: str = BY_REASON
    """What to do about `unstarted`."""
    has_processes: bool = True
    """Whether they are about workers of several processes, whose memory has to be bounded together."""
    machine: MachineFacts = msgspec.field(default_factory=MachineFacts)

    def missing(self, level: Isolation) -> Mapping[Guarantee, tuple[Finding, ...]]:
        """Guarantees of a level that cannot be kept here, each with the mechanisms that it lacks."""
        working = {finding.mechanism for finding in self.findings if finding.works}
        return {
            guarantee: tuple(finding for finding in self.findings if finding.mechanism in absent)
            for guarantee, absent in missing(level, working, has_processes=self.has_processes).items()
        }

    @property
    def tree_bound(self) -> Mechanism | None:
        """Mechanism that bounds the memory of a process tree here: the best that works."""
        working = {finding.mechanism for finding in self.findings if finding.works}
        return next((mechanism for mechanism in TREE_BOUNDS if mechanism in working), None)

    def is_available(self, level: Isolation) -> bool:
        """Whether every mechanism of a level works and a worker of it has answered."""
        return not self.missing(level) and level not in self.unstarted

    @property
    def has_hosts(self) -> bool:
        """Whether confined tools can be limited to single hosts here."""
        return self._works(Mechanism.LANDLOCK_PORTS)

    @property
    def has_supervisor(self) -> bool:
        """Whether the connections of a persistent program can be made for it here."""
        return self._works(Mechanism.SECCOMP_SUPERVISOR)

    def _works(self, mechanism: Mechanism) -> bool:
        return any(finding.works for finding in self.findings if finding.mechanism is mechanism)

    def remedy_for(self, finding: Finding) -> str:
        """What to do about a mechanism; empty if it works."""
        return "" if finding.works else cure_for([finding.mechanism], self.machine).remedy

    def cure(self, level: Isolation) -> Cure | None:
        """Why a level is not available here and what to do, in one line each; None if it is."""
        if self.is_available(level):
            return None
        lacking = dict.fromkeys(one.mechanism for found in self.missing(level).values() for one in found)
        if not lacking:
            return Cure(f"no worker could be started: {self.unstarted[level]}", self.remedy)
        return cure_for(tuple(lacking), self.machine)

    def require(self, level: Isolation, *, connects: bool = False) -> None:
        """Raise `SandboxUnavailable` unless the level is available, with network egress if `connects`."""
        if connects and not self.has_hosts:
            hint = REMEDIES[Mechanism.LANDLOCK_PORTS]
            raise SandboxUnavailable(
                level, missing=["landlock-ports is missing (needed for hosts)"], hint=hint
            )
        lacking = self.missing(level)
        if lacking:
            causes = dict.fromkeys(finding for findings in lacking.values() for finding in findings)
            said = [f"{finding.mechanism} ({finding.reason})" for finding in causes]
            promises = ", ".join(lacking)
            hint = cure_for([finding.mechanism for finding in causes], self.machine).remedy
            raise SandboxUnavailable(
                level, missing=[f"missing {', '.join(said)}, needed for {promises}"], hint=hint
            )
        if level in self.unstarted:
            # The reason may name paths of this machine: it goes into the hint, for the operator, not to a
            # model.
            hint = f"{self.unstarted[level]}; {self.remedy}"
            raise SandboxUnavailable(level, missing=["no worker could be started"], hint=hint)


def try_levels(levels: Iterable[Isolation]) -> Mapping[Isolation, str]:
    """Start a real zygote and worker of each level, and run one call; why not, for the unavailable ones.

    Mechanisms that work one by one may fail together: as root without CAP_SYS_ADMIN each works after dropping
    root, while a zygote has to mount before it drops root. Runs its own event loop.
    """
    return asyncio.run(_rehearse(tuple(levels)))


def try_template() -> str:
    """Why tools have no templates here, so that each call pays for its imports; empty if they have."""
    return asyncio.run(_template_failure())


async def _template_failure() -> str:
    pool = Pool(PoolSize(warm_per_kind=0))
    try:
        key, made = Key(_TOOL, Isolation.STRICT, ""), _recipe(Isolation.STRICT)
        profile = templated(for_level(Isolation.STRICT))
        pool.admit(
            key,
            replace(made, worker=replace(made.worker, template_filter=profile.program())),
        )
        await pool.run(key, b'{"arguments":{}}', _SECONDS, 1024)
        return pool.template_failure(key)
    except (ToolkeepError, ValueError) as error:
        return str(error)
    finally:
        await pool.close()


async def _rehearse(levels: tuple[Isolation, ...]) -> Mapping[Isolation, str]:
    pool = Pool(PoolSize(warm_per_kind=0))
    try:
        reasons = await asyncio.gather(*(_reason(pool, level) for level in levels))
    finally:
        await pool.close()
    return {level: reason for level, reason in zip(levels, reasons, strict=True) if reason}


async def _reason(pool: Pool, level: Isolation) -> str:
    try:
        key = Key(_TOOL, level, "")
        pool.admit(key, _recipe(level))
        reply = await pool.run(key, b'{"arguments":{}}', _SECONDS, 1024)
    except ToolkeepError as error:
        return error.message
    except ValueError as error:
        return str(error)
    return "" if reply == _EXPECTED else f"a worker gave no answer: {reply.ending} {reply.text}".rstrip()


def _recipe(level: Isolation) -> Recipe:
    worker = WorkerPlan(
        tool=_TOOL, level=level, filter=for_level(level).program(), memory_by=memory_bound(level)
    )
    return Recipe(zygote=ZygotePlan(level=level), worker=worker)


Try = Callable[[Sequence[Mechanism]], Sequence[Finding]]
Rehearse = Callable[[Iterable[Isolation]], Mapping[Isolation, str]]


LEVELS: Final = tuple(level for level in Isolation if level is not Isolation.NONE)


def probe(
    attempt: Try | None = None,
    rehearsal: Rehearse | None = try_levels,
    levels: Sequence[Isolation] = LEVELS,
    *,
    has_processes: bool = True,
) -> Findings:
    """Try every mechanism that these levels need, and in parallel each level as a whole, if at all."""
    wanted = {one for level in levels for one in needed(level, has_processes=has_processes)}
    mechanisms = tuple(one for one in Mechanism if one in wanted)
    if sys.platform != "linux":
        reason = f"isolation is made for Linux, this is {sys.platform}"
        found = tuple(Finding(mechanism, works=False, reason=reason) for mechanism in mechanisms)
        return Findings(found, has_processes=has_processes, machine=machine_facts())
    remedy = AS_ORDINARY if os.geteuid() == 0 else BY_REASON
    with ThreadPoolExecutor(max_workers=1) as beside:
        # In a thread: it runs an event loop, and this thread may have one already.
        rehearsed = beside.submit(rehearsal, levels) if rehearsal is not None else None
        found = tuple((attempt or try_mechanisms)(mechanisms))
        unstarted = rehearsed.result() if rehearsed is not None else {}
        return Findings(found, unstarted, remedy, has_processes, machine_facts())


def glance() -> Findings:
    """Try what needs neither worker nor process tree, in a tenth of a second; for words, never a decision."""
    return probe(rehearsal=None, levels=(Isolation.STRICT,), has_processes=False)


def try_mechanisms(mechanisms: Sequence[Mechanism], started: Trial | None = None) -> list[Finding]:
    """Try mechanisms in forks of one trial process; tree-wide memory bounds on a process tree.

    `started` is such a process that this one has started already; one of other mechanisms is not used.
    """
    alone = tried_alone(mechanisms)
    trial = started if started is not None and started.mechanisms == alone else Trial(alone)
    with ThreadPoolExecutor(max_workers=1) as beside:
        tried = beside.submit(trial.answers)
        objections = {one: try_tree_bound(one) for one in TREE_BOUNDS if one in mechanisms}
        answers, reason = tried.result()
    for mechanism, objection in objections.items():
        answers[mechanism] = {"works": not objection, "reason": objection}
    # Fail closed: a mechanism without an answer counts as not working.
    nothing = {"works": False, "reason": reason}
    return [
        Finding(mechanism, answer["works"] is True, str(answer["reason"]))
        for mechanism in mechanisms
        for answer in (answers.get(mechanism, nothing),)
    ]
