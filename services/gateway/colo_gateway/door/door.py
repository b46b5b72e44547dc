"""The door of the gateway: every request passes it once, before its handler and after it."""

import asyncio
import functools
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from colo_common.events import requests as rq
from colo_common.events.audit import RequestAudited
from colo_common.runtime.metrics import Metrics
from colo_gateway.ask import Asker
from colo_gateway.door.audit import Auditor
from colo_gateway.door.forwarded import Network, address_of
from colo_gateway.door.oidc import OidcTokens, is_jwt
from colo_gateway.door.origin import is_cross_origin, is_own_host
from colo_gateway.door.principal import OPEN, Principal, Right
from colo_gateway.door.rate import AddressLimits
from colo_gateway.door.rights import is_change, right_of
from colo_gateway.door.token_file import TokenFile
from colo_gateway.door.tokens import BadToken
from colo_gateway.responses import answer_of, problem_of

__all__ = ["Door", "note_tenant", "principal_of", "why_ended"]

_REQUEST_ID: Final = "X-Request-Id"
_FORWARDED_FOR: Final = "X-Forwarded-For"
_GOOD_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PRINCIPAL: Final = "colo.principal"
_TENANT: Final = "colo.tenant"
_TOKEN: Final = "colo.token"
_PATH_MOST: Final = 200
_JOB_ID_MOST: Final = 80


def principal_of(request: web.Request) -> Principal:
    """The sender of the request."""
    found: Principal = request.get(_PRINCIPAL, OPEN)
    return found


def note_tenant(request: web.Request, tenant: str) -> None:
    """Say for the audit whose job the request is about."""
    request[_TENANT] = tenant


async def why_ended(request: web.Request) -> str:
    """Why the sender of a request that is still being answered would not be let in any more; empty while he would."""
    look: Callable[[], Awaitable[str]] | None = request.get(_TOKEN)
    return await look() if look is not None else ""


class _Knock(Struct, frozen=True, kw_only=True):
    """What is known of a request before its sender is."""

    id: str
    address: str
    path: str


