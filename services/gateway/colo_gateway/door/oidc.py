"""JSON Web Tokens of an identity provider, by the library PyJWT: `pip install 'colo[oidc]'`.

A token is taken when the provider's key signed it for this audience and its time has not passed. Claims say who it is and what it
may: the role, tenants and queues. Without a role or a tenant it may nothing; without queues it is for all queues of its tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.issuer_keys import IssuerKeys, KeysUnavailable, fetch_over_https
from colo_gateway.door.key_file import KeyFile
from colo_gateway.door.principal import ALL, Principal, Role
from colo_gateway.door.tokens import BadToken

__all__ = ["OidcPolicy", "OidcTokens", "is_jwt"]

# Signatures that a secret shared with the provider could forge (HS256) or that sign nothing (none) are not among them.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "EdDSA")
_LEEWAY_S: Final = 30
_BYTES_MOST: Final = 16_384
_SCOPE_MOST: Final = 100


class OidcPolicy(Struct, frozen=True, kw_only=True):
    """`issuer` is the provider ("": no such tokens), `audience` its name for colo, `jwks` the address or file of its keys.

    The claims `name_claim`, `role_claim`, `tenants_claim` and `queues_claim` hold the name, one of viewer, submitter and operator,
    and lists of names, "*" for all.
    """

    issuer: str = ""
    audience: str = "colo"
    jwks: str = ""
    name_claim: str = "sub"
    role_claim: str = "colo_role"
    tenants_claim: str = "colo_tenants"
    queues_claim: str = "colo_queues"

    def validate(self) -> None:
        """Raise InvalidInput when the keys are missing or would come over an open line."""
        if not self.issuer:
            return
        if not self.jwks:
            raise InvalidInput("oidc_jwks", "must be the address (https://) or the file of the issuer's keys", "")
        if self.jwks.startswith("http://"):
            raise InvalidInput(
                "oidc_jwks", "must be https:// or a file: whoever changes the keys can make any token", self.jwks
            )
        if not self.audience:
            raise InvalidInput("oidc_audience", "must be given, else a token for another program would be taken", "")


def is_jwt(token: str) -> bool:
    """Whether the token has the form of a signed JWT."""
    return token.count(".") == 2 and len(token) <= _BYTES_MOST


class OidcTokens:
    """Checks the tokens of one provider. The constructor raises InvalidInput without the library or a readable file of keys."""

    def __init__(self, policy: OidcPolicy) -> None:
        try:
            import jwt
        except ImportError as error:
            raise InvalidInput(
                "oidc_issuer", "needs the library PyJWT: pip install 'colo[oidc]'", policy.issuer
            ) from error
        self._jwt = jwt
        self._policy = policy
        self._file: KeyFile | None = None
        self._issuer: IssuerKeys | None = None
        if policy.jwks.startswith("https://"):
            self._issuer = IssuerKeys(self._fetched, lambda: asyncio.get_running_loop().time())
            return
        try:
            self._file = KeyFile(Path(policy.jwks), self._keys_of)
        except (OSError, ValueError) as error:
            raise InvalidInput("oidc_jwks", f"must be a readable JSON Web Key Set: {error}", policy.jwks) from error

    async def principal(self, token: str) -> Principal:
        """Whose token it is. Raises BadToken with the reason; `unavailable` when the keys cannot be fetched now."""
        jwt, policy = self._jwt, self._policy
        try:
            key = await self._key(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=policy.audience,
                issuer=policy.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", policy.name_claim]},
            )
        except jwt.ExpiredSignatureError as error:
            raise BadToken("expired", "has expired") from error
        except KeysUnavailable as error:
            raise BadToken("unavailable", "cannot be checked now: the keys of the issuer cannot be fetched") from error
        except KeyError as error:
            raise BadToken("unknown", "is not taken: its issuer has no key of the name that it gives") from error
        except jwt.PyJWTError as error:
            raise BadToken("unknown", f"is not taken: {' '.join(str(error).split())[:200]}") from error
        except TypeError as error:
            # So the library says that the token names an algorithm of another kind of key.
            raise BadToken("unknown", "is not taken: the key that it names is for another algorithm") from error
        return self._principal_of(claims)

    async def _key(self, token: str) -> Any:
        """The key that the token names. Raises KeyError, KeysUnavailable, or what the library raises for what is no token."""
        name = str(self._jwt.get_unverified_header(token).get("kid", ""))
        if self._file is not None:
            return self._file.keys(asyncio.get_running_loop().time())[name]
        if self._issuer is None:
            raise KeysUnavailable
        return await self._issuer.key(name)

    async def _fetched(self) -> Mapping[str, Any]:
        return self._keys_of(await fetch_over_https(self._policy.jwks))

    def _keys_of(self, text: bytes) -> Mapping[str, Any]:
        """The keys of a JSON Web Key Set by their names. Raises ValueError for what is none."""
        try:
            found = self._jwt.PyJWKSet.from_dict(msgspec.json.decode(text, type=dict[str, Any]))
        except (msgspec.MsgspecError, self._jwt.PyJWTError, AttributeError, TypeError) as error:
            # The library looks into whatever stands in the place of a key.
            raise ValueError(str(error)) from error
        return {key.key_id: key.key for key in found.keys if key.key_id and key.public_key_use in ("sig", None)}

    def _principal_of(self, claims: dict[str, Any]) -> Principal:
        policy = self._policy
        name = str(claims[policy.name_claim])[:63]
        role = claims.get(policy.role_claim)
        if role not in [each.value for each in Role]:
            raise BadToken(
                "no-role", f"gives no role: the claim {policy.role_claim} must be viewer, submitter or operator", name
            )
        if role == Role.OPERATOR.value:
            return Principal(name=name, role=Role.OPERATOR)
        tenants, queues = _names(claims, policy.tenants_claim), _names(claims, policy.queues_claim) or (ALL,)
        if not tenants:
            raise BadToken(
                "no-role", f"gives no tenant: the claim {policy.tenants_claim} must name one or several", name
            )
        return Principal(name=name, role=Role(role), tenants=tenants, queues=queues)


def _names(claims: dict[str, Any], claim: str) -> tuple[str, ...]:
    """The names of a claim: a list, or a text with spaces between them. Without the claim none."""
    value = claims.get(claim, ())
    found = value.split() if isinstance(value, str) else value
    return tuple(str(each) for each in list(found)[:_SCOPE_MOST]) if isinstance(found, (list, tuple)) else ()
