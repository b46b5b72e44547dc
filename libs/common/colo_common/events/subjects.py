"""Subject templates. Only this module composes and parses NATS subjects."""

import re
from functools import lru_cache
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["PREFIX", "Subject", "decode_node", "encode_node", "matches"]

PREFIX: Final = "colo.v1"
_KINDS: Final = ("tlm", "evt", "cmd", "req")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,253}")
_TEMPLATE_TOKEN: Final = re.compile(r"[a-z0-9-]+|\{[a-z]+\}")
_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def encode_node(node: str) -> str:
    """The node name as one token: "." becomes "_". Raises InvalidInput unless it is a DNS-1123 name of at most 253 characters."""
    if len(node) > 253 or not _NODE.fullmatch(node):
        raise InvalidInput("node", "must be a DNS-1123 name of at most 253 characters (a-z, 0-9, '-', '.')", node)
    return node.replace(".", "_")


def decode_node(token: str) -> str:
    """The node name of a token from `encode_node`."""
    return token.replace("_", ".")


@lru_cache(maxsize=65_536)
def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern: "*" matches one token, a final ">" one or more."""
    wanted = pattern.split(".")
    tokens = subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(each in ("*", token) for each, token in zip(wanted, tokens, strict=False))


class Subject:
    """A subject template such as "tlm.node.{node}.usage", without the prefix.

    `of` fills it, `wildcard` gives the subject to subscribe to, `parse` reads the parameters of a concrete subject. The parameter
    `node` is encoded by `encode_node`.
    """

    def __init__(self, template: str) -> None:
        tokens = template.split(".")
        if tokens[0] not in _KINDS:
            raise InvalidInput("subject", f"must begin with one of {', '.join(_KINDS)}", template)
        for token in tokens:
            if not _TEMPLATE_TOKEN.fullmatch(token):
                raise InvalidInput("subject", "tokens are a-z, 0-9, '-' or one {parameter}", template)
        self.template = f"{PREFIX}.{template}"
        self._tokens = tuple(self.template.split("."))
        self.parameters = tuple(token[1:-1] for token in self._tokens if token.startswith("{"))

    @property
    def kind(self) -> str:
        """tlm, evt, cmd or req."""
        return self._tokens[2]

    @property
    def domain(self) -> str:
        """What it is about: the word after the kind ("node", "job", "eviction")."""
        return self._tokens[3]

    def of(self, **parameters: str) -> str:
        """The concrete subject. Raises InvalidInput for a missing, unknown or unsafe parameter."""
        if set(parameters) != set(self.parameters):
            raise InvalidInput("subject", f"{self.template} needs exactly {list(self.parameters)}", sorted(parameters))
        return ".".join(self._fill(token, parameters) if token.startswith("{") else token for token in self._tokens)

    def wildcard(self, **parameters: str) -> str:
        """The subject with "*" for every parameter that is not given."""
        tokens = []
        for token in self._tokens:
            given = token.startswith("{") and token[1:-1] in parameters
            tokens.append(self._fill(token, parameters) if given else "*" if token.startswith("{") else token)
        return ".".join(tokens)

    def parse(self, subject: str) -> dict[str, str] | None:
        """The parameters of a concrete subject, or None when the subject does not match this template."""
        tokens = subject.split(".")
        if len(tokens) != len(self._tokens):
            return None
        found: dict[str, str] = {}
        for mine, theirs in zip(self._tokens, tokens, strict=True):
            if mine.startswith("{"):
                if not _TOKEN.fullmatch(theirs):
                    return None
                found[mine[1:-1]] = decode_node(theirs) if mine == "{node}" else theirs
            elif mine != theirs:
                return None
        return found

    def _fill(self, token: str, parameters: dict[str, str]) -> str:
        name = token[1:-1]
        value = encode_node(parameters[name]) if name == "node" else parameters[name]
        if not _TOKEN.fullmatch(value):
            raise InvalidInput(f"subject.{name}", "must be one token of A-Z a-z 0-9 _ -", value)
        return value

    def __repr__(self) -> str:
        return f"Subject({self.template!r})"
