"""A safe schema becomes a validator, once, at registration (VAL-4).

In comes a schema as a definition holds it; out goes a `CompiledSchema`, which any number of threads may
use, or `Problem`s. Whatever goes wrong while compiling is a refusal, never a pass.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from toolkeep.errors import Code, Problem
from toolkeep.limits import (
    BRACKETS,
    MATCHED_CHARS,
    OUTPUT_WORK,
    PATTERN_BYTES,
    PATTERN_CACHE_BYTES,
    Limits,
)
from toolkeep.validation.closing import InPlace, close_objects, close_part, guard_matching, turns_matching
from toolkeep.validation.cost import Cost, TooCostly, measure
from toolkeep.validation.dialect import Dialect
from toolkeep.validation.direct import Decode, Inexpressible, make_decoder
from toolkeep.validation.filling import FillingPlan
from toolkeep.validation.finish import Finisher, make_finisher
from toolkeep.validation.guard import Inspection, inspect_schema
from toolkeep.validation.hint import signature
from toolkeep.validation.keywords import every_schema
from toolkeep.validation.locate import Locator
from toolkeep.validation.members import Members, make_members
from toolkeep.validation.misfits import DISAGREES, TOO_LARGE, Check, Why, default_problem, misfitting_values
from toolkeep.validation.mishap import log_mishap
from toolkeep.validation.openness import is_open
from toolkeep.validation.portions import Unaffordable, is_valid_in_portions
from toolkeep.validation.secrecy import SHOW_ALL, Display, Secrecy
from toolkeep.validation.size import EXPONENT, size_of, without_collector

ENGINE_OPTIONS: Final[dict[str, Any]] = {
    "offline": True,  # without it a $ref to http: or file: is fetched
    "validate_formats": True,
    "ignore_unknown_formats": True,
    "mask": "value",  # the engine copies values into its messages otherwise; ours come from the call itself
    "pattern_options": jsonschema_rs.RegexOptions(
        size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_CACHE_BYTES
    ),
}
"""How every schema of a tool is compiled. The regular expressions run in linear time."""

ENGINES: Final = {
    Dialect.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
    Dialect.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Dialect.DRAFT_07: jsonschema_rs.Draft201909Validator,  # it was upgraded
}


Formats = Mapping[str, Callable[[str], bool]]
"""Checks of a host's own for `format`, by name."""

NO_FORMATS: Final[Formats] = {}


def guarded_formats(formats: Formats) -> Formats:
    """The checks as the engine may call them: on short text only, and whatever they do is a verdict."""
    return {name: _guarded(check) for name, check in formats.items()}


def _guarded(check: Callable[[str], bool]) -> Callable[[str], bool]:
    def verdict(text: str) -> bool:
        try:
            return len(text) <= MATCHED_CHARS and check(text) is True
        except Exception as error:  # noqa: BLE001 -- a check that breaks has not said yes
            log_mishap("a format check broke", error)
            return False

    return verdict


