"""The log over HTTP: pages newest first, records whole, receipts that anybody can check."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.server.api.test_call_index import join
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep, Secret, Touches, open_keep, tool, verify_receipt
from toolkeep.server.api import audit_routes
from toolkeep.server.api.session_routes import ANY_SESSION


async def made_calls(client: Client, number: int = 3) -> list[Any]:
    return [(await client.call("add", {"a": one})).data for one in range(number)]


def test_records_come_newest_first_in_pages_that_miss_none(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        await made_calls(client)
        indexes, cursor = [], ""
        while True:
            page = (await client.get(f"/v1/audit?limit=5{cursor}")).data
            indexes += [one["index"] for one in page["items"]]
            if page["next"] is None:
                return indexes
            cursor = f"&cursor={page['next']}"

    indexes = talk(keep, act)
    assert indexes == sorted(indexes, reverse=True)
    assert indexes == list(range(len(indexes)))[::-1]
    assert len(indexes) >= 9


def test_a_page_looks_at_a_bounded_number_of_records_and_goes_on(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_routes, "SCANNED_RECORDS", 3)

    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        await ada.call("add", {"a": 1})
        await made_calls(client)
        found, cursor, pages = [], "", 0
        while True:
            page = (await ada.get(f"/v1/audit?limit=50{cursor}")).data
            found += page["items"]
            pages += 1
            if page["next"] is None:
                return found, pages
            cursor = f"&cursor={page['next']}"

    found, pages = talk(keep, act)
    assert {one["agent"] for one in found} == {"ada"}
    assert (found[0]["type"], found[-1]["type"]) == ("ToolCompleted", "ToolInvoked")
    assert pages > 3


def test_records_are_filtered(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        await client.as_agent("ada", "call").call("add", {"a": 1})
        await client.call("give_up", {})
        by = {}
        for query in ("agent=ada", "tool=give_up", "type=ToolCompleted", "status=error", "agent=nobody"):
            items = (await client.get(f"/v1/audit?{query}")).data["items"]
            by[query] = {(one["agent"], one["tool"]) for one in items}
        return by

    assert talk(keep, act) == {
        "agent=ada": {("ada", "add")},
        "tool=give_up": {("operator", "give_up")},
        "type=ToolCompleted": {("ada", "add"), ("operator", "give_up")},
        "status=error": {("operator", "give_up")},
        "agent=nobody": set(),
    }


@pytest.mark.spec("AUD-2")
def test_a_receipt_is_checked_offline_with_the_key_alone(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        (call,) = await made_calls(client, 1)
        receipt = (await client.get(f"/v1/audit/{call['leaf']}/receipt")).data
        key = (await client.get("/v1/audit/key")).data["key"]
        checkpoint = (await client.get("/v1/audit/checkpoint")).data["checkpoint"]
        verified = (await client.post("/v1/audit:verify")).data
        return call, receipt, key, checkpoint, verified

    call, receipt, key, checkpoint, verified = talk(keep, act)
    assert verify_receipt(receipt, key).record["call"] == call["call_id"]
    assert checkpoint.startswith(key.split("+")[0])
    assert (verified["is_intact"], verified["log"]) == (True, "the keep's own")


def test_a_call_is_shown_with_the_bodies_that_are_kept(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        (call,) = await made_calls(client, 1)
        secret = await client.call("sign_in", {"user": "ada", "password": "hunter2"})
        shown = await client.get(f"/v1/audit/calls/{call['call_id']}")
        hidden = await client.get(f"/v1/audit/calls/{secret.data['call_id']}")
        return shown, hidden

    shown, hidden = talk(keep, act)
    types = [one["record"]["type"] for one in shown.data["records"]]
    assert types == ["ToolInvoked", "CapabilityCheck", "PolicyDecision", "ToolCompleted"]
    assert shown.data["arguments"] == {"a": 0, "b": 1}
    assert shown.data["result"] == 1
    assert (hidden.data["arguments"], hidden.data["result"]) == (None, None)
    assert "hunter2" not in hidden.body.decode()


@pytest.mark.parametrize("path", ["/v1/audit/999999", "/v1/audit/calls/0123", "/v1/audit/999999/receipt"])
def test_what_is_not_in_the_log_is_not_there(keep: Keep, path: str) -> None:
    response = talk(keep, lambda client: client.get(path))
    assert (response.status, response.code) == (404, "ACODE-TSR-065")


def test_a_log_in_memory_has_no_proofs() -> None:
    with Keep() as keep:
        response = talk(keep, lambda client: client.get("/v1/audit/checkpoint"))
    assert (response.status, response.code) == (503, "ACODE-TSR-041")


@tool(side_effects=["FsRead"], capabilities=["fs.read"])
def peek(path: Annotated[str, Touches("fs.read")], key: Annotated[str, Secret()] = "") -> str:
    """Look at a file."""
    return path + key


@tool(side_effects=["FsRead"], capabilities=["fs.read"])
def glance(path: Annotated[str, Touches("fs.read")]) -> str:
    """Look at a file."""
    raise ValueError(f"no {path.upper()}")


@pytest.mark.spec("AUD-1", "WEB-2")
def test_a_list_says_why_calls_gave_no_result_as_far_as_its_reader_may_know(keep: Keep) -> None:
    """Not what may be a secret; and search finds the words for those alone who may read them."""
    keep.register(peek, glance)
    keep.declare_agent("ada", capabilities=["fs.read:/srv"])

    async def act(client: Client) -> Any:
        ada, auditor = client.as_agent("ada", "call"), client.as_agent("eve", "audit:read")
        await ada.call("glance", {"path": "/srv"})
        await ada.call("glance", {"path": "/etc/hosts"})
        await ada.call("peek", {"path": "/etc/passwd", "key": "hunter2"})
        await ada.call("peek", {"path": "/srv", "key": {"mine": "hunter2"}})

        async def listed(who: Client, query: str = "") -> tuple[int, list[str]]:
            found = (await who.get(f"/v1/audit/calls{query}")).data
            return found["total"], [one["reason"] for one in found["items"]]

        scanned = [await listed(one, "?text=/ETC/hosts") for one in (auditor, ada)]
        await asyncio.to_thread(join)
        asked = ("", "?text=/ETC/hosts", "?text=no+/SRV", "?text=hunter2", "?limit=1&text=/etc/hosts")
        return scanned, [[await listed(who, query) for query in asked] for who in (auditor, ada)]

    scanned, (whole, own) = talk(keep, act)
    grant, failed = "no grant for fs.read of '/etc/hosts'", "ValueError: no /SRV"
    hidden = ["wrong type", "an argument names something that may not be touched"]
    every = [*hidden, grant, failed]
    assert whole == [(4, every), (1, [grant]), (1, [failed]), (0, []), (1, [grant])]
    titles = ["wrong type", "not permitted", "not permitted", "tool failed"]
    assert own == [(4, titles), *[(0, [])] * 4]
    assert scanned == [(1, [grant]), (0, [])]


def test_reasons_in_a_list_count_as_shown_to_a_caller_that_makes_calls(tmp_path: Path) -> None:
    """A second token of the agent reads what a tool said to another session."""

    async def act(client: Client) -> list[bool]:
        reader = client.as_agent("ada", "call", "audit:read")
        await client.as_agent("bob", "call").call("glance", {"path": "/srv"})
        opened = []
        for path in ("/v1/sessions", "/v1/audit/calls?agent=nobody", "/v1/audit/calls"):
            assert (await reader.get(path)).status == 200
            assert keep.authorizer.flow is not None
            opened.append(keep.authorizer.flow.session_of("ada", "", caller=ANY_SESSION).state.opened)
        return opened

    agents: dict[str, Any] = {"ada": {}, "bob": {"capabilities": ["fs.read:/srv"]}}
    with open_keep(project=tmp_path, built_in=False, flow={"policy": "standard"}, agents=agents) as keep:
        keep.register(glance)
        assert talk(keep, act) == [False, False, True]
