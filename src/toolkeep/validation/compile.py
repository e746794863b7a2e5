"""Compile a safe schema into a validator, once, at registration (VAL-4).

In: a schema as a definition holds it. Out: a `CompiledSchema`, which is safe to share between threads, or
`Problem`s. Every failure while compiling refuses the schema: one that cannot be compiled must never admit
calls.
"""

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import msgspec

from toolkeep.errors import Code, Problem
from toolkeep.limits import (
    BRACKETS,
    MATCHED_CHARS,
    OUTPUT_WORK,
    Limits,
)
from toolkeep.validation.bad_defaults import (
    DISAGREES,
    TOO_LARGE,
    Check,
    Why,
    default_problem,
    misfitting_values,
)
from toolkeep.validation.call_size import EXPONENT, size_of, without_collector
from toolkeep.validation.chunked_check import TooExpensive, is_valid_in_chunks
from toolkeep.validation.close_objects import (
    InPlace,
    close_objects,
    close_part,
    guard_matching,
    turns_matching,
)
from toolkeep.validation.cost import Cost, TooCostly, measure
from toolkeep.validation.default_growth import FillingPlan
from toolkeep.validation.dialect import Dialect
from toolkeep.validation.direct import Decode, Inexpressible, make_decoder
from toolkeep.validation.finish import Finisher, make_finisher
from toolkeep.validation.guard import Inspection, inspect_schema
from toolkeep.validation.member_count import Members, make_members
from toolkeep.validation.schema_engine import NO_FORMATS, Formats, Uncompilable, compile_schema
from toolkeep.validation.schema_keywords import every_schema
from toolkeep.validation.secret_values import SHOW_ALL, Display, Locator, SecretFilter, log_internal_error
from toolkeep.validation.signature_hint import signature
from toolkeep.validation.unchecked_values import is_open


def guarded_formats(formats: Formats) -> Formats:
    """Formats that are safe to call from the engine: short strings only, and an exception means invalid."""
    return {name: _guarded(check) for name, check in formats.items()}


def _guarded(check: Callable[[str], bool]) -> Callable[[str], bool]:
    def verdict(text: str) -> bool:
        try:
            return len(text) <= MATCHED_CHARS and check(text) is True
        except Exception as error:  # noqa: BLE001 -- a check that breaks has not said yes
            log_internal_error("internal error in a format check", error)
            return False

    return verdict


