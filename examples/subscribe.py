"""Print facts as they happen: python examples/subscribe.py NATS_URL [SUBJECT [NKEY_FILE CA_FILE]]; the default is colo.v1.evt.>."""

import asyncio
import json
import ssl
import sys
from pathlib import Path

import nats


async def main(url: str, subject: str = "colo.v1.evt.>", key: str = "", ca: str = "") -> None:
    seed = Path(key).read_text().split()[0] if key else None  # noqa: ASYNC240 - before anything else runs
    client = await nats.connect(url, nkeys_seed_str=seed, tls=ssl.create_default_context(cafile=ca) if ca else None)
    async for message in (await client.subscribe(subject)).messages:
        fact = json.loads(message.data)
        print(message.subject, fact, flush=True)  # the fields of each subject are in asyncapi.yaml


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
