"""The timeline of calls: filters keep calls whole, and a call says why it has no arguments."""

import csv
import html
import io
import json
import re
from typing import Annotated, Any, Literal

import pytest

from tests.server.web.test_app import Visitor, visit
from toolkeep import Answer, Keep, Question, Secret, ToolFailed, open_keep, tool
from toolkeep.audit.findings import Finding, Kind, Report
from toolkeep.limits import BODY_ARGUMENT_BYTES
from toolkeep.server.api import audit_routes
from toolkeep.server.web.static_files import Assets
from toolkeep.server.web.templates_env import Renderer


def rows(text: str) -> list[tuple[str, str]]:
    """Tool and outcome of the calls that a page lists, in its order."""
    found = re.findall(r'<div class="tr" role="row">(.*?)</div>', text, re.DOTALL)
    named = [re.search(r'class="tool-name"[^>]*>([^<]*)<', row) for row in found]
    ended = [re.search(r'class="chip [^"]*">([^<]*)<', row) for row in found]
    return [(a[1], b[1]) for a, b in zip(named, ended, strict=True) if a and b]


async def timeline(visitor: Visitor, query: str = "") -> list[tuple[str, str]]:
    """All that a filter finds, page after page, as a browser asks for them."""
    found: list[tuple[str, str]] = []
    path = f"/ui/audit{query}"
    while path:
        text = (await visitor.get(path, **{"hx-request": "true"})).body.decode()
        found += rows(text)
        more = re.search(r'class="tr more"[^>]*hx-get="([^"]*)"', text)
        path = html.unescape(more[1]) if more else ""
    return found