class CompiledSchema:
    """A validator with everything that validation and its error report need to know about the schema."""

    __slots__ = (
        "_formats", "_hint", "_parts", "closes_objects", "cost", "decode", "dialect", "filler", "filling",
        "finisher", "is_open", "is_valid", "limits", "limits_strings", "locator", "members", "never_applied",
        "schema", "secrecy", "uncounted_bytes", "validator",
    )  # fmt: skip

    def __init__(
        self,
        schema: dict[str, Any],
        dialect: Dialect,
        limits: Limits,
        *,
        closes_objects: bool,
        display: Display = SHOW_ALL,
        formats: Formats = NO_FORMATS,
    ) -> None:
        guarded = close_objects(schema) if closes_objects else guard_matching(schema)
        self.schema = schema
        """As written, with references resolved. Used to explain; the closed form decides."""
        self.dialect = dialect
        self.limits = limits
        self.closes_objects = closes_objects
        self.cost: Cost = measure(guarded, fanout=limits.fanout)
        self._formats = formats
        self.validator = compile_schema(guarded, dialect, formats)
        self.is_valid = self.validator.is_valid
        in_place = InPlace(guarded)
        self.is_open = is_open(in_place, depth=limits.argument_depth)
        self.limits_strings = turns_matching(schema)
        """Whether no string of a call may be longer than a pattern is matched against."""
        self.members: Members | None = None if self.is_open else make_members(in_place)
        self.never_applied: frozenset[int] = frozenset()
        """The ids of the subschemas whose defaults are not applied."""
        self.finisher: Finisher | None = None
        self.filling: FillingPlan | None = None
        """What the defaults add, where that depends on the number of objects in a call."""
        self.decode: Decode | None = self._decode_first if self.members is not None else None
        """Reads and checks a text in one go; None where the schema says more than types can."""
        self.filler: Finisher | None = None
        """The finisher of what `decode` has read."""
        self.locator = Locator(schema)
        self.secrecy = SecretFilter(self.locator, display)
        self._hint: str | None = None
        self._parts: dict[int, jsonschema_rs.Validator] = {}
        self.uncounted_bytes = _uncounted_bytes(self.cost, limits)
        """Arguments up to this size cannot exceed any limit on size or work, so they are not counted."""

    def _decode_first(self, raw: bytes) -> dict[str, Any]:
        """Build the decoder on first use: most tools of a keep are never called."""
        decode = make_decoder(self.schema)
        if decode is None:
            self.decode = None
            raise Inexpressible
        self.filler = make_finisher(self.schema, never_applied=self.never_applied, mends_integers=False)
        self.decode = decode
        return decode(raw)

    def prepare_defaults(self) -> list[Problem]:
        """Build the finisher. Returns the problems of defaults, which are then never applied."""
        misfits = list(misfitting_values(self.schema, self.check_of))
        self.never_applied = frozenset(id(misfit.part) for misfit in misfits)
        problems = [misfit.problem for misfit in misfits]
        plan = self._plan_filling()
        if plan is not None and plan.faults:
            faults = plan.faults
            paths = (
                (path, faults[id(part)]) for path, part in every_schema(self.schema) if id(part) in faults
            )
            problems += [default_problem(path, why) for path, why in paths]
            self.never_applied |= faults.keys()
            plan = self._plan_filling()
        if plan is not None and any(plan.elsewhere):
            self.filling = plan
            # An object takes at least two bytes: `{}`.
            self.uncounted_bytes = min(self.uncounted_bytes, 2 * plan.uncounted_objects)
        return problems

    def _plan_filling(self) -> FillingPlan | None:
        self.finisher = make_finisher(self.schema, never_applied=self.never_applied)
        return None if self.finisher is None else FillingPlan(self.finisher, self.limits)

    def hint(self, name: str) -> str:
        """The signature in one line, computed on first use."""
        if self._hint is None:
            self._hint = signature(name, self.schema, is_sensitive=self.secrecy.hides_all)
        return self._hint

    def part(self, part: dict[str, Any]) -> jsonschema_rs.Validator:
        """A validator for the values at one place of the schema, built on first use."""
        if id(part) not in self._parts:
            self._parts[id(part)] = self.compile_part(part)
        return self._parts[id(part)]

    def compile_part(self, part: dict[str, Any]) -> jsonschema_rs.Validator:
        """The same, not cached."""
        guard = close_part if self.closes_objects else guard_matching
        return compile_schema(guard(self.schema, part), self.dialect, self._formats)

    def check_of(self, part: dict[str, Any]) -> Check:
        """A check for values at one place; it also refuses a value that would cost a call too much work."""
        is_valid = self.compile_part(part).is_valid

        def check(value: Any) -> Why | None:
            if not self.affords(value):
                return TOO_LARGE
            return None if is_valid(value) else DISAGREES

        return check

    def is_valid_output(self, value: Any, size: int) -> bool | None:
        """Whether an output of this many bytes is valid; None where the check would cost too much."""
        if size <= self.uncounted_bytes:
            return self.is_valid(value)
        with without_collector():
            return self._is_valid_output(value)

    def _is_valid_output(self, value: Any) -> bool | None:
        work = self.cost.work(size_of(value, stop_at=OUTPUT_WORK // self.cost.steps))
        if work <= self.limits.work:
            return self.is_valid(value)
        if work > OUTPUT_WORK:
            return None
        try:
            return is_valid_in_chunks(
                self.schema, value, compile_part=self.compile_part, affords=self.affords
            )
        except TooExpensive:
            return None

    def affords(self, value: Any) -> bool:
        """Whether validating a value certainly costs no more steps than a call may."""
        most = self.limits.work
        return self.cost.work(size_of(value, stop_at=most // self.cost.steps)) <= most


_COMPARED_BYTES = 2000
"""A call of this size holds too few integers beyond 64 bits for comparing each with each to take long."""


def _uncounted_bytes(cost: Cost, limits: Limits) -> int:
    """The size up to which a call needs no count: it has at most as many values, brackets and characters."""
    by_number = (
        cost.number_steps + cost.exponent_steps * EXPONENT
    ) // 2  # `1e300,` takes more than two bytes
    by_work = limits.work // (cost.steps + cost.char_steps + cost.digit_steps + by_number)
    by_matching = MATCHED_CHARS if cost.char_steps or cost.matches_keys else limits.argument_bytes
    by_comparing = _COMPARED_BYTES if cost.compares_items else limits.argument_bytes
    return min(limits.argument_bytes, by_work, by_matching, by_comparing, BRACKETS)


class Compilation(msgspec.Struct):
    """A compiled schema, or the problems that prevented it; warnings in either case."""

    compiled: CompiledSchema | None
    problems: list[Problem]
    warnings: list[Problem]


def compile_arguments(
    schema: dict[str, Any],
    *,
    by_hand: bool,
    limits: Limits,
    display: Display = SHOW_ALL,
    formats: Formats = NO_FORMATS,
) -> Compilation:
    """Compile the schema of a tool's parameters: closed and bounded."""
    try:
        inspection = inspect_schema(
            schema, field="parameters", by_hand=by_hand, limits=limits, is_arguments=True
        )
        return _compile(
            inspection, "parameters", limits, display, formats, by_hand=by_hand, closes_objects=True
        )
    except Exception as error:  # noqa: BLE001 -- a hostile schema may trip anything; that refuses it
        log_internal_error("a schema could not be compiled", error)
        return _unreadable("parameters")


def compile_output(
    schema: dict[str, Any], *, by_hand: bool, limits: Limits, formats: Formats = NO_FORMATS
) -> Compilation:
    """Compile the schema of a tool's output: as written (VAL-2), bounded."""
    try:
        inspection = inspect_schema(
            schema, field="output_schema", by_hand=by_hand, limits=limits, is_arguments=False
        )
        return _compile(
            inspection, "output_schema", limits, SHOW_ALL, formats, by_hand=by_hand, closes_objects=False
        )
    except Exception as error:  # noqa: BLE001 -- a hostile schema may trip anything; that refuses it
        log_internal_error("a schema could not be compiled", error)
        return _unreadable("output_schema")


def _unreadable(field: str) -> Compilation:
    """The refusal of a schema that made compilation fail, for example references nested too deep."""
    message = "cannot be read: it may be nested too deep through its references"
    return Compilation(None, [_problem(field, Code.SCHEMA_BROKEN, message, "write it more simply")], [])


def _compile(
    inspection: Inspection,
    field: str,
    limits: Limits,
    display: Display,
    formats: Formats,
    *,
    by_hand: bool,
    closes_objects: bool,
) -> Compilation:
    compiled = None
    if inspection.resolved is not None:
        try:
            compiled = CompiledSchema(
                inspection.resolved,
                inspection.dialect,
                limits,
                closes_objects=closes_objects,
                display=display,
                formats=formats,
            )
            if closes_objects:
                noted = inspection.problems if by_hand else inspection.warnings
                noted.extend(compiled.prepare_defaults())
        except TooCostly as error:
            inspection.problems.append(_problem(field, Code.SCHEMA_REFUSED, error.reason, error.fix))
        except Uncompilable:
            message = "does not compile: a pattern is too large, or not one that runs in linear time"
            fix = "use no look-around or back-references, and maxLength rather than large counted repeats"
            inspection.problems.append(_problem(field, Code.SCHEMA_BROKEN, message, fix))
    return Compilation(None if inspection.problems else compiled, inspection.problems, inspection.warnings)


def _problem(field: str, code: Code, message: str, fix: str) -> Problem:
    return Problem(field=field, code=code, message=message, fix=fix)
