"""The library's client, which comes back after the server refused its credentials."""

from typing import Final

import nats.aio.client
import nats.errors

__all__ = ["ColoClient"]

_REFUSED: Final = (
    "authorization violation",
    "authentication revoked",
    "authentication expired",
    "account authentication",
)


class ColoClient(nats.aio.client.Client):
    """Where the library closes for good when a server stops to accept its credentials, this one connects again: an administrator
    may have put new ones in their place, and an agent must go on to protect its node."""

    async def _process_err(self, err_msg: str) -> None:
        if not self.is_connecting and any(words in err_msg.lower() for words in _REFUSED):
            await self._process_op_err(nats.errors.AuthorizationError())
            return
        await super()._process_err(err_msg)
