"""The official client (mcp 2.x) reads what an upstream server passes on, in 2026-07-28, over stdio."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client, types  # type: ignore[import-not-found, unused-ignore]
from mcp.client.stdio import StdioServerParameters  # type: ignore[import-not-found, unused-ignore]


async def found(command: list[str]) -> dict[str, Any]:
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(server, mode="auto") as client:
        templates = (await client.list_resource_templates()).resource_templates
        page = await client.read_resource(templates[0].uri_template.replace("{name}", "a%20b"))
        asked = {"name": "tone", "value": "kind"}
        prompt = types.PromptReference(type="ref/prompt", name="review")
        async with client.listen(
            resource_subscriptions=["toolkeep:docs/docs://readme", "toolkeep:docs/x:y"]
        ) as heard:
            changed = await anext(aiter(heard))
        return {
            "completed": (await client.complete(prompt, asked)).completion.values,
            "subscribed": heard.honored.resource_subscriptions,
            "changed": str(changed.uri),
            "prompts": [one.name for one in (await client.list_prompts()).prompts],
            "resources": [str(one.uri) for one in (await client.list_resources()).resources],
            "templates": [one.uri_template for one in templates],
            "prompt": (await client.get_prompt("review", {"text": "this"})).messages[0].content.text,
            "text": (await client.read_resource("toolkeep:docs/docs://readme")).contents[0].text,
            "page": page.contents[0].text,
        }


print(json.dumps(asyncio.run(found(sys.argv[1:]))))
