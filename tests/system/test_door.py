"""The gateway's door with real services behind it: tokens, roles, tenants, limits, TLS, and what the audit says of them."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt
import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from colo_cli.main import main
from tests.support.ports import free_ports
from tests.support.servers import emptied
from tests.support.waiting import eventually
from tests.system.bad_input import RunningService, Servers, refused_start

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]

JOB: Final[dict[str, Any]] = {"name": "probe", "cpu": "1", "memory": "64Mi", "work": "10 cpu-s"}
READY: Final = Path(__file__).parents[2] / "image" / "ready.py"
Reply = tuple[int, Any, "aiohttp.typedefs.LooseHeaders"]


class Asked:
    """One client of the gateway; a call returns status, body and headers."""

    def __init__(self, address: str, http: aiohttp.ClientSession) -> None:
        self.address = address
        self._http = http

    async def __call__(
        self, method: str, path: str, token: str = "", body: object = None, **headers: str
    ) -> tuple[int, Any, Any]:
        given = {"Authorization": f"Bearer {token}"} if token else {}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._http.request(
            method, self.address + path, json=body, headers={**given, **sent}, allow_redirects=False
        ) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if reply.content_type == "application/json" else text, reply.headers


@pytest.fixture
async def servers(tmp_path: Path, nats_url: str, redis_url: str) -> AsyncIterator[Servers]:
    await emptied(nats_url, redis_url)
    yield Servers(nats_url, redis_url, tmp_path)
    await emptied(nats_url, redis_url)


@pytest.fixture
def add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Makes a token as an administrator does; the token."""

    def made(*words: str) -> str:
        capsys.readouterr()
        assert main(["admin", "tokens", "add", *words, "--file", str(tmp_path / "tokens.json")]) == 0
        return capsys.readouterr().out.strip()

    return made


@asynccontextmanager
async def door(servers: Servers, **environment: str) -> AsyncIterator[tuple[RunningService, Asked]]:
    """The jobs service, and a gateway that asks for tokens."""
    settings = {"COLO_GATEWAY_TOKENS_FILE": str(servers.directory / "tokens.json"), **environment}
    async with (
        servers.service("jobs") as jobs,
        servers.service("gateway", **settings) as gateway,
        aiohttp.ClientSession() as http,
    ):
        await jobs.ready()
        # It answers what jobs and the gateway know; the others are not needed for it.
        await gateway.not_ready("scheduler")
        yield gateway, Asked(gateway.address, http)


async def audited(ask: Asked, token: str, least: int, query: str = "") -> list[dict[str, Any]]:
    async def there() -> list[dict[str, Any]]:
        status, body, _ = await ask("GET", f"/v1/audit?limit=500{query}", token)
        # Looking is a request too, and the door may let in one a second.
        if status == 429:
            return []
        assert status == 200, body
        return body["entries"] if len(body["entries"]) >= least else []

    return await eventually(there, f"{least} audited requests")


async def nobody_is_let_in_without_a_good_token(ask: Asked, alice: str, late: str, eve: str) -> None:
    forged = alice[:-1] + ("A" if alice[-1] != "A" else "B")
    for token, rule in (
        ("", "is needed"),
        ("nonsense", "is no token of colo"),
        (forged, "is not known here"),
        (f"colo_{late.split('_')[1]}_{alice.split('_', 2)[2]}", "is not known here"),
        (late, "has expired"),
    ):
        status, body, headers = await ask("GET", "/v1/jobs", token)
        assert (status, body["field"]) == (401, "token")
        assert body["rule"].startswith(rule)
        assert headers["WWW-Authenticate"] == 'Bearer realm="colo"'
    for path in ("/livez", "/metrics", "/v1/openapi.json", "/v1/version"):
        assert (await ask("GET", path))[0] == 200
    assert (await ask("GET", "/v1/nothing"))[0] == 401
    assert (await ask("OPTIONS", "/v1/jobs", Origin="http://evil.example"))[0] == 403
    status, body, headers = await ask("GET", "/v1/jobs", eve, Origin="http://evil.example")
    assert (status, body["field"]) == (403, "origin")
    assert "Access-Control-Allow-Origin" not in headers