class Door:
    """Limits requests for each address, finds out who asks, refuses what he may not do, and has every change written down.

    `now_ms` is the wall clock, `audited_at_ms` the clock of facts. `tokens` and `oidc` None: nobody is asked who he is. `is_local`:
    the gateway listens on this machine alone. Of `proxies` the header X-Forwarded-For is believed. A token of colo that is good is
    let in however many bad ones came from the same address; one of the identity provider waits for its address.
    """

    def __init__(
        self,
        *,
        asker: Asker,
        auditor: Auditor,
        metrics: Metrics,
        now_ms: Callable[[], int],
        audited_at_ms: Callable[[], int],
        tokens: TokenFile | None,
        oidc: OidcTokens | None,
        is_local: bool,
        requests: AddressLimits,
        failures: AddressLimits,
        proxies: Sequence[Network] = (),
    ) -> None:
        self._asker = asker
        self._auditor = auditor
        self._now_ms = now_ms
        self._audited_at_ms = audited_at_ms
        self._tokens = tokens
        self._oidc = oidc
        self._is_local = is_local
        self._requests = requests
        self._failures = failures
        self._proxies = proxies
        self._logins = metrics.counter(
            "colo_gateway_logins_total", "requests by what became of their token", ("result",)
        )

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked who he is."""
        return self._tokens is None and self._oidc is None

    def middleware(self) -> Middleware:
        """The middleware, to be the outermost one."""

        @web.middleware
        async def pass_door(request: web.Request, handler: Handler) -> web.StreamResponse:
            given = request.headers.get(_REQUEST_ID, "")
            resource = request.match_info.route.resource
            knock = _Knock(
                id=given if _GOOD_ID.fullmatch(given) else secrets.token_hex(8),
                address=address_of(request.remote or "", request.headers.getall(_FORWARDED_FOR, ()), self._proxies),
                path=resource.canonical if resource is not None else "",
            )
            response = await self._pass(request, handler, knock)
            if not response.prepared:
                response.headers[_REQUEST_ID] = knock.id
            return response

        return pass_door

    async def _pass(self, request: web.Request, handler: Handler, knock: _Knock) -> web.StreamResponse:
        now_s = asyncio.get_running_loop().time()
        right = right_of(request.method, knock.path)
        if right is not Right.PUBLIC:
            wait_s = self._requests.take(knock.address, now_s)
            if wait_s:
                self._logins.labels("limited").inc()
                return _later("requests", "come too fast from this address", wait_s)
        if is_cross_origin(request.headers.get(hdrs.ORIGIN, ""), request.host):
            return problem_of(403, "origin", "is another site, and none but the gateway's own may use it")
        if right is Right.PUBLIC:
            return await handler(request)
        if self.is_open and self._is_local and not is_own_host(request.host):
            rule = "must be localhost or 127.0.0.1: without tokens the gateway is for this machine alone"
            return problem_of(403, "host", rule, request.host[:80])
        try:
            principal = await self._principal(request, knock, now_s)
        except BadToken as bad:
            return await self._refuse(request, knock, bad, now_s)
        request[_PRINCIPAL] = principal
        if principal.is_authenticated:
            request[_TOKEN] = functools.partial(self._why_ended, _token_of(request)[1])
        refusal = principal.refusal(right) or await self._refusal_of_job(request, principal)
        response = answer_of(refusal) if refusal is not None else await handler(request)
        is_forbidden = response.status == web.HTTPForbidden.status_code
        if is_forbidden:
            self._logins.labels("forbidden").inc()
        if is_forbidden or is_change(request.method, knock.path):
            await self._auditor.changed(self._fact(request, knock, principal, response))
        return response

    async def _principal(self, request: web.Request, knock: _Knock, now_s: float) -> Principal:
        """The sender of the request. Raises BadToken."""
        if self.is_open:
            return OPEN
        scheme, token = _token_of(request)
        if not token:
            raise BadToken("missing", "is needed: --token, COLO_TOKEN, or the header Authorization: Bearer TOKEN")
        if scheme.lower() != "bearer":
            raise BadToken("malformed", "must be sent as Authorization: Bearer TOKEN")
        # A signature costs a thousand times a digest: after many bad ones of an address the next is not looked at.
        if self._oidc is not None and is_jwt(token) and self._failures.wait_s(knock.address, now_s):
            raise BadToken("limited", "was wrong too often from this address")
        found = await self._owner(token, now_s)
        self._logins.labels("ok").inc()
        return found

    async def _owner(self, token: str, now_s: float) -> Principal:
        """Whose token it is. Raises BadToken."""
        if self._oidc is not None and is_jwt(token):
            return await self._oidc.principal(token)
        if self._tokens is not None:
            return self._tokens.book(now_s).principal(token, self._now_ms())
        raise BadToken("malformed", "must be one of the identity provider")

    async def _why_ended(self, token: str) -> str:
        """Why a token that was taken is not taken now; empty while it is, also while the issuer's keys cannot be fetched."""
        try:
            await self._owner(token, asyncio.get_running_loop().time())
        except BadToken as bad:
            if bad.kind != "unavailable":
                self._logins.labels(bad.kind).inc()
                return str(bad)
        return ""

    async def _refusal_of_job(self, request: web.Request, principal: Principal) -> rq.Refusal | None:
        """Why the principal may have nothing to do with the job that the path names; None when he may, or when there is none."""
        job = request.match_info.get("job", "")
        if not job or principal.is_for_all:
            return None
        found = await self._asker.ask(rq.GetJob(job=job[:_JOB_ID_MOST]))
        if isinstance(found, rq.JobDetail):
            note_tenant(request, found.spec.tenant)
            return principal.refusal_of_job(found.spec.tenant, found.spec.queue)
        return found if isinstance(found, rq.Refusal) and found.code != 404 else None

    async def _refuse(self, request: web.Request, knock: _Knock, bad: BadToken, now_s: float) -> web.Response:
        """The answer to a token that is not taken. One address may fail a few times at once, then it is told to wait."""
        self._logins.labels(bad.kind).inc()
        wait_s = self._failures.take(knock.address, now_s)
        if wait_s:
            response = _later("token", f"{bad}, and was wrong too often from this address", wait_s)
        elif bad.kind == "unavailable":
            response = problem_of(503, "token", str(bad))
        else:
            response = problem_of(401, "token", str(bad))
            response.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="colo"'
        who = Principal(name=bad.name, role=OPEN.role, token=bad.token)
        await self._auditor.refused(self._fact(request, knock, who, response, is_known=False), now_s)
        return response

    def _fact(
        self,
        request: web.Request,
        knock: _Knock,
        who: Principal,
        response: web.StreamResponse,
        *,
        is_known: bool = True,
    ) -> RequestAudited:
        how = "open" if not who.is_authenticated else "token" if who.token or not is_known else "oidc"
        body = response.body if isinstance(response, web.Response) else None
        outcome = _outcome_of(body if isinstance(body, bytes) else b"")
        job = request.match_info.get("job", "") or outcome.job
        return RequestAudited(
            at_ms=self._audited_at_ms(),
            who=who.name or "unknown",
            how=how,
            token=who.token,
            role=who.role.value if is_known else "",
            address=knock.address,
            request=knock.id,
            method=request.method,
            path=request.path[:_PATH_MOST],
            status=response.status,
            reason=" ".join(part for part in (outcome.field, outcome.rule) if part) if response.status >= 400 else "",
            tenant=request.get(_TENANT, ""),
            job=job[:_JOB_ID_MOST],
            node=request.match_info.get("node", "")[:_PATH_MOST],
        )


def _token_of(request: web.Request) -> tuple[str, str]:
    """The scheme and the token that a request names, each "" without one."""
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return scheme, token.strip()


class _Outcome(Struct, frozen=True):
    """What the audit reads from a response: the job of an accepted submission, or why it was refused."""

    job: str = ""
    field: str = ""
    rule: str = ""


def _outcome_of(body: bytes) -> _Outcome:
    try:
        return msgspec.json.decode(body, type=_Outcome)
    except msgspec.MsgspecError:
        return _Outcome()


def _later(field: str, rule: str, wait_s: float) -> web.Response:
    response = problem_of(429, field, rule)
    response.headers[hdrs.RETRY_AFTER] = str(max(1, round(wait_s + 0.5)))
    return response
