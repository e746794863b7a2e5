"""How heavy and how fast is the page? Prints a table, measured by a real browser that is slowed down.

    .venv/bin/python bench/page.py [--tools 10000] [--records 100000]

Bytes and requests are those of the first view with nothing cached, as they come over the network. The
browser has a quarter of this machine's speed, 1.6 Mbit/s and 150 ms. The second table is the one of
docs/page.md.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from toolkeep import Keep, ToolDefinition, open_keep, tool
from toolkeep.limits import ServerLimits
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.server.app_factory import make_app
from toolkeep.server.run_server import Server, bind
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes
from toolkeep.stores.api_tokens import MemoryTokens, Tokens

VIEWS = {
    "overview, with charts": "/ui/",
    "first steps": "/ui/start",
    "approvals": "/ui/approvals",
    "tools": "/ui/tools",
    "a tool": "/ui/tools/tool_00001",
    "a quarantined tool": "/ui/tools/weather",
    "new definition": "/ui/definitions/new",
    "edit a definition": "/ui/definitions/stored",
    "agents": "/ui/agents",
    "an agent": "/ui/agents/show?agent=local",
    "audit": "/ui/audit",
    "a call": "/ui/calls/{call}",
    "sessions": "/ui/sessions",
    "a session": "/ui/sessions/show?agent=local&session=s-1",
    "policies": "/ui/policies",
    "policy editor": "/ui/policies/edit",
    "tokens": "/ui/tokens",
}
LISTS = (
    "/ui/tools",
    "/ui/tools?search=invoices+customers",
    "/ui/tools?category=database",
    "/ui/tools/tool_00001",
    "/ui/audit",
    "/ui/audit?tool=count_words",
    "/ui/audit?status=error",
    "/ui/audit?text=rare",
    "/ui/audit?session=s-30",
    "/ui/audit?code=ACODE-TSR-004",
    "/ui/audit?slower_ms=1000",
    "/ui/audit?type=PolicyDecision",
    "/ui/audit?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z",
    "/ui/agents",
    "/ui/approvals",
)
TIMES = """() => new Promise(done => new PerformanceObserver(list => {
    const page = performance.getEntriesByType("navigation")[0];
    done([list.getEntries().at(-1).startTime, page.domContentLoadedEventEnd]);
}).observe({type: "largest-contentful-paint", buffered: true}))"""
SHIFT = """() => {
    const observer = new PerformanceObserver(() => {});
    observer.observe({type: "layout-shift", buffered: true});
    const shifts = observer.takeRecords().filter(one => !one.hadRecentInput);
    return shifts.reduce((sum, one) => sum + one.value, 0);
}"""
IS_STILL = """() =>
    document.getElementById("stream").dataset.state === "live" && !document.querySelector(".htmx-request")"""
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
PATIENCE_MS = 180_000
IN_FLIGHT = 64
RECORDS_OF_A_CALL = 3


def definition(number: int) -> ToolDefinition:
    """One of many tools."""
    return ToolDefinition.from_dict(
        {
            "name": f"tool_{number:05d}",
            "version": "1.0.0",
            "description": f"Does {number} with orders, invoices and customers of {1900 + number % 200}.",
            "category": ("general", "database", "network", "knowledge")[number % 4],
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string", "maxLength": 40}}},
        }
    )


@tool(effects="none")
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


@tool(danger="medium", effects="writes")
def order(article: str, pieces: int) -> str:
    """Order something.

    Args:
        article: Its name.
        pieces: How many.
    """
    return f"{pieces} of {article}"


def prepare(keep: Keep, tools: int) -> None:
    """Many tools, one that changed at its source, and one that is stored."""
    keep.register(count_words, order, *map(definition, range(tools)))
    for description in ("Tell the weather.", "Tell the weather of a place."):
        data = {"name": "weather", "description": description, "inputSchema": {"type": "object"}}
        keep.register(ToolDefinition.from_elsewhere(data, origin="met"))
    keep.create_definition({"name": "stored", "description": "Is stored.", "version": "1.0.0"})


async def wait_for_a_person(keep: Keep, is_over: threading.Event) -> None:
    """A call that waits in the inbox."""
    call = asyncio.ensure_future(keep.call("order", {"article": "Dune", "pieces": 2}, session="s-1"))
    await asyncio.to_thread(is_over.wait)
    call.cancel()
    await asyncio.wait({call})


async def make_calls(keep: Keep, records: int) -> None:
    """Calls until the log holds so many records; each hundredth is refused."""
    numbers = iter(range(records // RECORDS_OF_A_CALL))

    async def lane() -> None:
        for number in numbers:
            text: object = f"a {'rare' if number % 5000 == 7 else 'usual'} text of {number} words"
            arguments = {"text": number if number % 100 == 0 else text}
            await keep.call("count_words", arguments, session=f"s-{number // 50}")

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))


@contextmanager
def served(tools: int, records: int) -> Iterator[tuple[str, MemorySignInCodes, str]]:
    """A keep with many tools, a long log and a call that waits: its address, and a call of the log."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HOME": folder, "TOOLKEEP_HOME": f"{folder}/state"}
        Path(folder, "project").mkdir()
        keep = open_keep(project=Path(folder, "project"), approver=defer_to_inbox, approval_wait_s=3600)
        prepare(keep, tools)
        asyncio.run(make_calls(keep, records))
        call = next(iter(keep.record.log.read_back())).record["call"]
        is_over = threading.Event()
        waits = threading.Thread(target=asyncio.run, args=(wait_for_a_person(keep, is_over),))
        waits.start()
        codes, sock = MemorySignInCodes(), bind("127.0.0.1", 0)
        limits = ServerLimits(grace_s=1)
        server = Server(make_app(keep, Tokens(MemoryTokens()), codes=codes, limits=limits), limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}", codes, call
        finally:
            is_over.set()
            waits.join()
            server.should_exit = True
            thread.join(30)
            keep.close()


