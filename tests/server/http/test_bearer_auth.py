"""How often the store is asked about a token."""

import asyncio
import threading

from tests.server.talk import until
from toolkeep.server.http.bearer_auth import BearerAuth
from toolkeep.stores.api_tokens import MemoryTokens, Token, Tokens


class Slow(Tokens):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__(MemoryTokens())
        self.asked = 0
        self.may_answer = threading.Event()

    def recognize(self, text: str) -> Token | None:
        self.asked += 1
        found = super().recognize(text)
        self.may_answer.wait()
        return found


def test_requests_that_come_at_once_ask_the_store_once_and_again_after_a_change() -> None:
    tokens = Slow()
    text = tokens.make("ann", ["call"], agent="ann").text
    auth = BearerAuth(tokens)

    async def act() -> None:
        early = [asyncio.create_task(auth.authenticate(text)) for _ in range(50)]
        await asyncio.sleep(0)
        early.pop().cancel()  # one that leaves takes no answer from the others
        await until(lambda: tokens.asked)
        (token,) = tokens.list()
        tokens.revoke(token.id)
        auth.forget()
        late = asyncio.create_task(auth.authenticate(text))
        await asyncio.sleep(0)
        tokens.may_answer.set()
        assert {one and one.name for one in await asyncio.gather(*early)} == {"ann"}
        assert await late is None
        assert await auth.authenticate(text) is None  # what was said before is not remembered

    asyncio.run(act())
    auth.close()
    assert tokens.asked == 3