class CompiledSchema:
    """A validator with everything that the door and the report need to know about its schema."""

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
        """As written, references resolved; explains, never decides."""
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
        """Whether no string of a call may be longer than a pattern is tried on."""
        self.members: Members | None = None if self.is_open else make_members(in_place)
        self.never_applied: frozenset[int] = frozenset()
        """The ids of the parts whose defaults are not applied."""
        self.finisher: Finisher | None = None
        self.filling: FillingPlan | None = None
        """What its defaults add, where that depends on how many objects a call holds."""
        self.decode: Decode | None = self._decode_first if self.members is not None else None
        """Reads and checks a text in one go; None where the schema says more than types can."""
        self.filler: Finisher | None = None
        """The finisher of what `decode` has read."""
        self.locator = Locator(schema)
        self.secrecy = Secrecy(self.locator, display)
        self._hint: str | None = None
        self._parts: dict[int, jsonschema_rs.Validator] = {}
        self.uncounted_bytes = _uncounted_bytes(self.cost, limits)
        """Arguments up to this size cannot exceed any limit on size or work."""

    def _decode_first(self, raw: bytes) -> dict[str, Any]:
        """Make the decoder when it is first needed: most tools of a keep are never called."""
        decode = make_decoder(self.schema)
        if decode is None:
            self.decode = None
            raise Inexpressible
        self.filler = make_finisher(self.schema, never_applied=self.never_applied, mends_integers=False)
        self.decode = decode
        return decode(raw)

    def prepare_defaults(self) -> list[Problem]:
        """Make the finisher; what is wrong with the defaults, which are then never applied."""
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
            # An object takes two bytes at the least.
            self.uncounted_bytes = min(self.uncounted_bytes, 2 * plan.uncounted_objects)
        return problems

    def _plan_filling(self) -> FillingPlan | None:
        self.finisher = make_finisher(self.schema, never_applied=self.never_applied)
        return None if self.finisher is None else FillingPlan(self.finisher, self.limits)

    def hint(self, name: str) -> str:
        """The signature in one line, worked out when first asked for."""
        if self._hint is None:
            self._hint = signature(name, self.schema, is_sensitive=self.secrecy.hides_all)
        return self._hint

    def part(self, part: dict[str, Any]) -> jsonschema_rs.Validator:
        """A validator for the values at one place of the schema, made when first asked for."""
        if id(part) not in self._parts:
            self._parts[id(part)] = self.compile_part(part)
        return self._parts[id(part)]

    def compile_part(self, part: dict[str, Any]) -> jsonschema_rs.Validator:
        """The same, made anew."""
        guard = close_part if self.closes_objects else guard_matching
        return compile_schema(guard(self.schema, part), self.dialect, self._formats)

    def check_of(self, part: dict[str, Any]) -> Check:
        """What is wrong with a value at one place; one that would be too much work in a call is, too."""
        is_valid = self.compile_part(part).is_valid

        def check(value: Any) -> Why | None:
            if not self.affords(value):
                return TOO_LARGE
            return None if is_valid(value) else DISAGREES

        return check

    def is_valid_output(self, value: Any, size: int) -> bool | None:
        """Whether an output of so many bytes is valid; None where checking it would take too much work."""
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
            return is_valid_in_portions(self, value)
        except Unaffordable:
            return None

    def affords(self, value: Any) -> bool:
        """Whether checking a value surely takes no more steps than a call may cost."""
        most = self.limits.work
        return self.cost.work(size_of(value, stop_at=most // self.cost.steps)) <= most


_COMPARED_BYTES = 2000
"""A call of so many bytes holds too few integers beyond 64 bits for comparing them to take long."""


def _uncounted_bytes(cost: Cost, limits: Limits) -> int:
    """A call of so many bytes has at most as many values, brackets and characters."""
    by_number = (
        cost.number_steps + cost.exponent_steps * EXPONENT
    ) // 2  # `1e300,` takes more than two bytes
    by_work = limits.work // (cost.steps + cost.char_steps + cost.digit_steps + by_number)
    by_matching = MATCHED_CHARS if cost.char_steps or cost.matches_keys else limits.argument_bytes
    by_comparing = _COMPARED_BYTES if cost.compares_items else limits.argument_bytes
    return min(limits.argument_bytes, by_work, by_matching, by_comparing, BRACKETS)


def compile_schema(
    schema: dict[str, Any], dialect: Dialect, formats: Formats = NO_FORMATS
) -> jsonschema_rs.Validator:
    """The engine's validator; `Uncompilable` where it makes none, for whatever reason."""
    options = {**ENGINE_OPTIONS, "formats": dict(formats)} if formats else ENGINE_OPTIONS
    try:
        return ENGINES[dialect](schema, **options)
    except Exception as error:
        raise Uncompilable from error  # some schemas make the engine panic; none of them is a pass


class Uncompilable(ValueError):
    """The engine cannot make a validator of a schema."""


class Compilation(msgspec.Struct):
    """A compiled schema or the reasons why there is none, and the warnings in either case."""

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
    """The schema of a tool's parameters: closed, bounded, compiled."""
    try:
        inspection = inspect_schema(
            schema, field="parameters", by_hand=by_hand, limits=limits, is_arguments=True
        )
        return _compile(
            inspection, "parameters", limits, display, formats, by_hand=by_hand, closes_objects=True
        )
    except Exception as error:  # noqa: BLE001 -- whatever a hostile schema trips is a refusal
        log_mishap("a schema could not be compiled", error)
        return _unreadable("parameters")


def compile_output(
    schema: dict[str, Any], *, by_hand: bool, limits: Limits, formats: Formats = NO_FORMATS
) -> Compilation:
    """The schema of a tool's output: taken as written (VAL-2), bounded, compiled."""
    try:
        inspection = inspect_schema(
            schema, field="output_schema", by_hand=by_hand, limits=limits, is_arguments=False
        )
        return _compile(
            inspection, "output_schema", limits, SHOW_ALL, formats, by_hand=by_hand, closes_objects=False
        )
    except Exception as error:  # noqa: BLE001 -- whatever a hostile schema trips is a refusal
        log_mishap("a schema could not be compiled", error)
        return _unreadable("output_schema")


def _unreadable(field: str) -> Compilation:
    """A schema that something stumbled over, references nested too deep for instance."""
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
            inspection.problems.append(_problem(field, Code.SCHEMA_REFUSED, error.reason, error.mend))
        except Uncompilable:
            message = "does not compile: a pattern is too large, or not one that runs in linear time"
            mend = "use no look-around or back-references, and maxLength rather than large counted repeats"
            inspection.problems.append(_problem(field, Code.SCHEMA_BROKEN, message, mend))
    return Compilation(None if inspection.problems else compiled, inspection.problems, inspection.warnings)


def _problem(field: str, code: Code, message: str, mend: str) -> Problem:
    return Problem(field=field, code=code, message=message, mend=mend)