def calls(keep: Keep) -> None:
    """One call that works, one that policy denies, one refused at validation."""
    keep.use_policies(
        '@id("all") permit (principal, action, resource);'
        '@id("no") forbid (principal, action == Action::"call", resource == Tool::"write_down");'
    )
    made = keep.call_sync("add", {"a": 1}, agent="operator", session="desk-7", conversation="talk")
    assert made.status == "ok"
    assert keep.call_sync("write_down", {"text": "x"}, agent="operator").status == "error"
    assert keep.call_sync("add", {"a": "one"}, agent="operator").status == "error"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [("add", "refused"), ("write_down", "refused"), ("add", "succeeded")]),
        ("?type=ToolInvoked", [("add", "refused"), ("write_down", "refused"), ("add", "succeeded")]),
        ("?type=PolicyDecision", [("write_down", "refused"), ("add", "succeeded")]),
        ("?status=allow", [("add", "succeeded")]),
        ("?status=deny", [("write_down", "refused")]),
        ("?status=ok", [("add", "succeeded")]),
        ("?status=error", []),
        ("?status=refused", [("add", "refused"), ("write_down", "refused")]),
        ("?status=refused&tool=add", [("add", "refused")]),
        ("?status=deny&tool=add", []),
        ("?code=ACODE-TSR-004", [("add", "refused")]),
        ("?text=PERMITTED", [("write_down", "refused")]),
        ("?text=desk-7&hours=1", [("add", "succeeded")]),
        ("?session=desk-7&conversation=talk", [("add", "succeeded")]),
        ("?session=desk", []),
        ("?slower_ms=600000", []),
        ("?since=2026-01-01T00:00:00Z&status=ok", [("add", "succeeded")]),
        ("?until=2026-01-01T01:00:00%2B01:00", []),
        ("?slower_ms=0&status=ok", [("add", "succeeded")]),
        ("?ran_ms=0", [("add", "succeeded")]),
        ("?ran_ms=0.001&status=ok", [("add", "succeeded")]),
        ("?ran_ms=600000", []),
        ("?policy=all", [("add", "succeeded")]),
        ("?policy=no", [("write_down", "refused")]),
    ],
)
@pytest.mark.parametrize("shown", [40, 1])
@pytest.mark.spec("WEB-2")
def test_a_filter_shows_whole_calls_with_the_outcome_that_they_had(
    keep: Keep, query: str, expected: list[tuple[str, str]], shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.server.web.audit_page._SHOWN", shown)
    calls(keep)
    assert visit(keep, lambda visitor: timeline(visitor, query)) == expected


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize(("calls", "folded"), [(3, []), (4, ["4"])])
def test_calls_that_went_alike_one_after_the_other_are_one_line_of_a_session(
    keep: Keep, calls: int, folded: list[str]
) -> None:
    keep.register(fail)
    for name in ("fail", *["add"] * calls, "fail", "add"):
        arguments = {"a": 1} if name == "add" else {}
        keep.call_sync(name, arguments, agent="operator", session="s")

    async def act(visitor: Visitor) -> str:
        return (await visitor.get("/ui/sessions/show?agent=operator&session=s")).body.decode()

    page = visit(keep, act)
    assert re.findall(r"add</strong> × (\d+)", page) == folded
    assert page.count('href="/ui/calls/') == calls + 3


@pytest.mark.spec("WEB-2")
def test_list_filter_and_the_page_of_a_call_use_the_same_words(keep: Keep) -> None:
    for _ in range(2):
        keep.call_sync("add", {"a": 1}, agent="operator", idempotency_key="once")
    keep.register(fail)
    keep.call_sync("fail", {}, agent="operator", session="s")

    async def act(visitor: Visitor) -> list[Any]:
        page = (await visitor.get("/ui/audit")).body.decode()
        session = (await visitor.get("/ui/sessions/show?agent=operator&session=s")).body.decode()
        return [page, session, await timeline(visitor, "?status=repeated"), await timeline(visitor)]

    page, session, repeated, every = visit(keep, act)
    (choices,) = re.findall(r'<select id="by-status" name="status".*?</select>', page)
    words = re.findall(r"<option[^>]*>([^<]*)<", choices)
    assert words[1:] == [
        "succeeded", "failed", "refused", "refused or failed", "unknown", "pending at its client", "repeated", "under way",
        "allowed by policy", "denied by policy"]  # fmt: skip
    assert repeated == [("add", "repeated")]
    assert every == [("fail", "failed"), ("add", "repeated"), ("add", "succeeded")]
    assert '<span class="chip bad">failed</span>' in session


@pytest.mark.spec("WEB-2")
def test_what_is_filtered_is_exported_and_listed_over_http(keep: Keep) -> None:
    calls(keep)
    keep.call_sync("=cmd()", {}, agent="operator")

    async def act(visitor: Visitor) -> list[Any]:
        query = "?status=refused&hours=1"
        return [
            (await visitor.get(f"/ui/audit/export{query}&format=csv")).body.decode(),
            (await visitor.get(f"/ui/audit/export{query}&format=jsonl")).body.decode(),
            (await visitor.operator.get(f"/v1/audit/calls{query}")).data,
            (await visitor.operator.get("/v1/audit/calls?hours=x")).status,
            (await visitor.get(f"/ui/audit{query}&tool=add")).body.decode(),
        ]

    table, lines, listed, status, page = visit(keep, act)
    read = list(csv.DictReader(io.StringIO(table)))
    assert [row["tool"] for row in read] == ["'=cmd()", "add", "write_down"]
    assert [json.loads(line) for line in lines.splitlines()] == listed["items"]
    assert [(one["tool"], one["codes"]) for one in listed["items"][1:]] == [
        ("add", ["ACODE-TSR-004"]),
        ("write_down", ["ACODE-TSR-027"]),
    ]
    assert (status, listed["next"]) == (400, None)
    assert 'value="refused" selected' in page
    assert "format=csv&amp;agent=" not in page


@pytest.mark.parametrize("scanned", [5_000, 7, 5])
def test_calls_that_overlap_are_shown_once_and_whole(
    keep: Keep, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_routes, "SCANNED_RECORDS", scanned)
    monkeypatch.setattr("toolkeep.server.web.audit_page._SHOWN", 1)

    @tool(danger="safe", side_effects=["DbWrite"], capabilities=["db.write:notes"])
    async def around() -> str:
        """Call another tool meanwhile."""
        return str((await keep.call("add", {"a": 1}, agent="operator")).value)

    keep.register(around)
    assert keep.call_sync("around", {}, agent="operator").status == "ok"
    assert visit(keep, timeline) == [("around", "succeeded"), ("add", "succeeded")]


@tool(side_effects=[])
async def fail() -> None:
    """Fail."""
    raise ToolFailed("no")


@tool(side_effects=[])
async def take_secret(key: Annotated[str, Secret()]) -> int:
    """Take a secret.

    Args:
        key: The secret.
    """
    return len(key)


@tool(side_effects=[])
async def take_text(text: str) -> int:
    """Take a text.

    Args:
        text: The text.
    """
    return len(text)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("no_such_tool", None, "There were none, or they could not be read."),
        ("take_secret", {"key": "hunter2"}, "Not kept: the tool takes secrets."),
        ("take_text", {"text": "x" * BODY_ARGUMENT_BYTES}, "Not kept: they are larger than 64 KiB."),
    ],
)
def test_a_call_says_why_it_has_no_arguments(
    keep: Keep, name: str, arguments: dict[str, Any], said: str
) -> None:
    keep.register(take_secret, take_text)
    made = keep.call_sync(name, arguments, agent="operator")

    async def act(visitor: Visitor) -> str:
        return (await visitor.get(f"/ui/calls/{made.call_id}")).body.decode()

    assert said in visit(keep, act)


