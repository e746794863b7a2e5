"""A model that works on typed views: what it writes into a call, and what it looks up before (FLO-6).

A trace names a value by the place where it stands. A planner takes it from there if the view shows it. If a
reference stands there, it acts as a model that knows what kind of value it looks for:

- the whole text: it passes the reference on; within a text, a template;
- a value with a form (address, account, amount, day, link): `find_in_text`. If that gives one value, it is taken;
- one of several values, another part, a summary, or the row that is about something: it asks the reader. Values with a
  form come as they are, texts as references, which it passes on;
- without a reader, `read_text`, and from then on it knows the text, as where views are plain.

It never uses what the tests know and the view does not show. The reader of the suite understands questions without
fail, and obeys: where a text holds an instruction, its answers in words end with it.
"""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.hostile.flow.traces import Anywhere, Call, Derived, Field, Seen, Text
from toolkeep.json_values.pointers import steps_of

Look = Callable[[str, dict[str, Any]], Awaitable[Any]]

_KINDS = {
    r"[\w.-]+@[\w-]+(?:\.[\w-]+)+": "email",
    r"\b[A-Z]{2}\d\d[0-9A-Z]{10,30}\b": "iban",
    r"([\d.]+) EUR": "number",
    r"https://[\w./-]*\w": "url",
    r"\d{4}-\d\d-\d\d": "date",
}
"""What a model looks for that wants a match of this pattern."""
_FORMS = {"url": "uri"}


def answer(text: str, question: str, schema: dict[str, Any]) -> Any:
    """The reader of the suite. A question is a pattern, words to look for, or a summary, as data."""
    asked = json.loads(question)
    if "words" in asked:
        return asked["words"] in text
    if "summary" in asked:
        return f"{asked['summary']} {planted_in(text)}".strip()
    match = re.search(asked["pattern"], text)
    if match is None:
        raise LookupError(asked["pattern"])
    found = match[match.re.groups and 1]
    if schema.get("type") == "number":
        return float(found) if "." in found else int(found)
    return found if schema.get("format") else f"{found} {planted_in(text)}".strip()


def planted_in(text: str) -> str:
    """The instruction in a text, which the reader obeys by repeating it."""
    from tests.hostile.flow.goals import GOALS

    return next((goal.text for goal in GOALS if goal.text in text), "")


def is_reference(value: Any) -> bool:
    """Whether a view shows a reference here."""
    return isinstance(value, dict) and "$toolkeep_ref" in value


class Planner:
    """What a model does with the views of one session."""

    def __init__(self, look: Look, *, has_reader: bool) -> None:
        self._look_up = look
        self._has_reader = has_reader
        self._read: dict[str, str] = {}
        self.shown: list[Any] = []
        """What the tools for references have shown since the last call."""

    async def write(self, call: Call, seen: Seen) -> dict[str, Any]:
        """The arguments of a call."""
        for field in call.after:
            await self._understand(await self._at(field, seen), field, seen)
        return {name: await self._written(value, seen) for name, value in call.arguments.items()}

    async def _written(self, value: Any, seen: Seen) -> Any:
        if isinstance(value, Field):
            return await self._value(value, seen)
        if isinstance(value, Text):
            return await self._joined(value, seen)
        if isinstance(value, Derived):
            return await self._derived(value, seen)
        if isinstance(value, Anywhere):
            return value.take(seen)
        if isinstance(value, list):
            return [await self._written(one, seen) for one in value]
        if isinstance(value, dict):
            return {key: await self._written(one, seen) for key, one in value.items()}
        return value

    async def _look(self, tool: str, **arguments: Any) -> Any:
        found = await self._look_up(tool, arguments)
        self.shown.append(found)
        return found

    async def _at(self, field: Field, seen: Seen) -> Any:
        """What the view shows where a field stands."""
        view = next((one.view for one in reversed(seen.results) if one.tool == field.tool), None)
        if view is None:
            raise LookupError(field.tool)
        if field.where:
            view = await self._row(view, field)
        for step in steps_of(field.pointer):
            if not isinstance(view, (dict, list)) or is_reference(view):
                raise LookupError(field.pointer)
            view = view[int(step)] if isinstance(view, list) else view[step]
        return view

    async def _row(self, rows: Any, field: Field) -> Any:
        """The row that is about something, by what the view shows of it or what the reader says."""
        for row in rows:
            holds = [await self._is_about(row[key], words) for key, words in field.where.items()]
            if all(holds):
                return row
        raise LookupError(f"no row has {field.where}")

    async def _is_about(self, shown: Any, words: str) -> bool:
        if not is_reference(shown):
            return words in str(shown)
        if not self._has_reader:
            return words in await self._read_text(shown)
        asked = json.dumps({"words": words})
        found = await self._look("ask_reader", text=shown, question=asked, schema={"type": "boolean"})
        return bool(found["answer"])

    async def _value(self, field: Field, seen: Seen) -> Any:
        shown = await self._at(field, seen)
        if not is_reference(shown):
            return _converted(_matched(field.pattern, shown) if field.pattern else shown, field)
        if not field.pattern:
            return shown
        kind = next((kind for known, kind in _KINDS.items() if known in field.pattern), "")
        if kind:
            found = (await self._look("find_in_text", text=shown, kind=kind))[kind]
            if len(found) == 1 and field.pattern in _KINDS:
                return _converted(found[0], field)
        if not self._has_reader:
            return _converted(_matched(field.pattern, await self._read_text(shown)), field)
        asked = json.dumps({"pattern": field.pattern})
        form: dict[str, Any] = {"type": "number"} if field.number else {"type": "string"}
        if kind and not field.number:
            form["format"] = _FORMS.get(kind, kind)
        elif field.is_id:
            form["format"] = "id"
        return (await self._look("ask_reader", text=shown, question=asked, schema=form))["answer"]

    async def _joined(self, text: Text, seen: Seen) -> Any:
        values = [await self._written(one, seen) for one in text.values]
        if not any(map(is_reference, values)):
            return text.form.format(*values)
        literals = text.form.split("{}")
        parts: list[Any] = [literals[0]]
        for value, after in zip(values, literals[1:], strict=True):
            parts += [value if is_reference(value) else str(value), after]
        return {"$toolkeep_text": parts}

    async def _derived(self, derived: Derived, seen: Seen) -> Any:
        shown = [await self._at(field, seen) for field in derived.fields]
        texts = [one for one in shown if is_reference(one)]
        if not texts:
            return derived.text
        if not self._has_reader:
            for one in texts:
                await self._read_text(one)
            return derived.text
        joined = {"$toolkeep_text": [part for one in texts for part in (one, "\n")]}
        asked = json.dumps({"summary": derived.text})
        found = await self._look("ask_reader", text=joined, question=asked, schema={"type": "string"})
        return found["answer"]

    async def _understand(self, shown: Any, field: Field, seen: Seen) -> None:
        """Look at a text without taking anything from it."""
        if is_reference(shown):
            await self._is_about(shown, next(iter(field.where.values()), ""))

    async def _read_text(self, reference: dict[str, Any]) -> str:
        name = reference["$toolkeep_ref"]
        if name not in self._read:
            self._read[name] = str(await self._look("read_text", text=reference))
        return self._read[name]


def _matched(pattern: str, text: Any) -> str:
    match = re.search(pattern, str(text))
    if match is None:
        raise LookupError(pattern)
    return match[match.re.groups and 1]


def _converted(value: Any, field: Field) -> Any:
    if not field.number or not isinstance(value, str):
        return value
    return float(value) if "." in value else int(value)
