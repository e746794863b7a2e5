"""The tool of the strictness table, and its calls: bad ones, broken text, and one good one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

FAULTY = ("account", "amount", "urgent", "mode", "memo")
"""The properties at fault in the call with five faults."""

SMALL = '{"account":"DE8937040044","amount":42,"urgent":true,"tags":["rent"]}'
ONE_FAULT = '{"account":"DE8937040044","amount":42,"urgent":true,"mode":"FAST"}'
FIVE_FAULTS = '{"account":123,"amount":"lots","urgent":"perhaps","mode":"FAST","memo":"hi"}'


def make_transfer(record: Callable[[dict[str, Any]], object]) -> Callable[..., str]:
    """The tool, telling `record` what reaches it."""

    def transfer(
        account: str,
        amount: int,
        urgent: bool = False,
        tags: list[str] | None = None,
        mode: Literal["fast", "safe"] = "fast",
    ) -> str:
        """Transfer money to an account.

        Args:
            account: Account that receives the money.
            amount: Whole euros to transfer.
            urgent: Whether it goes out today.
            tags: Words to find the transfer by.
            mode: Fast, or safe with a second check.
        """
        record({"account": account, "amount": amount, "urgent": urgent, "tags": tags, "mode": mode})
        return "done"

    return transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, and the property to look at when it is let through."""

    title: str
    raw: str
    shows: str
    is_good: bool = False
    faults: tuple[str, ...] = ()
    """The names to count in the refusal; empty where one fault is all there is."""


def _amount(title: str, amount: str) -> Call:
    return Call(title=title, raw=f'{{"account":"a","amount":{amount}}}', shows="amount")


def _with(title: str, shows: str, value: str) -> Call:
    return Call(title=title, raw=f'{{"account":"a","amount":42,"{shows}":{value}}}', shows=shows)


def _account(title: str, account: str) -> Call:
    return Call(title=title, raw=f'{{"account":{account},"amount":42}}', shows="account")


CALLS = (
    _amount('amount "42"', '"42"'),
    _amount("amount 42.5", "42.5"),
    _amount("amount true", "true"),
    _with('urgent "yes"', "urgent", '"yes"'),
    _with("urgent 1", "urgent", "1"),
    _with('urgent "false"', "urgent", '"false"'),
    _account("account 123", "123"),
    _account("account null", "null"),
    _with("unknown property", "memo", '"hi"'),
    _with("tags '[\"a\"]' as text", "tags", '"[\\"a\\"]"'),
    _with('tags "a"', "tags", '"a"'),
    _with('mode "FAST"', "mode", '"FAST"'),
    Call(title="amount missing", raw='{"account":"a"}', shows="amount"),
    Call(title="five faults at once", raw=FIVE_FAULTS, shows="amount", faults=FAULTY),
    Call(title="text: duplicate keys", raw='{"account":"a","amount":1,"amount":1000}', shows="amount"),
    _amount("text: NaN", "NaN"),
    _amount("text: 1e400", "1e400"),
    _account("text: lone surrogate", '"\\ud800"'),
    Call(
        title="text: 100,000 brackets",
        raw='{"account":"a","amount":42,"tags":' + "[" * 100_000,
        shows="tags",
    ),
    Call(title="good: amount 42.0", raw='{"account":"a","amount":42.0}', shows="amount", is_good=True),
)