@pytest.mark.spec("WEB-2")
def test_a_refused_call_says_why_and_offers_what_to_do_next(keep: Keep) -> None:
    """Its arguments and its text are there, to explain, to try again and to copy; a secret is not."""
    keep.register(take_secret)
    made = keep.call_sync("add", {"a": "o'ne"}, agent="operator", session="desk", conversation="talk")
    hidden = keep.call_sync("take_secret", {"key": "hunter2", "more": "hunter2"}, agent="operator")

    async def act(visitor: Visitor) -> tuple[str, str, Any]:
        shown = [(await visitor.get(f"/ui/calls/{one.call_id}")).body.decode() for one in (made, hidden)]
        over_http = await visitor.operator.get(f"/v1/audit/calls/{made.call_id}")
        return html.unescape(shown[0]), html.unescape(shown[1]), over_http.data

    page, secret, said = visit(keep, act)
    sentence = (
        "operator called add, but its arguments are not valid at /a: 'a' must be an integer, got string."
    )
    assert (said["outcome"], said["sentence"], said["arguments"]) == ("refused", sentence, {"a": "o'ne"})
    assert said["remedy"] == "Send an integer."
    assert said["refusal"] == made.text
    assert [one["stage"] for one in said["stages"]] == ["admit", "validate"]
    for text in (
        sentence,
        "Send an integer.",
        made.text,
        ">Explain<",
        ">Try again as operator<",
        "<h3>Validation</h3>",
    ):
        assert text in page
    assert """-d '{"arguments": {"a": "o'"'"'ne"}, "session": "desk", "conversation": "talk"}'""" in page
    assert "Bearer $TOOLKEEP_TOKEN" in page
    assert ("hunter2" in secret, "described by its type and length" in secret) == (False, True)
    assert (">Try again as" in secret, "Copy as curl" in secret) == (False, False)


def test_a_capability_that_is_missing_is_no_passed_check(keep: Keep) -> None:
    keep.register(look)
    made = keep.call_sync("look", {}, agent="operator")
    shown = visit(keep, lambda visitor: visitor.get(f"/ui/calls/{made.call_id}")).body.decode()
    assert re.findall(r'<span class="dot([^"]*)">', shown) == [" faint", "", " warn"]


@tool(side_effects=["FsRead"], capabilities=["fs.read:/srv"])
def look() -> None:
    """Look around."""


@tool(side_effects=["None"])
def misbehave(how: str) -> int:
    """Fail.

    Args:
        how: With which text.
    """
    raise ValueError(f"<script>{how}</script>")


