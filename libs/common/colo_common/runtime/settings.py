"""Settings of a service: defaults < file < environment < flags. All problems are reported at once."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from colo_common.model.freshness import FORGET_NODE_MS
from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import nearest
from colo_common.runtime.setting_values import struct_of, value_of, value_of_text

__all__ = ["BadSettings", "Common", "common_of", "keys_of", "kinds_of", "load"]

Settings = TypeVar("Settings", bound=Struct)

# A nested struct of this name adds its keys without a prefix; any other nested struct adds them with its name as a prefix.
_FLAT: Final = "common"


class Common(Struct, frozen=True, kw_only=True):
    """The settings of every process. Embed it (`common: Common = Common()`) or inherit from it.

    `http_port` 0 takes a free port, which the log names; below 0: no HTTP. `clock_speed` above 1 is a lab: now = origin + (wall -
    origin) x speed; in a `clock_pace_file` the lab says how fast the clock runs now. `trace_ratio` is the share of placements
    whose spans are kept. `forget_node_ms`: a node that is lost for so long and holds nothing is forgotten by every service that
    keeps nodes (0: never).

    `nats_url` is several addresses of one cluster, separated by commas; `redis_url` may be redis+sentinel://host:26379,.../NAME.
    A `..._file` is a path: certificates and keys in PEM, credentials of NATS (.creds or the seed of an nkey), passwords on their
    first line. `stream_replicas` servers keep each stream (1, 3 or 5), in `stream_disk_bytes` of disk for
    all of them (0: as stated by `colo admin`); with `redis_must_append` a Redis without an
    append-only file is a reason not to be ready, and a write of it counts when `redis_min_replicas` replicas
    have it as well (None: one behind sentinels, else none). `insecure_servers` lets servers of other machines be used without
    credentials.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_ca_file: str = ""
    nats_cert_file: str = ""
    nats_key_file: str = ""
    nats_creds_file: str = ""
    nats_nkey_file: str = ""
    nats_user: str = ""
    nats_password_file: str = ""
    stream_replicas: Literal[1, 3, 5] = 1
    stream_disk_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_ca_file: str = ""
    redis_cert_file: str = ""
    redis_key_file: str = ""
    redis_user: str = ""
    redis_password_file: str = ""
    redis_sentinel_password_file: str = ""
    redis_must_append: bool = False
    insecure_servers: bool = False
    redis_min_replicas: Annotated[int, msgspec.Meta(ge=0, le=5)] | None = None
    http_host: str = "127.0.0.1"
    http_port: int = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    clock_speed: float = 1.0
    clock_origin_ms: int = 0
    clock_pace_file: str = ""
    otlp_endpoint: str = ""
    trace_ratio: float = 1.0
    forget_node_ms: int = FORGET_NODE_MS