def first_view(browser: Browser, url: str, state: Any) -> str:
    """Bytes, requests, when most was drawn, when it could be used, and how much jumped until all had come."""
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    loaded: list[int] = []
    session.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))
    speed = {"downloadThroughput": 1.6e6 / 8, "uploadThroughput": 7.5e5 / 8}
    session.send("Network.emulateNetworkConditions", {"offline": False, "latency": 150, **speed})
    session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.goto(url, wait_until="load")
    drawn, usable = page.evaluate(TIMES)
    size, requests = sum(loaded), len(loaded)
    page.wait_for_function(IS_STILL, timeout=PATIENCE_MS)
    page.evaluate(FRAMES)
    shift = page.evaluate(SHIFT)
    context.close()
    return f"{size / 1000:.1f} KB | {requests} | {drawn / 1000:.1f} s | {usable / 1000:.1f} s | {shift:.3f}"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--views", action="store_true", help="only the second table")
    options = parser.parse_args()
    with served(options.tools, options.records) as (url, codes, call), sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/ui/sign-in#{codes.make()}")
        page.wait_for_url("**/ui/", timeout=PATIENCE_MS)  # the first view counts the whole log
        # The index of the log is made since the first view.
        for thread in [thread for thread in threading.enumerate() if thread.name == "toolkeep-index"]:
            thread.join()
        print(f"{options.tools} tools, some {options.records} records\n")
        print("| answer of the server | first | median of 9 |\n| --- | ---: | ---: |")
        for path in () if options.views else LISTS:
            taken = []
            for _ in range(10):
                began = time.perf_counter()
                context.request.get(url + path)
                taken.append((time.perf_counter() - began) * 1000)
            print(f"| `{path}` | {taken[0]:.0f} ms | {statistics.median(taken[1:]):.0f} ms |")
        print("\n| page | bytes | requests | largest paint | usable after | layout shift |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for name, path in VIEWS.items():
            shown = first_view(browser, url + path.format(call=call), context.storage_state())
            print(f"| {name} | {shown} |")
        browser.close()


if __name__ == "__main__":
    main()