async def the_command_line_and_a_token_that_is_taken_back(
    ask: Asked, file: Path, job: str, tokens: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    root, alice, eve = tokens
    assert await asyncio.to_thread(main, ["get", "jobs"]) == 1
    assert "token: is needed: --token, COLO_TOKEN" in capsys.readouterr().err
    assert await asyncio.to_thread(main, ["get", "jobs", "--token", alice]) == 0
    assert job in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["get", "audit", "--refused", "--token", root]) == 0
    assert "is another one: the token is for tenant red" in capsys.readouterr().out
    assert main(["admin", "tokens", "revoke", "alice", "--file", str(file)]) == 0
    capsys.readouterr()

    async def is_refused() -> bool:
        status, body, _ = await ask("GET", "/v1/jobs", alice)
        return status == 401 and body["rule"] == "was revoked"

    await eventually(is_refused, "the revoked token is refused")
    assert (await ask("GET", "/v1/jobs", eve))[0] == 200


async def an_open_stream_ends_with_its_token(gateway: RunningService, file: Path, token: str) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{gateway.address}/v1/stream", headers={"Authorization": f"Bearer {token}"}) as reply,
    ):
        assert reply.status == 200
        assert main(["admin", "tokens", "revoke", "eve", "--file", str(file)]) == 0
        # It ends by itself; nothing is said to a reader whose token is good.
        async with asyncio.timeout(120):
            text = (await reply.content.read()).decode()
    assert text.endswith("event: ended\ndata: the token was revoked\n\n")
    assert "event: ended" not in text[: -len("event: ended\ndata: the token was revoked\n\n")]


async def every_change_was_written_down(
    gateway: RunningService, ask: Asked, root: str, alice: str, mine: dict[str, Any], other: str
) -> None:
    entries = await audited(ask, root, 20)
    submitted = next(each for each in entries if each["request"] == "abc-1")
    assert {key: submitted[key] for key in ("who", "how", "role", "method", "path", "status", "tenant", "job")} == {
        "who": "alice", "how": "token", "role": "submitter", "method": "POST", "path": "/v1/jobs", "status": 201,
        "tenant": "red", "job": mine["job"],
    }  # fmt: skip
    assert submitted["token"] == alice.split("_")[1]
    refused = [each for each in entries if each["status"] == 403 and each["who"] == "alice"]
    assert {each["tenant"] for each in refused if each["path"] == other} == {"blue"}
    assert any(each["status"] == 401 and each["who"] == "late" for each in entries)
    assert not any(part in json.dumps(entries) for part in (alice.split("_", 2)[2], root.split("_", 2)[2]))
    await gateway.reaches('colo_gateway_logins_total{result="forbidden"}', 13)
    await gateway.reaches('colo_gateway_logins_total{result="unknown"}', 1)