class BadSettings(InvalidInput):
    """Every setting that breaks a rule, one a line; `problems` has them apart."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("settings", "; ".join(problems), None)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


def load(
    settings: type[Settings],
    service: str,
    argv: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    file: Path | str | None = None,
) -> Settings:
    """The settings of a service.

    A key comes from a flag (`--nats-url X`, `--nats-url=X`, `--flag`, `--no-flag`), else COLO_<SERVICE>_NATS_URL, else
    COLO_NATS_URL, else the file's section named like the service, else the file's top level, else its default. The file (YAML or
    TOML) is `file`, else `--config`, else COLO_CONFIG. Text becomes numbers, booleans, `a,b` tuples and `k=v,k=v` maps by the
    key's type; where the values are structs it is JSON. A `validate()` of the settings is called. Raises BadSettings with
    everything that is wrong.
    """
    found = _Reader(_fields(settings), service)
    flags = found.flags(argv)
    environ = environ or {}
    path = file or flags.pop("config", "") or environ.get("COLO_CONFIG", "")
    if path:
        found.take_file(Path(path))
    found.take_environment(environ)
    found.take_flags(flags)
    built = found.build(settings)
    if found.problems or built is None:
        raise BadSettings(found.problems)
    return built


def keys_of(settings: type[Struct]) -> dict[str, Any]:
    """Every key with its default (msgspec.NODEFAULT: it must be given), in order."""
    return {key: field.default for key, (_path, field) in _fields(settings).items()}


def kinds_of(settings: type[Struct]) -> dict[str, Any]:
    """Every key with the type that its value has to have, as its struct annotates it, in order."""
    return {key: field.kind for key, (_path, field) in _fields(settings).items()}


def common_of(settings: Struct) -> Common:
    """The common part of loaded settings. Raises TypeError when they neither embed nor inherit it."""
    if isinstance(settings, Common):
        return settings
    embedded = getattr(settings, _FLAT, None)
    if isinstance(embedded, Common):
        return embedded
    raise TypeError(f"{type(settings).__name__} has no common settings")


class _Field(Struct, frozen=True):
    kind: Any
    default: Any


_Fields = dict[str, tuple[tuple[str, ...], _Field]]


def _fields(settings: type[Struct], path: tuple[str, ...] = (), prefix: str = "") -> _Fields:
    """Key -> its path in the struct, and its type and default."""
    found: _Fields = {}
    for info in msgspec.structs.fields(settings):
        inner = struct_of(info.type)
        if inner is not None:
            deeper = prefix if info.name == _FLAT else f"{prefix}{info.name}_"
            found |= _fields(inner, (*path, info.name), deeper)
            continue
        default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
        found[f"{prefix}{info.name}"] = ((*path, info.name), _Field(info.type, default))
    return found


class _Reader:
    """Collects values from one source after the other, a later one overriding, and the problems of all of them."""

    def __init__(self, fields: _Fields, service: str) -> None:
        self.problems: list[str] = []
        self._fields = fields
        self._service = service
        self._values: dict[str, Any] = {}

    def flags(self, argv: Sequence[str]) -> dict[str, str]:
        """Flags as key -> text; unknown ones are noted as problems."""
        found: dict[str, str] = {}
        rest = list(argv)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.removeprefix("--").partition("=")
            key = name.replace("-", "_")
            if not word.startswith("--") or not name:
                self.problems.append(f"{word}: flags look like --key VALUE or --key=VALUE")
            elif key != "config" and key not in self._fields and key.removeprefix("no_") in self._fields and not equals:
                found[key.removeprefix("no_")] = "false"
            elif key != "config" and key not in self._fields:
                self.problems.append(f"--{name}: there is no such setting{self._hint(key)}")
                if not equals and rest and not rest[0].startswith("--"):
                    rest.pop(0)
            elif equals:
                found[key] = value
            elif key != "config" and self._fields[key][1].kind is bool:
                found[key] = "true"
            elif rest:
                found[key] = rest.pop(0)
            else:
                self.problems.append(f"--{name}: needs a value")
        return found

    def take_flags(self, flags: Mapping[str, str]) -> None:
        """Values from flags."""
        for key, text in flags.items():
            self._take_text(key, text, f"--{key.replace('_', '-')}")

    def take_environment(self, environ: Mapping[str, str]) -> None:
        """Values from the environment; a name with the service in it wins over the plain one, and must be known."""
        own = f"COLO_{self._service.upper().replace('-', '_')}_"
        for key in self._fields:
            name = f"COLO_{key.upper()}"
            if name in environ:
                self._take_text(key, environ[name], name)
        for name in sorted(environ):
            key = name.removeprefix(own).lower()
            if not name.startswith(own) or f"COLO_{key.upper()}" == name:
                continue
            if key in self._fields:
                self._take_text(key, environ[name], name)
            else:
                self.problems.append(f"{name}: there is no such setting{self._hint(key)}")

    def take_file(self, path: Path) -> None:
        """Values from a YAML or TOML file: its top level, then the section named like the service."""
        try:
            content = _read_file(path)
        except (OSError, ValueError) as error:
            self.problems.append(f"{path}: must be a readable YAML or TOML file: {error}")
            return
        if not isinstance(content, dict):
            self.problems.append(f"{path}: must hold keys and values at its top level")
            return
        own = content.get(self._service)
        # A table that is no setting of this service is the section of another one.
        plain = {key: value for key, value in content.items() if not isinstance(value, dict) or self._is_ours(key)}
        self._take_table(plain, str(path), "")
        if isinstance(own, dict):
            self._take_table(own, f"{path}: {self._service}", "")

    def build(self, settings: type[Settings]) -> Settings | None:
        """The struct, or None with problems noted."""
        missing = [
            key
            for key, (_path, field) in self._fields.items()
            if key not in self._values and field.default is msgspec.NODEFAULT
        ]
        for key in missing:
            self.problems.append(f"{key}: must be given (--{key.replace('_', '-')} or COLO_{key.upper()})")
        if self.problems:
            return None
        nested: dict[str, Any] = {}
        for key, value in self._values.items():
            where = nested
            *path, name = self._fields[key][0]
            for step in path:
                where = where.setdefault(step, {})
            where[name] = value
        built = _construct(settings, nested)
        validate = getattr(built, "validate", None)
        if validate is not None:
            try:
                validate()
            except InvalidInput as error:
                self.problems.append(str(error))
        return built

    def _take_table(self, table: Mapping[str, Any], where: str, prefix: str) -> None:
        for name, value in table.items():
            key = f"{prefix}{str(name).replace('-', '_')}"
            if key in self._fields:
                self._take_value(key, value, f"{where}: {key}")
            elif isinstance(value, dict) and any(known.startswith(f"{key}_") for known in self._fields):
                self._take_table(value, where, f"{key}_")
            else:
                self.problems.append(f"{where}: {key}: there is no such setting{self._hint(key)}")

    def _take_text(self, key: str, text: str, where: str) -> None:
        try:
            self._values[key] = value_of_text(text, self._fields[key][1].kind, where)
        except InvalidInput as error:
            self.problems.append(str(error))

    def _take_value(self, key: str, value: Any, where: str) -> None:
        try:
            self._values[key] = value_of(value, self._fields[key][1].kind, where, strict=True)
        except InvalidInput as error:
            self.problems.append(str(error))

    def _is_ours(self, key: str) -> bool:
        name = key.replace("-", "_")
        return name in self._fields or any(known.startswith(f"{name}_") for known in self._fields)

    def _hint(self, key: str) -> str:
        near = nearest(key, self._fields)
        return f"; did you mean {near}?" if near else ""


def _construct(settings: type[Settings], values: Mapping[str, Any]) -> Settings:
    arguments: dict[str, Any] = {}
    for info in msgspec.structs.fields(settings):
        inner = struct_of(info.type)
        if inner is not None:
            arguments[info.name] = _construct(inner, values.get(info.name, {}))
        elif info.name in values:
            arguments[info.name] = values[info.name]
    return settings(**arguments)


def _read_file(path: Path) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())
    import yaml

    try:
        return yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