def test_why_a_tool_failed_is_shown_as_text_to_who_may_read_the_log(keep: Keep) -> None:
    keep.register(misbehave)
    with open_keep(built_in=False) as other:  # as another process of the project has one
        other.register(misbehave)
        made = other.call_sync("misbehave", {"how": "x"}, agent="operator")

    async def act(visitor: Visitor) -> list[str]:
        form = {"act": "call", "mode": "json", "text": '{"how":"x"}'}
        shown = [await visitor.get(f"/ui/calls/{made.call_id}")]
        shown.append(await visitor.post("/ui/tools/misbehave:try", form))
        caller = Visitor(visitor.operator, visitor.codes)
        token = visitor.operator.tokens.make("caller", ["call", "tools:read"], agent="operator").text
        await caller.sign_in(token=token)
        await caller.open_tab()
        shown.append(await caller.post("/ui/tools/misbehave:try", form))
        agent = visitor.operator.as_agent("operator", "call")
        shown.append(await agent.get(f"/v1/audit/calls/{made.call_id}"))
        return [one.body.decode() for one in shown]

    *operator, caller, over_http = visit(keep, act)
    for page in operator:
        assert "ValueError: &lt;script&gt;x&lt;/script&gt;" in page
    assert ("failed unexpectedly" in caller, "ValueError" in caller) == (True, False)
    assert ('"diagnosis_hash"' in over_http, "ValueError" in over_http) == (True, False)


@pytest.mark.parametrize(
    ("verdict", "title"),
    [("approve", "Approved by ada"), ("deny", "Denied by ada"), ("", "Nobody approved it")],
)
def test_a_call_says_who_answered_and_when_it_was_asked_for(
    verdict: Literal["approve", "deny", ""], title: str
) -> None:
    async def approver(question: Question) -> Answer | None:
        return Answer(verdict=verdict, approver="ada", way="terminal") if verdict else None

    with open_keep(built_in=False, approver=approver) as keep:
        keep.register(send_away)
        made = keep.call_sync("send_away", {}, agent="operator")

        async def act(visitor: Visitor) -> tuple[str, Any]:
            shown = (await visitor.get(f"/ui/calls/{made.call_id}")).body.decode()
            return shown, (await visitor.operator.get(f"/v1/audit/calls/{made.call_id}")).data

        shown, said = visit(keep, act)
    assert re.search(rf"<h3>Approval</h3>.*?<p>{title}</p>", shown, re.DOTALL)
    records = {one["record"]["type"]: one["record"] for one in said["records"]}
    assert records["Approval"]["asked_at"] <= records["Approval"]["time"]
    assert records["Approval"]["waited_ms"] >= 0
    assert len(records["Approval"]["id"]) == 16
    if verdict == "approve":
        assert records["ToolCompleted"]["approval"]["approver"] == "ada"
        assert records["ToolCompleted"]["execute_us"] > 0


@tool(danger="medium")
def send_away() -> str:
    """Fail after somebody agreed."""
    raise ToolFailed("There is no such place.")


def test_a_report_is_shown_with_and_without_the_logs_of_other_servers() -> None:
    lost = Finding(kind=Kind.MISSING, message="<gone>", index=1)
    report = Report(
        log="b", origin="o", records=3000, covered=2000, torn_bytes=0, key="k", outside=(), findings=(lost,)
    ).to_dict()
    own = {**report, "is_intact": True, "findings": []}
    template = Renderer(Assets())._environment.get_template("parts/verified.html")
    assert "The log is intact." in template.render(report=own)
    shown = template.render(report={**own, "others": [own, report]})
    assert shown.count("b: intact.") == shown.count("b: not intact.") == 1
    assert "missing: record 1: &lt;gone&gt;" in shown
    assert "3,000 records, 2,000 under a signed checkpoint, 1,000 not covered yet" in shown


