"""Print every fact of a cluster as it happens: python examples/subscribe.py NATS_URL [SUBJECT]; the default is colo.v1.evt.>."""

import asyncio
import json
import sys

import nats


async def main(url: str, subject: str = "colo.v1.evt.>") -> None:
    client = await nats.connect(url)
    async for message in (await client.subscribe(subject)).messages:
        fact = json.loads(message.data)
        print(message.subject, fact, flush=True)  # the fields of each subject are in asyncapi.yaml


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
