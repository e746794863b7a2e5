"""LangChain's standard tests of tools, on a tool of a keep; run by pytest in the environment of the vendors."""

from typing import Any

from langchain_tests.integration_tests import ToolsIntegrationTests  # type: ignore[import-not-found, unused-ignore]
from langchain_tests.unit_tests import ToolsUnitTests  # type: ignore[import-not-found, unused-ignore]

from tests.frameworks.programs import shop
from toolkeep.frameworks.langchain import KeepTool, langchain_tools

TOOLS = {tool.name: tool for tool in langchain_tools(shop.opened()[0])}


class TestUnit(ToolsUnitTests):  # type: ignore[misc, unused-ignore]
    @property
    def tool_constructor(self) -> KeepTool:
        return TOOLS["look"]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"place": "here"}


class TestIntegration(ToolsIntegrationTests):  # type: ignore[misc, unused-ignore]
    @property
    def tool_constructor(self) -> KeepTool:
        return TOOLS["look"]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"place": "here"}
