"""Bodies around arguments that are not parsed here: the door of validation reads those, strictly."""

from typing import Any

import jiter
import msgspec

from toolkeep.errors import Code
from toolkeep.server.problems import RequestRefused
from toolkeep.server.request import unfitting


def read_raw(raw: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """A body whose arguments are not parsed; the rest of it holds no key twice."""
    try:
        body = decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise unfitting(error) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(Code.REQUEST_INVALID, "the body is not one strict JSON value") from error
    arguments = bytes(body.arguments)
    # Most bodies hold nothing else, and then nothing can stand twice.
    if not (raw.startswith(b'{"arguments":') and len(raw) == len(arguments) + 14):
        try:
            jiter.from_json(raw.replace(arguments, b"0", 1), allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError as error:
            raise RequestRefused(Code.REQUEST_INVALID, "the body is not one strict JSON value") from error
    return body