async def test_roles_tenants_and_the_audit(
    servers: Servers, add: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = add("root", "--role", "operator")
    alice = add("alice", "--role", "submitter", "--tenant", "red")
    bob = add("bob", "--role", "submitter", "--tenant", "blue", "--tenant", "green", "--queue", "default")
    eve = add("eve", "--role", "viewer")
    late = add("late", "--role", "viewer", "--expires", "1ms")
    file = servers.directory / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not any(token.split("_", 2)[2] in file.read_text() for token in (root, alice, bob, eve))
    async with door(servers) as (gateway, ask):
        await nobody_is_let_in_without_a_good_token(ask, alice, late, eve)

        # ---- a name and a key are the tenant's
        status, mine, headers = await ask("POST", "/v1/jobs", alice, JOB, Idempotency_Key="k", X_Request_Id="abc-1")
        assert status == 201
        assert headers["X-Request-Id"] == "abc-1"
        status, theirs, _ = await ask("POST", "/v1/jobs", bob, JOB | {"tenant": "blue"}, Idempotency_Key="k")
        assert status == 201
        assert mine["job"] != theirs["job"]
        assert (await ask("POST", "/v1/jobs", alice, JOB, Idempotency_Key="k"))[1]["job"] == mine["job"]
        status, _, _ = await ask("POST", "/v1/jobs", bob, JOB | {"tenant": "green"}, Check_Index="0")
        assert status == 201

        # ---- who may not do what
        job, other = f"/v1/jobs/{mine['job']}", f"/v1/jobs/{theirs['job']}"
        for method, path, token, given, field, rule in (
            ("POST", "/v1/jobs", eve, JOB, "token", "has the role viewer, and this needs submitter or operator"),
            ("DELETE", job, eve, None, "token", "has the role viewer"),
            (
                "POST",
                "/v1/jobs",
                alice,
                JOB | {"tenant": "blue"},
                "tenant",
                "is another one: the token is for tenant red",
            ),
            ("POST", "/v1/jobs", bob, JOB, "tenant", "is another one: the token is for tenants blue, green"),
            ("POST", "/v1/plan", alice, JOB | {"tenant": "blue"}, "tenant", "is another one"),
            ("GET", other, alice, None, "tenant", "is another one"),
            ("GET", f"{other}/explain", alice, None, "tenant", "is another one"),
            ("DELETE", other, alice, None, "tenant", "is another one"),
            ("GET", "/v1/jobs?tenant=blue", alice, None, "tenant", "is another one"),
            ("GET", "/v1/history", alice, None, "token", "shows or changes what other tenants have"),
            ("GET", "/v1/stream", alice, None, "token", "shows or changes what other tenants have"),
            ("POST", "/v1/restrictions", alice, {}, "token", "has the role submitter, and this needs operator"),
            ("GET", "/v1/audit", eve, None, "token", "has the role viewer, and this needs operator"),
        ):
            status, body, _ = await ask(method, path, token, given)
            assert (status, body["field"]) == (403, field), (method, path, body)
            assert body["rule"].startswith(rule), body
        assert [each["job"] for each in (await ask("GET", "/v1/jobs", alice))[1]["jobs"]] == [mine["job"]]
        assert (await ask("GET", "/v1/jobs", bob))[1]["total"] == 2
        assert (await ask("GET", "/v1/jobs", eve))[1]["total"] == 3

        # ---- an operator's name is the token's, whatever he writes
        quiesce = {"kind": "quiesce", "scope": "fleet", "by": "somebody else", "reason": "test"}
        status, body, _ = await ask("POST", "/v1/restrictions", root, quiesce)
        assert (status, body["restrictions"][0]["by"]) == (200, "root")
        assert (await ask("DELETE", "/v1/restrictions?kind=quiesce&scope=fleet", root))[0] == 200
        assert (await ask("DELETE", job, alice))[0] == 200

        await every_change_was_written_down(gateway, ask, root, alice, mine, other)
        monkeypatch.setenv("COLO_API", gateway.address)
        monkeypatch.setenv("COLO_TOKEN", "")
        await the_command_line_and_a_token_that_is_taken_back(ask, file, mine["job"], (root, alice, eve), capsys)
        await an_open_stream_ends_with_its_token(gateway, file, eve)


async def test_ten_thousand_failed_logins_slow_nobody_and_fill_nothing(
    servers: Servers, add: Callable[..., str]
) -> None:
    root = add("root", "--role", "operator")
    async with door(servers, COLO_GATEWAY_REQUESTS_PER_S="0") as (gateway, ask):

        async def attack(number: int) -> None:
            for each in range(number):
                status, _, headers = await ask("GET", "/v1/jobs", f"colo_{each:08x}_{'x' * 43}")
                assert status == 401 or headers["Retry-After"]

        attackers = [asyncio.create_task(attack(1_000)) for _ in range(10)]
        answered = 0
        while not all(task.done() for task in attackers):
            assert (await ask("GET", "/v1/jobs", root))[0] == 200
            answered += 1
        await asyncio.gather(*attackers)
        await gateway.reaches('colo_gateway_logins_total{result="unknown"}', 10_000)
        # Each of the attackers has had a thousand answers meanwhile, for which the gateway asked nobody.
        assert answered >= 100
        entries = await audited(ask, root, 1)
        assert 1 <= len(entries) < 50


async def test_one_address_has_so_many_requests_a_second(servers: Servers, add: Callable[..., str]) -> None:
    root = add("root", "--role", "operator")
    async with door(servers, COLO_GATEWAY_REQUESTS_PER_S="1") as (_gateway, ask):
        answers = [await ask("GET", "/v1/jobs", root) for _ in range(6)]
        limited = [(body, headers) for status, body, headers in answers if status == 429]
        assert limited
        assert limited[0][0]["rule"] == "come too fast from this address"
        assert int(limited[0][1]["Retry-After"]) >= 1
        assert (await ask("GET", "/livez"))[0] == 200


async def test_behind_a_proxy_limits_and_audit_are_of_who_asks(servers: Servers, add: Callable[..., str]) -> None:
    root = add("root", "--role", "operator")
    settings = {"COLO_GATEWAY_REQUESTS_PER_S": "1", "COLO_GATEWAY_TRUSTED_PROXIES": "127.0.0.0/8,192.0.2.0/24"}
    async with door(servers, **settings) as (gateway, ask):

        async def asked(forwarded: str) -> int:
            return (await ask("GET", "/v1/jobs", root, X_Forwarded_For=forwarded))[0]

        busy = [await asked(f"10.0.0.{number}, 203.0.113.1, 192.0.2.1") for number in range(6)]
        assert 429 in busy, "what stands left of the client's address makes nobody another one"
        assert await asked("203.0.113.2") == 200
        assert (await ask("GET", "/v1/jobs", "nonsense", X_Forwarded_For="203.0.113.3"))[0] == 401
        assert (await ask("GET", "/v1/jobs", "nonsense", X_Forwarded_For="unknown"))[0] == 401
        entries = await audited(ask, root, 2)
        assert {each["address"] for each in entries} == {"203.0.113.3", "127.0.0.1"}
        del gateway


async def test_an_open_door_is_for_this_machine(servers: Servers) -> None:
    async with servers.service("gateway") as gateway, aiohttp.ClientSession() as http:
        ask = Asked(gateway.address, http)
        assert (await ask("GET", "/v1/version"))[0] == 200
        status, body, _ = await ask("GET", "/v1/history", Host="evil.example")
        assert (status, body["field"]) == (403, "host")
        status, body, _ = await ask("DELETE", "/v1/restrictions?kind=quiesce", Origin="http://evil.example")
        assert (status, body["field"]) == (403, "origin")
        assert (await ask("GET", "/v1/history"))[0] == 200
    (sentence,) = refused_start("colo_gateway", {**servers.environment, "COLO_GATEWAY_HTTP_HOST": "0.0.0.0"})
    assert sentence.startswith(
        "colo gateway: http_host: must be this machine (127.0.0.1) while nobody is asked who he is"
    )
    for name, word in (("COLO_GATEWAY_TOKENS_FILE", "tokens_file"), ("COLO_GATEWAY_TLS_CERT", "tls_key")):
        (sentence,) = refused_start("colo_gateway", {**servers.environment, name: "/nowhere"})
        assert sentence.startswith(f"colo gateway: {word}: must be")


async def test_certificates_of_the_gateway_and_of_its_clients(
    servers: Servers, add: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = add("root", "--role", "operator")
    authority, stranger = trustme.CA(), trustme.CA()
    folder = servers.directory
    paths = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key", "strange")}
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(paths["ca"])
    stranger.cert_pem.write_to_path(paths["strange"])
    certificate.cert_chain_pems[0].write_to_path(paths["cert"])
    certificate.private_key_pem.write_to_path(paths["key"])
    settings = {
        "COLO_GATEWAY_TOKENS_FILE": str(folder / "tokens.json"),
        "COLO_GATEWAY_TLS_CERT": paths["cert"],
        "COLO_GATEWAY_TLS_KEY": paths["key"],
    }
    async with servers.service("gateway", **settings) as gateway:
        monkeypatch.setenv("COLO_API", gateway.address.replace("http://", "https://"))
        command = ["get", "audit", "--token", root]
        assert await asyncio.to_thread(main, [*command, "--ca", paths["ca"]]) == 0
        capsys.readouterr()
        assert await asyncio.to_thread(main, [*command, "--ca", paths["strange"]]) == 1
        assert "its certificate is not trusted" in capsys.readouterr().err
        with pytest.raises(OSError, match="HTTP|closed|reset|Remote|Empty"):
            await gateway.get("/livez")
        # What the image asks with: the gateway answers, and is not ready without the other services.
        command = [sys.executable, str(READY), gateway.address.replace("http://", "tls:")]
        answer = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert (answer.returncode, "readyz check failed" in answer.stdout) == (1, True), answer

    (health_port,) = free_ports(1)
    mutual = {"COLO_GATEWAY_TLS_CLIENT_CA": paths["ca"], "COLO_GATEWAY_HEALTH_PORT": str(health_port)}
    async with servers.service("gateway", **settings, **mutual) as gateway, aiohttp.ClientSession() as http:
        plain = f"http://127.0.0.1:{health_port}"
        for path, status in (
            ("/livez", 200),
            ("/readyz", 503),
            ("/metrics", 200),
            ("/v1/version", 404),
            ("/v1/jobs", 404),
        ):
            async with http.get(plain + path) as reply:
                assert (path, reply.status) == (path, status)
        url = gateway.address.replace("http://", "https://") + "/livez"
        for signer, is_let_in in ((authority, True), (stranger, False), (None, False)):
            context = ssl.create_default_context(cafile=paths["ca"])
            if signer is not None:
                signer.issue_cert("client@example").configure_cert(context)
            try:
                async with http.get(url, ssl=context) as reply:
                    assert is_let_in
                    assert reply.status == 200
            except aiohttp.ClientError:
                assert not is_let_in


GOOD: Final[dict[str, Any]] = {
    "iss": "https://id.example", "aud": "colo", "sub": "carol", "colo_role": "submitter", "colo_tenants": ["red"],
}  # fmt: skip


def signed(key: Any, kid: str = "1", algorithm: str = "ES256", **changed: Any) -> str:
    """A token of the identity provider with other claims than GOOD; None leaves a claim out."""
    now_s = int(time.time())
    claims = {**GOOD, "iat": now_s, "exp": now_s + 600, **changed}
    given = {name: value for name, value in claims.items() if value is not None}
    return str(jwt.encode(given, key, algorithm=algorithm, headers={"kid": kid}))


def key_set(*keys: Any) -> dict[str, Any]:
    """What a provider serves: its public keys, named 1, 2 and so on."""
    public = [json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) for key in keys]
    return {
        "keys": [
            each | {"kid": str(number), "alg": "ES256", "use": "sig"} for number, each in enumerate(public, start=1)
        ]
    }


async def test_tokens_of_an_identity_provider(servers: Servers) -> None:
    own, strange = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    other_kind = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    keys = servers.directory / "jwks.json"
    keys.write_text(json.dumps(key_set(own)))
    now_s = int(time.time())
    settings = {
        "COLO_GATEWAY_OIDC_ISSUER": "https://id.example",
        "COLO_GATEWAY_OIDC_JWKS": str(keys),
        "COLO_GATEWAY_TOKENS_FILE": "",
    }
    header, payload, signature = signed(own).split(".")
    _, stronger, _ = signed(own, colo_role="operator").split(".")
    async with door(servers, **settings) as (_gateway, ask):
        assert (await ask("GET", "/v1/jobs", signed(own)))[0] == 200
        assert (await ask("POST", "/v1/jobs", signed(own), JOB))[0] == 201
        assert (await ask("POST", "/v1/jobs", signed(own, colo_tenants=["blue"]), JOB | {"tenant": "red"}))[0] == 403
        for token, rule in (
            (signed(own, exp=now_s - 600), "has expired"),
            (signed(strange), "is not taken"),
            (signed(own, "2"), "is not taken: its issuer has no key of the name that it gives"),
            (signed(own, aud="other"), "is not taken"),
            (signed(own, iss="https://evil.example"), "is not taken"),
            (signed(own, nbf=now_s + 600), "is not taken"),
            (signed(own, exp=None), "is not taken"),
            (signed(own, colo_role=None), "gives no role"),
            (signed(own, colo_tenants=None), "gives no tenant"),
            (signed("x" * 64, algorithm="HS256"), "is not taken"),
            (signed(None, algorithm="none"), "is not taken"),
            (signed(other_kind, algorithm="RS256"), "is not taken: the key that it names is for another algorithm"),
            # Parts in another order, of two tokens, or one of them twice.
            (f"{payload}.{header}.{signature}", "is not taken"),
            (f"{header}.{signature}.{payload}", "is not taken"),
            (f"{header}.{stronger}.{signature}", "is not taken"),
            (f"{header}.{payload}.", "is not taken"),
            (f"{header}.{payload}.{signature}.{signature}", "must be one of the identity provider"),
        ):
            status, body, _ = await ask("GET", "/v1/jobs", token)
            assert (status, body["field"]) == (401, "token"), rule
            assert body["rule"].startswith(rule), body
        status, body, _ = await ask("GET", "/v1/audit", signed(own, colo_role="operator"))
        assert status == 200
        assert {each["who"] for each in body["entries"]} >= {"carol", "unknown"}

        # ---- the provider has a new key: its file is read again, and a broken one keeps what was
        keys.write_text("{")
        assert (await ask("GET", "/v1/jobs", signed(own)))[0] == 200
        keys.write_text(json.dumps(key_set(strange)))

        async def is_taken() -> bool:
            return (await ask("GET", "/v1/jobs", signed(strange)))[0] == 200

        await eventually(is_taken, "the new key is taken")
        assert (await ask("GET", "/v1/jobs", signed(own)))[0] == 401


@asynccontextmanager
async def provider_of(keys: dict[str, Any], certificate: trustme.LeafCert) -> AsyncIterator[tuple[str, list[str]]]:
    """An identity provider that serves its keys over HTTPS: their address, and who asked for them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.remote or "")
        return web.json_response(keys)

    app = web.Application()
    app.add_routes([web.get("/keys", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/keys", asked
    finally:
        await runner.cleanup()


async def test_keys_that_an_identity_provider_serves(servers: Servers) -> None:
    own = ec.generate_private_key(ec.SECP256R1())
    authority, stranger = trustme.CA(), trustme.CA()
    authorities = servers.directory / "ca.pem"
    authority.cert_pem.write_to_path(str(authorities))
    settings = {
        "COLO_GATEWAY_OIDC_ISSUER": "https://id.example",
        "COLO_GATEWAY_TOKENS_FILE": "",
        "COLO_GATEWAY_FAILED_LOGINS_PER_MIN": "60000",
        "SSL_CERT_FILE": str(authorities),
    }
    async with (
        provider_of(key_set(own), authority.issue_cert("127.0.0.1")) as (address, asked),
        door(servers, **settings, COLO_GATEWAY_OIDC_JWKS=address) as (gateway, ask),
    ):
        await asyncio.gather(*(ask("GET", "/v1/jobs", signed(own, f"x{number}")) for number in range(300)))
        assert len(asked) == 1, "tokens with names of keys that nobody has make one question"
        assert (await ask("GET", "/v1/jobs", signed(own)))[0] == 200
        await gateway.reaches('colo_gateway_logins_total{result="unknown"}', 300)
    async with (
        provider_of(key_set(own), stranger.issue_cert("127.0.0.1")) as (address, asked),
        door(servers, **settings, COLO_GATEWAY_OIDC_JWKS=address) as (gateway, ask),
    ):
        status, body, _ = await ask("GET", "/v1/jobs", signed(own))
        assert (status, body["rule"]) == (503, "cannot be checked now: the keys of the issuer cannot be fetched")
        assert not asked
        await gateway.reaches('colo_gateway_logins_total{result="unavailable"}', 1)
