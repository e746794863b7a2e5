"""How heavy and how fast is the page? Prints a table, measured by a real browser that is slowed down.

    .venv/bin/python bench/page.py [--tools 10000] [--records 100000]

Bytes and requests are those of the first view with nothing cached, as they come over the network. The
browser has a quarter of this machine's speed, 1.6 Mbit/s and 150 ms.
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

PATHS = (
    "/ui/",
    "/ui/approvals",
    "/ui/tools",
    "/ui/tools/tool_00001",
    "/ui/agents",
    "/ui/audit",
    "/ui/audit?status=error",
    "/ui/policies",
    "/ui/tokens",
    "/ui/definitions/new",
)
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
)
TIMES = """() => new Promise(done => new PerformanceObserver(list => {
    const page = performance.getEntriesByType("navigation")[0];
    done([list.getEntries().at(-1).startTime, page.domContentLoadedEventEnd]);
}).observe({type: "largest-contentful-paint", buffered: true}))"""
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
def served(tools: int, records: int) -> Iterator[tuple[str, MemorySignInCodes]]:
    """A keep with many tools and a long log, and its page."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HOME": folder, "TOOLKEEP_HOME": f"{folder}/state"}
        Path(folder, "project").mkdir()
        keep = open_keep(project=Path(folder, "project"), approver=defer_to_inbox)
        keep.register(count_words, *map(definition, range(tools)))
        asyncio.run(make_calls(keep, records))
        codes, sock = MemorySignInCodes(), bind("127.0.0.1", 0)
        limits = ServerLimits(grace_s=1)
        server = Server(make_app(keep, Tokens(MemoryTokens()), codes=codes, limits=limits), limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", codes
        server.should_exit = True
        thread.join(30)
        keep.close()


def first_view(browser: Browser, url: str, state: Any) -> tuple[int, int, float, float]:
    """Bytes, requests, when most was drawn, and when it could be used, in milliseconds."""
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
    context.close()
    return sum(loaded), len(loaded), drawn, usable


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    with served(options.tools, options.records) as (url, codes), sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/ui/sign-in#{codes.make()}")
        page.wait_for_url("**/ui/", timeout=180_000)  # the first view counts the whole log
        # The index of the log is made since the first view.
        for thread in [thread for thread in threading.enumerate() if thread.name == "toolkeep-index"]:
            thread.join()
        print(f"{options.tools} tools, some {options.records} records\n")
        print("| answer of the server | first | median of 9 |\n| --- | ---: | ---: |")
        for path in LISTS:
            taken = []
            for _ in range(10):
                began = time.perf_counter()
                context.request.get(url + path)
                taken.append((time.perf_counter() - began) * 1000)
            print(f"| `{path}` | {taken[0]:.0f} ms | {statistics.median(taken[1:]):.0f} ms |")
        print("\n| first view, slowed down | bytes | requests | largest paint | usable |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for path in PATHS:
            size, requests, drawn, usable = first_view(browser, url + path, context.storage_state())
            print(f"| `{path}` | {size:,} | {requests} | {drawn:.0f} ms | {usable:.0f} ms |")
        browser.close()


if __name__ == "__main__":
    main()
