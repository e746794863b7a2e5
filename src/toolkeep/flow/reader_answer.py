"""Labels of what the host's `reader` answers about a text: from the schema that the model gave (FLO-6).

The answer is made of text from outside. Numbers, truth values, words that the schema lists and strings that
match the form of their `format` are shown; any other string is a reference, whatever the schema says.
"""

from collections.abc import Iterator
from typing import Any, Final

from toolkeep.definitions.vocabulary import Form
from toolkeep.flow.flow_plan import WORD_CHARS
from toolkeep.flow.result_reader import ResultReader
from toolkeep.json_values.pointers import Place, pointer_at

ANSWER: Final = "answer"
"""The property of the result that holds the answer."""
_DEPTH: Final = 6
_PLACES: Final = 100
"""Properties and items of a schema that are looked at."""
_FORMS: Final = {
    "email": Form.EMAIL,
    "uri": Form.URL,
    "url": Form.URL,
    "date": Form.DATE,
    "date-time": Form.DATE,
    "iban": Form.IBAN,
    "id": Form.ID,
    "number": Form.NUMBER,
}


def reader_of_answer(schema: Any) -> ResultReader:
    """Reads the result of `ask_reader` for a schema; what it does not understand is text."""
    labels: dict[str, Any] = {}
    words = {ANSWER}
    for number, (at, part) in enumerate(_parts(schema)):
        if number >= _PLACES:
            break
        properties, listed, form = part.get("properties"), part.get("enum"), part.get("format")
        words.update(properties if isinstance(properties, dict) else ())
        words.update(one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, str))
        if isinstance(form, str) and form in _FORMS:
            labels[pointer_at(at)] = {"outside": _FORMS[form].value}
    return ResultReader(labels, frozenset(word for word in words if len(word) <= WORD_CHARS))


def _parts(schema: Any) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The parts of a schema, with the place in the result that each describes."""
    waiting: list[tuple[Place, Any, int]] = [((None, ANSWER), schema, 0)]
    while waiting:
        at, part, depth = waiting.pop()
        if not isinstance(part, dict) or depth > _DEPTH:
            continue
        yield at, part
        properties = part.get("properties")
        for key, inside in (properties if isinstance(properties, dict) else {}).items():
            waiting.append(((at, key), inside, depth + 1))
        waiting.append(((at, "*"), part.get("items"), depth + 1))
