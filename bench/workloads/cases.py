"""Made-up calls of three sizes, each with its tool as a typed function.

Nested objects are TypedDicts, so that every contestant ends with plain dicts and lists.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

from workloads.transfer import SMALL, make_transfer

LARGE_ROWS = 300


class Address(TypedDict):
    street: str
    city: str
    postcode: str
    country: str


class Item(TypedDict):
    sku: str
    title: str
    count: int
    price: float
    gift: bool


class Contact(TypedDict):
    name: str
    mail: str
    phone: str | None


def place_order(
    order_id: str,
    customer: Contact,
    deliver_to: Address,
    bill_to: Address,
    items: list[Item],
    currency: Literal["EUR", "USD", "GBP"],
    total: float,
    express: bool,
    notes: str,
    labels: list[str],
    attempt: int,
    discount: float | None = None,
    channel: Literal["web", "shop", "phone"] = "web",
) -> str:
    """Place an order.

    Args:
        order_id: Number of the order.
        customer: Who orders.
        deliver_to: Where the goods go.
        bill_to: Where the bill goes.
        items: What is ordered.
        currency: Currency of all prices.
        total: Sum of all items.
        express: Whether it is sent today.
        notes: Words for the packers.
        labels: Words to find the order by.
        attempt: How often it was tried.
        discount: Part of the total that is let off.
        channel: Where the order came in.
    """
    return "done"


class Row(TypedDict):
    id: int
    name: str
    value: float
    active: bool
    labels: list[str]


def import_rows(table: str, rows: list[Row], replace: bool = False) -> str:
    """Import rows into a table.

    Args:
        table: Table that takes the rows.
        rows: Rows to import.
        replace: Whether existing rows are replaced.
    """
    return "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One tool, one valid call of it."""

    title: str
    function: Callable[..., Any]
    raw: str


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _address(street: str) -> Address:
    return {"street": street, "city": "Oldenburg", "postcode": "26121", "country": "DE"}


def _item(number: int) -> Item:
    title = f"Box of paper clips, size {number}"
    return {"sku": f"PC-{1000 + number}", "title": title, "count": number, "price": 2.45, "gift": False}


def _row(number: int) -> Row:
    return {
        "id": number,
        "name": f"measurement {number}",
        "value": number * 1.25,
        "active": number % 2 == 0,
        "labels": ["north", "daily"],
    }


def _ignore(_: object) -> None:
    return None


CASES = (
    Case(title="small", function=make_transfer(_ignore), raw=SMALL),
    Case(
        title="medium",
        function=place_order,
        raw=_compact(
            {
                "order_id": "2026-0001742",
                "customer": {"name": "Ada Lovelace", "mail": "ada@example.org", "phone": None},
                "deliver_to": _address("Achternstrasse 12"),
                "bill_to": _address("Lange Strasse 3"),
                "items": [_item(number) for number in range(1, 7)],
                "currency": "EUR",
                "total": 51.45,
                "express": True,
                "notes": "Please leave the parcel with the neighbours on the second floor.",
                "labels": ["office", "stock", "monthly"],
                "attempt": 1,
                "channel": "shop",
            }
        ),
    ),
    Case(
        title="large",
        function=import_rows,
        raw=_compact({"table": "measurements", "rows": [_row(number) for number in range(LARGE_ROWS)]}),
    ),
)
