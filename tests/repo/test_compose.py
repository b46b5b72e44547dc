"""compose.yaml keeps the promises of its README: loopback ports, no privilege, no secret, limits, health checks."""

from __future__ import annotations

import re

import yaml

from colo_cli.bus_config import STORES
from colo_cli.bus_rights import NODE_ROLES, ROLES
from colo_executor.process.machine import account_of_name
from colo_executor.process.run_as import account_of, check_users
from tests.repo.tree import ROOT, SERVICES

FOLDER = ROOT / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
CONTAINERS = COMPOSE["services"]
CAPABILITIES = {
    "secrets": {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
    "executor": {"SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_NICE"},
}


def test_every_service_stands_by_itself_and_may_be_scaled():
    assert set(SERVICES) <= CONTAINERS.keys()
    for name in SERVICES:
        assert CONTAINERS[name]["command"] == [name]
        assert "container_name" not in CONTAINERS[name]
        assert name == "gateway" or "ports" not in CONTAINERS[name]


def test_ports_are_on_the_loopback_address_only():
    ports = [port for each in CONTAINERS.values() for port in each.get("ports", ())]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_nobody_has_more_rights_than_named_here():
    for name, each in CONTAINERS.items():
        assert "privileged" not in each, name
        assert each["cap_drop"] == ["ALL"], name
        assert set(each.get("cap_add", ())) == CAPABILITIES.get(name, set()), name
        assert each["security_opt"] == ["no-new-privileges:true"], name
        assert each["read_only"] is True, name
        assert each["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
    roots = {name for name, each in CONTAINERS.items() if str(each.get("user")).startswith("0")}
    assert roots == {"secrets", "executor"}


def test_everybody_who_serves_has_a_health_check_and_waits_for_its_servers():
    without = {name for name, each in CONTAINERS.items() if "healthcheck" not in each}
    assert without == {"secrets", "streams"}, "those that end"
    for name in (*SERVICES, "sim", "feed"):
        conditions = {server: each["condition"] for server, each in CONTAINERS[name]["depends_on"].items()}
        # `up --wait` takes a program that ends for a failure unless somebody waits for its end.
        last = {"streams": "service_completed_successfully"} if name == "gateway" else {}
        assert conditions == {
            "secrets": "service_completed_successfully",
            "nats": "service_started",
            "redis": "service_started",
            **last,
        }


def test_what_engines_before_25_do_not_know_is_not_in_the_file():
    # Compose refuses it there; README.md says 20.10 or later.
    checks = [each["healthcheck"] for each in CONTAINERS.values() if "healthcheck" in each]
    assert checks
    assert not any("start_interval" in check for check in checks)


def test_the_profiles_are_the_three_that_the_readme_names():
    profiles = {profile for each in CONTAINERS.values() for profile in each.get("profiles", ())}
    assert profiles == {"minimal", "observe", "real"}
    assert "COMPOSE_PROFILES=observe" in (FOLDER / ".env").read_text()
    # `down` leaves what is of other profiles than those that are named, or than that one.
    removal = re.search(r"after `real` `docker compose (.*?) down -v`", (FOLDER / "README.md").read_text())
    named = set(re.findall(r"--profile ([a-z]+)", removal[1]))
    assert all(named & set(each["profiles"]) for each in CONTAINERS.values() if "profiles" in each)


def test_no_secret_is_in_the_folder():
    text = "".join(path.read_text() for path in sorted(FOLDER.rglob("*")) if path.is_file())
    assert not re.findall(r"(?:password|requirepass|token)[\"']?\s*[:=]?\s+[\"']?[0-9a-zA-Z]{12,}", text, re.IGNORECASE)
    assert "PRIVATE KEY" not in text


def test_every_program_is_a_user_of_its_own_and_has_nobody_elses_key():
    role_of = {"sim": "simulator", "streams": "admin"}
    for name in (*SERVICES, "sim", "feed", "streams"):
        role, each = role_of.get(name, name), CONTAINERS[name]
        secrets = [volume for volume in each["volumes"] if volume.startswith("secrets-")]
        assert secrets == [f"secrets-{role}:/etc/colo:ro"], name
        assert each["environment"]["COLO_NATS_NKEY_FILE"] == "/etc/colo/nkey"
        stores = role in STORES and role != "admin"
        assert each["environment"].get("COLO_REDIS_USER") == (role if stores else None), name
    # The auditor is a second user of the gateway, and its key is with the gateway's.
    users = {*ROLES, *NODE_ROLES} - {"listener", "workload", "auditor"}
    assert {volume.partition(":")[0] for volume in CONTAINERS["secrets"]["volumes"] if "/secrets/" in volume} == {
        f"secrets-{reader}" for reader in (*users, "nats", "redis", "grafana", "all")
    }
    script = (FOLDER / "secrets.sh").read_text()
    assert "put $users/auditor.nkey /secrets/gateway/auditor-nkey" in script
    assert CONTAINERS["gateway"]["environment"]["COLO_GATEWAY_NATS_AUDIT_NKEY_FILE"] == "/etc/colo/auditor-nkey"
    assert set(re.search(r'^roles="(.+)"$', script, re.MULTILINE)[1].split()) == users - set(NODE_ROLES)
    assert 'include "secrets/nats-users.conf"' in (FOLDER / "nats.conf").read_text()
    assert "\naclfile /etc/redis/secrets/redis-users.acl\n" in (FOLDER / "redis.conf").read_text()


def test_streams_have_one_owner_and_jobs_are_not_root():
    assert CONTAINERS["streams"]["command"] == ["admin", "upgrade"]
    default = CONTAINERS["executor"]["environment"]["COLO_EXECUTOR_PROCESS_USERS"]
    users = dict(re.findall(r"([*a-z]+)=([^,}]+)", default))
    check_users(users, account_of_name)
    assert account_of(users, "anybody", "job", account_of_name).uid > 0


def test_nats_and_redis_keep_what_they_acknowledge_and_speak_tls():
    nats, redis = ((FOLDER / name).read_text() for name in ("nats.conf", "redis.conf"))
    assert "sync_interval: always" in nats
    assert "tls {" in nats
    assert re.search(r"^appendonly yes$", redis, re.MULTILINE)
    assert re.search(r"^port 0$", redis, re.MULTILINE)
    assert re.search(r"^maxmemory-policy noeviction$", redis, re.MULTILINE)


def test_prometheus_asks_every_service():
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    asked = {name for each in config["scrape_configs"][0]["dns_sd_configs"] for name in each["names"]}
    assert asked == {*SERVICES, "sim", "feed"}
