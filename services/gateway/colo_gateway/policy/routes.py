"""The HTTP routes of the colocation policy: show, check with a preview, apply, roll back."""

from typing import Final

from aiohttp import web
from msgspec import Struct, structs

from colo_common.events.policy import ApplyPolicy, GetPolicy, PolicyPreview, PolicyReply, PreviewPolicy, RollbackPolicy
from colo_common.model.colocation_policy import differences
from colo_common.model.invalid import InvalidInput
from colo_common.model.plain_values import mapping_of
from colo_common.model.policy_file import policy_of
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX
from colo_gateway.door.door import principal_of
from colo_gateway.policy.replies import PolicyCheck, PolicyDifference, PolicyShown, keys_shown
from colo_gateway.responses import answer_of, invalid_of, json_of, problem_of

__all__ = ["PolicyRoutes"]

_APPLY_KEYS: Final = ("by", "reason", "expected")
_ROLLBACK_KEYS: Final = ("by", "reason", "revision")


class PolicyRoutes:
    """The handlers of the policy's routes. Each sends one request to the gateway that answers first; all share one document."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def routes(self) -> list[web.RouteDef]:
        """All routes of the policy, for the aiohttp application."""
        return [
            web.get("/v1/policy", self.show),
            web.put("/v1/policy", self.apply),
            web.post("/v1/policy/check", self.check),
            web.post("/v1/policy/rollback", self.roll_back),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """GET /v1/policy."""
        try:
            mapping_of(dict(request.query), "query", ("",), within="")
        except InvalidInput as error:
            return invalid_of(error)
        return await self._shown(GetPolicy())

    async def check(self, request: web.Request) -> web.Response:
        """POST /v1/policy/check: the file is read and previewed; nothing changes."""
        try:
            mapping_of(dict(request.query), "query", ("",), within="")
            form, policy = policy_of(await _body(request))
        except InvalidInput as error:
            return invalid_of(error)
        except web.HTTPRequestEntityTooLarge:
            return _too_large()
        now = await self._asker.ask(GetPolicy())
        if not isinstance(now, PolicyReply):
            return answer_of(now)
        preview = await self._asker.ask(PreviewPolicy(policy=policy))
        return json_of(
            PolicyCheck(
                form=form,
                policy=policy,
                keys=keys_shown(policy),
                revision=now.current.revision,
                differences=tuple(
                    PolicyDifference(place=place, old=old, new=new)
                    for place, old, new in differences(now.current.policy, policy)
                ),
                preview=preview if isinstance(preview, PolicyPreview) else None,
            )
        )

    async def apply(self, request: web.Request) -> web.Response:
        """PUT /v1/policy."""
        try:
            given = mapping_of(dict(request.query), "query", _APPLY_KEYS, within="")
            form, policy = policy_of(await _body(request))
            expected = _number(given.get("expected"), "expected")
        except InvalidInput as error:
            return invalid_of(error)
        except web.HTTPRequestEntityTooLarge:
            return _too_large()
        by = _by(request, given.get("by", ""))
        asked = ApplyPolicy(policy=policy, form=form, by=by, reason=given.get("reason", ""), expected=expected)
        return await self._shown(asked)

    async def roll_back(self, request: web.Request) -> web.Response:
        """POST /v1/policy/rollback."""
        try:
            given = mapping_of(dict(request.query), "query", _ROLLBACK_KEYS, within="")
            revision = _number(given.get("revision"), "revision")
        except InvalidInput as error:
            return invalid_of(error)
        by = _by(request, given.get("by", ""))
        return await self._shown(RollbackPolicy(revision=revision, by=by, reason=given.get("reason", "")))

    async def _shown(self, asked: Struct) -> web.Response:
        reply = await self._asker.ask(asked)
        if not isinstance(reply, PolicyReply):
            return answer_of(reply)
        preview = await self._asker.ask(PreviewPolicy(limit=0))
        followed = preview.revision if isinstance(preview, PolicyPreview) else None
        reply = structs.replace(reply, followed=followed)
        return json_of(PolicyShown(reply=reply, keys=keys_shown(reply.current.policy)))


async def _body(request: web.Request) -> bytes:
    data = await request.read()
    if len(data) > BODY_BYTES_MAX:
        raise web.HTTPRequestEntityTooLarge(max_size=BODY_BYTES_MAX, actual_size=len(data))
    return data


def _too_large() -> web.Response:
    return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")


def _number(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidInput(field, "must be the number of a revision", text[:40])
    return int(text)


def _by(request: web.Request, given: str) -> str:
    """The name under which the sender was let in, whatever name the request has; without tokens the name in the request."""
    who = principal_of(request)
    return who.name if who.is_authenticated else given