@pytest.mark.spec("WEB-2")
def test_figures_of_sessions_and_policies_and_run_times_lead_to_their_calls(keep: Keep) -> None:
    keep.register(misbehave)
    calls(keep)
    for number in range(4):
        keep.call_sync("add", {"a": number}, agent="operator", session="desk-7")
    keep.call_sync("misbehave", {"how": "x"}, agent="operator", session="desk-7")
    keep.call_sync("add", {"a": "one"}, agent="operator", session="desk-7")

    async def act(visitor: Visitor) -> dict[str, dict[str, list[tuple[str, str]]]]:
        found = {}
        for path in (
            "/ui/",
            "/ui/policies",
            "/ui/sessions",
            "/ui/sessions/show?agent=operator&session=desk-7",
        ):
            page = html.unescape((await visitor.get(path)).body.decode())
            links = re.findall(r'href="/ui/audit([?][^"]*)">([^<]*)<span class="sr">([^<]*)<', page)
            found[path] = {shown + hidden: await timeline(visitor, query) for query, shown, hidden in links}
        return found

    found = visit(keep, act)
    slower = {"the slower half": 2, "the slower calls": 0}
    times = {
        text.partition(": ")[2]: len(listed)
        for text, listed in found["/ui/"].items()
        if text.partition(": ")[2] in slower
    }
    assert times == slower
    policies = {text: len(listed) for text, listed in found["/ui/policies"].items()}
    assert policies == {"6 hits of all": 6, "1 hit of no": 1}
    listed = {text: len(one) for text, one in found["/ui/sessions"].items()}
    assert listed == {"7 calls of desk-7": 7, "1 refused of desk-7": 1, "1 failed of desk-7": 1}
    _, *shown = found.values()
    figures = {text: len(one) for text, one in shown[-1].items() if "bytes" not in text and "s: " not in text}
    assert figures == {"7: its calls": 7, "1: its refused calls": 1, "1: its failed calls": 1}
    assert {len(one) for text, one in shown[-1].items() if "bytes" in text} == {7}


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        (
            "/ui/agents",
            "agent=operator",
            {"4 calls of operator": 4, "1 failed of operator": 1, "2 refused of operator": 2},
        ),
        (
            "/ui/agents/show?agent=operator",
            "agent=operator",
            {
                "4 calls": 4,
                "1 failed": 1,
                "2 refused": 2,
                "2 calls of add": 2,
                "1 refused of add": 1,
                "1 calls of misbehave": 1,
                "1 calls of write_down": 1,
                "1 refused of write_down": 1,
            },
        ),
        ("/ui/tools", "tool=add", {"2 calls of add": 2, "1 refused of add": 1}),
        ("/ui/tools", "tool=misbehave", {"1 calls of misbehave": 1, "1 failed of misbehave": 1}),
    ],
)
def test_each_figure_of_an_agent_or_tool_leads_to_just_these_calls(
    keep: Keep, path: str, query: str, expected: dict[str, int]
) -> None:
    keep.register(misbehave)
    calls(keep)
    keep.call_sync("misbehave", {"how": "x"}, agent="operator")

    async def act(visitor: Visitor) -> dict[str, list[tuple[str, str]]]:
        page = html.unescape((await visitor.get(path)).body.decode())
        links = re.findall(rf'href="/ui/audit(\?{query}[^"]*)">([^<]*)<span class="sr">([^<]*)', page)
        return {shown + hidden: await timeline(visitor, query) for query, shown, hidden in links}

    assert {text: len(listed) for text, listed in visit(keep, act).items()} == expected


@pytest.mark.spec("WEB-2")
def test_the_page_of_an_agent_begins_with_what_it_called_and_leads_to_the_newest_refusal(keep: Keep) -> None:
    keep.register(misbehave)
    for how in ({}, {"how": "x"}):
        keep.call_sync("misbehave", how, agent="operator")
    refused = keep.call_sync("misbehav", {}, agent="operator")
    keep.call_sync("write_down", {}, agent="local")
    keep.disable("write_down")
    page = visit(keep, lambda visitor: visitor.get("/ui/agents/show?agent=operator")).body.decode()
    _, table = page.split('<table class="data agent-tools">')
    rows = re.findall(r'<th scope="row">.*?class="tool-name"[^>]*>([^<]*)<.*?</tr>', table, re.DOTALL)
    assert rows[:2] == ["misbehave", "misbehav"]
    assert "no such tool" in table
    assert f'href="/ui/calls/{refused.call_id}"' in table
    assert table.index("Called in the last seven days") < table.index("It may call these, and did not")
    assert table.index("Denied") < table.index(">write_down<") < table.index("disabled")
