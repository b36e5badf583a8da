"""An agent of one's own: the Claude Agent SDK for Python.

    stockade agent run --profile claude --name fix -- .venv/bin/python fix.py "fix the failing test"
"""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool


@tool("shout", "Says a word loudly", {"word": str})
async def shout(arguments):
    return {"content": [{"type": "text", "text": arguments["word"].upper()}]}


async def main(prompt):
    options = ClaudeAgentOptions(
        # The wall is around the whole script, so nobody needs to be asked about each step.
        permission_mode="bypassPermissions",
        mcp_servers={"own": create_sdk_mcp_server("own", tools=[shout])},
    )
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main(sys.argv[1]))
