"""How authors write tools: decorated functions, agent-tool classes, tools of other frameworks."""
