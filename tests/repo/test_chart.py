"""The chart: valid for three Kubernetes versions, current where it is rendered, and no more rights than it names.

helm, kubeconform and the schemas are not part of the test environment: HELM, KUBECONFORM and KUBERNETES_SCHEMAS (the wheel
kubernetes-validate) name them, else the PATH; without them these tests say that they prove nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from colo_cli.bus_rights import CONTROL, NODE_ROLES
from colo_cli.credentials_kubernetes import secrets_of
from colo_cli.credentials_store import read_users
from colo_cli.main import main
from colo_common.runtime.access import check_reach
from colo_common.runtime.settings import Common, load
from colo_executor.process.machine import account_of_name
from colo_executor.process.run_as import account_of, check_users
from colo_executor.settings import ExecutorSettings
from tests.repo.tree import ROOT

K8S = ROOT / "k8s"
CHART = K8S / "colo"
VERSIONS = ("1.29", "1.31", "1.34")
ALL = (
    "executor.enabled=true",
    "executor.outputDir=/srv/jobs",
    "executor.nodeDevices=true",
    "nodes.resctrl=true",
    "executor.unmanaged[0].group=user.slice",
    "executor.unmanaged[0].clear_of_own_cpus=true",
    "monitoring.enabled=true",
    "otlpEndpoint=http://tempo:4318",
    "nats.existingSecret=nats",
    "nats.caKey=ca.crt",
)
AGENT_CAPABILITIES = ["SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_NICE"]


def tool(name: str) -> str:
    found = os.environ.get(name.upper()) or shutil.which(name)
    if not found:
        pytest.skip(f"NOT PROVED: {name} is neither on the PATH nor in {name.upper()}")
    return found


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("helm"), *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@cache
def rendered(version: str = "1.31", *settings: str) -> str:
    words = [word for setting in settings for word in ("--set", setting)]
    done = helm("template", "colo", str(CHART), "--namespace", "colo", "--kube-version", f"{version}.0", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def everything(version: str = "1.31") -> tuple[dict[str, Any], ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(each for each in yaml.load_all(rendered(version, *ALL), Loader=loader) if each)


def objects(kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in everything() if each["kind"] == kind}


def test_the_version_stands_in_one_place():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in ("colo", "colo-stack"):
        chart = yaml.safe_load((K8S / name / "Chart.yaml").read_text())
        assert (chart["version"], chart["appVersion"]) == (version, version)
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_schema_is_the_one_of_the_values():
    program = "import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['text']())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(K8S / "schema.py")], capture_output=True, text=True, check=True
    )
    assert (CHART / "values.schema.json").read_text() == done.stdout, "run `just chart`"


def test_both_agents_have_the_settings_of_nodes_and_their_own_come_before():
    text = rendered(
        "1.31",
        "executor.enabled=true",
        "nodes.settings.rules_enforcement=observe",
        "nodes.settings.online=true",
        "executor.settings.online=false",
    )
    found = {
        each["name"]: each["value"]
        for agent in yaml.safe_load_all(text)
        if agent and agent["kind"] in ("DaemonSet", "Deployment")
        for each in agent["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"].endswith(("_RULES_ENFORCEMENT", "_ONLINE"))
    }
    assert found == {
        "COLO_COLLECTOR_RULES_ENFORCEMENT": "observe",
        "COLO_COLLECTOR_ONLINE": "true",
        "COLO_EXECUTOR_RULES_ENFORCEMENT": "observe",
        "COLO_EXECUTOR_ONLINE": "false",
    }


@pytest.mark.parametrize(
    ("setting", "address"),
    [("logLevel=info", "http://127.0.0.1:16686/"), ("dashboards.tracesUrl=https://t.example/", "https://t.example/")],
)
def test_dashboards_link_to_where_traces_are_opened(setting: str, address: str):
    boards = [
        json.loads(text)
        for each in yaml.safe_load_all(rendered("1.31", setting))
        if each and each["kind"] == "ConfigMap"
        for text in each["data"].values()
    ]
    links = [link["url"] for board in boards for link in board["links"] if link["title"] == "Traces"]
    assert links == [f"{address}search?service=colo-jobs&lookback=1h"] * 4


def test_the_chart_is_free_of_complaints():
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_kubectl_applies_is_what_the_chart_renders():
    done = helm("template", "colo", str(CHART), "--namespace", "colo", "--skip-tests", "--kube-version", "1.31.0")
    assert (K8S / "base" / "colo.yaml").read_text() == done.stdout, "run `just chart`"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("services.schedular.replicas=2", "'schedular' not allowed"),
        ("services.scheduler.replicas=two", "got string, want integer"),
        ("services.scheduler.settings.shard_cout=3", "'shard_cout' not allowed"),
        ("nodes.settings.rules_enforcment=observe", "'rules_enforcment' not allowed"),
        ("nats.streamReplicas=2", "/nats/streamReplicas"),
        ("tokens.existingSecret=", "name a secret, or set services.gateway.settings.oidc_issuer"),
        ("executor.enabled=true,executor.settings.process_users={red,blue}", "/executor/settings/process_users"),
        ("credentials.nodeFolder=keys", "/credentials/nodeFolder"),
        ("tls.clientCaKey=ca.crt", "tls.clientCaKey: needs tls.existingSecret"),
        ("executor.enabled=true,executor.jobUsers=null", "executor.jobUsers: say as which user jobs run"),
        ("executor.enabled=true,executor.jobUsers.*=null,executor.jobUsers.blue=1000", "executor.jobUsers: say by"),
        ("executor.enabled=true,executor.jobUsers.*=0", "never root"),
        ("executor.enabled=true,executor.jobUsers.*=root", "never root"),
        ("executor.settings.on_exit=restored", "value must be one of 'leave', 'restore'"),
        ("services.scheduler.settings.shards=many", "/services/scheduler/settings/shards"),
        ("services.gateway.settings.allow_anonymous=perhaps", "/services/gateway/settings/allow_anonymous"),
        ("executor.settings.rule=usual", "value must be one of 'auto', 'usage', 'stall'"),
        ("nodes.settings.rules_enforcement=look", "/nodes/settings/rules_enforcement"),
        ("services.jobs.settings.http_port=9101", "services.jobs.settings.http_port: is the chart's own"),
        ("nodes.settings.http_host=0.0.0.0", "nodes.settings.http_host: is the chart's own"),
        ("collector.settings.node=a", "collector.settings.node: is the name of the pod's node"),
        ("executor.enabled=true,executor.settings.process_users=*=65533", "process_users: say it by executor.jobUsers"),
        ("services.gateway.settings.tokens_file=/t", "settings.tokens_file: say it by tokens.existingSecret"),
        ("services.gateway.settings.tls_cert=/c", "settings.tls_cert: say it by tls.existingSecret"),
        ("services.gateway.settings.nats_audit_nkey_file=/k", "is of the secret of credentials.prefix"),
        (
            "tls.existingSecret=t,tls.clientCaKey=ca.crt,services.gateway.settings.tls_client_ca=/c",
            "services.gateway.settings.tls_client_ca: is said by tls.clientCaKey",
        ),
        ("nats.caKey=ca.crt", "nats.caKey: needs nats.existingSecret"),
        ("redis.passwordKey=p", "redis.passwordKey: needs redis.existingSecret"),
        (
            "services.scheduler.autoscaling.pendingMessages=0",
            "services.scheduler.autoscaling: say by what: cpuPercent or pendingMessages above 0",
        ),
        (
            "services.gateway.autoscaling.minReplicas=9",
            "services.gateway.autoscaling.minReplicas: must be at most maxReplicas (got 9 and 6)",
        ),
        ("image.pullSecrets={registry}", "/image/pullSecrets/0"),
        ("services.jobs.resources.limit.memory=1Gi", "'limit' not allowed"),
        ("nodes.maxUnavailable=some", "/nodes/maxUnavailable"),
        ("nodes.nodeSelector.pool=5", "/nodes/nodeSelector/pool"),
        ("control.nodeSelector.pool=5", "/control/nodeSelector/pool"),
    ],
)
def test_wrong_values_are_refused_and_named(setting: str, says: str):
    done = helm("template", "colo", str(CHART), "--kube-version", "1.31.0", "--set", setting)
    assert done.returncode != 0
    assert says in done.stderr


def test_values_that_services_take_are_taken_as_they_are_written():
    text = rendered(
        "1.31",
        "services.scheduler.settings.shards=32",
        "services.gateway.settings.allow_anonymous=on",
        "services.jobs.settings.log_level=debug",
        "services.jobs.settings.redis_min_replicas=none",
        "services.overcommit.settings.trace_ratio=0.25",
        "collector.settings.rules_reserved_cpus=0",
        "executor.enabled=true",
        "executor.settings.freeze_by=false",
        "nodes.maxUnavailable=1",
    )
    for line in (
        '{name: COLO_SCHEDULER_SHARDS, value: "32"}',
        '{name: COLO_GATEWAY_ALLOW_ANONYMOUS, value: "on"}',
        '{name: COLO_JOBS_LOG_LEVEL, value: "debug"}',
        '{name: COLO_JOBS_REDIS_MIN_REPLICAS, value: "none"}',
        '{name: COLO_OVERCOMMIT_TRACE_RATIO, value: "0.25"}',
        '{name: COLO_COLLECTOR_RULES_RESERVED_CPUS, value: "0"}',
        # What YAML makes of `off`; the service takes it for that word.
        '{name: COLO_EXECUTOR_FREEZE_BY, value: "false"}',
    ):
        assert line in text


def test_every_pod_of_the_control_plane_runs_where_the_values_say():
    text = rendered(
        "1.31",
        "image.pullSecrets[0].name=registry",
        "control.nodeSelector.pool=control",
        "control.tolerations[0].key=control",
        "control.priorityClassName=system-cluster-critical",
    )
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    pods_of = {
        name: each["spec"] if kind == "Pod" else each["spec"]["template"]["spec"]
        for (kind, name), each in found.items()
        if kind in ("Deployment", "Job", "Pod", "DaemonSet")
    }
    assert len(pods_of) == len(CONTROL) + len(("streams", "test", "collector"))
    agent = pods_of.pop("colo-collector")
    assert agent["imagePullSecrets"] == [{"name": "registry"}]
    assert (agent["priorityClassName"], "tolerations" in agent) == ("system-node-critical", False)
    for name, pod in pods_of.items():
        assert pod["imagePullSecrets"] == [{"name": "registry"}], name
        assert pod["nodeSelector"] == {"pool": "control"}, name
        assert pod["tolerations"] == [{"key": "control"}], name
        assert pod["priorityClassName"] == "system-cluster-critical", name


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_rendered_is_valid(version: str, tmp_path: Path):
    schemas(version, tmp_path)
    text = rendered(version, *ALL)
    command = [tool("kubeconform"), "-strict", "-summary", "-kubernetes-version", f"{version}.0"]
    command += ["-schema-location", f"{tmp_path}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"]
    command += ["-skip", "ServiceMonitor,PodMonitor,PrometheusRule"]
    good = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "Invalid: 0, Errors: 0, Skipped: 8" in good.stdout, good.stdout
    bad = subprocess.run(
        command, input=text.replace("terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: soon"),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert bad.returncode != 0


def test_the_agents_have_the_rights_of_their_units_and_no_more():
    agents = {name: each["spec"]["template"]["spec"] for name, each in objects("DaemonSet").items()}
    assert agents.keys() == {"colo-collector", "colo-executor"}
    collector, executor = (agents[name]["containers"][0] for name in sorted(agents))
    assert executor["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": AGENT_CAPABILITIES}
    assert collector["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert collector["securityContext"]["runAsNonRoot"] is True
    hosts = {each["name"] for each in agents["colo-collector"]["volumes"] if "hostPath" in each}
    assert all(each.get("readOnly") for each in collector["volumeMounts"] if each["name"] in hosts)
    assert not any("privileged" in each["securityContext"] for each in (collector, executor))


def test_control_services_have_no_right_at_all():
    for name, each in objects("Deployment").items():
        pod = each["spec"]["template"]["spec"]
        security = pod["containers"][0]["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}, name
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
        assert pod["automountServiceAccountToken"] is False
        assert not any("hostPath" in volume for volume in pod["volumes"])
        assert {"startupProbe", "livenessProbe", "readinessProbe", "resources"} <= pod["containers"][0].keys()
    assert not objects("Role")
    assert not objects("ClusterRole")


def pods() -> dict[str, Any]:
    """The pod of every workload of the chart, by the name of its container."""
    found = [each["spec"]["template"]["spec"] for each in everything() if "template" in each.get("spec", {})]
    return {pod["containers"][0]["name"]: pod for pod in found}


def environment(pod: Any) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}


def test_every_pod_is_the_user_of_its_role_and_sees_nobody_elses_key(tmp_path: Path):
    folder = ["-d", str(tmp_path / "credentials")]
    assert main(["admin", "credentials", "init", *folder]) == 0
    assert main(["admin", "credentials", "add-node", "node-1.rack", *folder]) == 0
    users = read_users(tmp_path / "credentials")
    printed = secrets_of(tmp_path / "credentials", users, "colo-credentials", "colo", redis_ha=False)
    secrets = {each["metadata"]["name"]: each["data"].keys() for each in printed["items"]}
    assert pods().keys() == {*CONTROL, *NODE_ROLES, "streams"}
    for name, pod in pods().items():
        role = "admin" if name == "streams" else name
        mounted = {each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "credentials"}
        assert mounted == {f"colo-credentials-{role}"}
        (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "credentials")
        files = secrets[f"colo-credentials-{role}"]
        if name in NODE_ROLES:
            # Of the keys of all nodes a pod sees that of its own.
            assert (mount["mountPath"], mount["subPathExpr"]) == ("/etc/colo/credentials/nkey", "$(COLO_NODE).nkey")
            assert files == {"node-1.rack.nkey"}
        else:
            assert "nkey" in files
        found = environment(pod)
        assert found["COLO_NATS_NKEY_FILE"] == "/etc/colo/credentials/nkey"
        assert found.get("COLO_REDIS_USER") == (name if name in CONTROL else None)
        assert ("COLO_REDIS_URL" in found) == (name in CONTROL)
        assert name not in CONTROL or "redis-password" in files
        # A program whose servers are elsewhere refuses to start without credentials; a service's address is no setting.
        check_reach(load(Common, "any", environ=found))
        assert pod["enableServiceLinks"] is False


def test_jobs_are_never_root_and_streams_have_one_owner():
    users = dict([environment(pods()["executor"])["COLO_EXECUTOR_PROCESS_USERS"].split("=")])
    check_users(users, account_of_name)
    assert account_of(users, "anybody", "job", account_of_name).uid > 0
    job = pods()["streams"]
    assert job["containers"][0]["args"] == ["admin", "upgrade"]
    assert environment(job)["COLO_STREAM_DISK_BYTES"] == str(16 << 30)
    assert job["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert job["automountServiceAccountToken"] is False


def test_a_node_is_put_back_by_the_setting_that_the_page_names():
    page = (K8S / "README.md").read_text()
    (setting,) = set(re.findall(r"--set (executor\.settings\.on_exit=\S+)", page))
    found = {
        each["metadata"]["name"]: each
        for each in yaml.safe_load_all(rendered("1.31", "executor.enabled=true", setting))
        if each
    }
    executor = found["colo-executor"]
    assert executor["kind"] == "DaemonSet"
    settings = load(ExecutorSettings, "executor", environ=environment(executor["spec"]["template"]["spec"]))
    assert settings.on_exit == "restore"
    assert page.index(setting) < page.index("helm uninstall colo")


def test_a_large_number_is_written_as_it_is():
    text = rendered(
        "1.31", "services.gateway.settings.event_log_size=1000000", "services.gateway.settings.ask_timeout_s=0.5"
    )
    assert '{name: COLO_GATEWAY_EVENT_LOG_SIZE, value: "1000000"}' in text
    assert '{name: COLO_GATEWAY_ASK_TIMEOUT_S, value: "0.5"}' in text


def test_a_gateway_with_a_certificate_is_asked_by_tls_everywhere():
    text = rendered("1.31", "tls.existingSecret=gateway-tls", "monitoring.enabled=true")
    found = [each for each in yaml.safe_load_all(text) if each]
    pods_of = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in found if each["kind"] == "Deployment"
    }
    for name, pod in pods_of.items():
        is_gateway = name == "colo-gateway"
        (container,) = pod["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"].get("scheme") == ("HTTPS" if is_gateway else None)
        assert ("COLO_GATEWAY_TLS_CERT" in environment(pod)) == is_gateway
        assert any(volume["name"] == "tls" for volume in pod["volumes"]) == is_gateway
    schemes = {
        each["metadata"]["name"]: each["spec"]["endpoints"][0].get("scheme")
        for each in found
        if each["kind"] == "ServiceMonitor"
    }
    assert {name for name, scheme in schemes.items() if scheme == "https"} == {"colo-gateway"}
    (test,) = (each for each in found if each["kind"] == "Pod")
    assert [word for word in test["spec"]["containers"][0]["command"] if word.startswith("tls:")] == [
        "tls:colo-gateway:8088"
    ]


@pytest.mark.parametrize(
    ("settings", "port"),
    [
        (("tls.clientCaKey=ca.crt",), 8089),
        (("services.gateway.settings.tls_client_ca=/etc/colo/tls/ca.crt",), 8089),
        (("tls.clientCaKey=ca.crt", "services.gateway.settings.health_port=9200"), 9200),
    ],
)
def test_a_gateway_that_wants_certificates_of_clients_is_probed_where_none_is_needed(
    settings: tuple[str, ...], port: int
):
    text = rendered("1.31", "tls.existingSecret=gateway-tls", "monitoring.enabled=true", *settings)
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    pod = found["Deployment", "colo-gateway"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"].keys() == {"path", "port"}
        assert container[probe]["httpGet"]["port"] == "health"
    assert {"name": "health", "containerPort": port} in container["ports"]
    names = [each["name"] for each in container["env"]]
    assert len(names) == len(set(names))
    assert environment(pod)["COLO_GATEWAY_HEALTH_PORT"] == str(port)
    assert environment(pod)["COLO_GATEWAY_TLS_CLIENT_CA"] == "/etc/colo/tls/ca.crt"
    (endpoint,) = found["ServiceMonitor", "colo-gateway"]["spec"]["endpoints"]
    assert (endpoint["port"], "scheme" in endpoint) == ("health", False)
    service = found["Service", "colo-gateway"]["spec"]["ports"]
    assert {"name": "health", "port": port, "targetPort": "health"} in service
    allowed = found["NetworkPolicy", "colo-gateway"]["spec"]["ingress"][0]["ports"]
    assert {each["port"] for each in allowed} == {8088, port}
    assert f"colo-gateway:{port}" in found["Pod", "colo-test"]["spec"]["containers"][0]["command"]
    others = [each for (kind, name), each in found.items() if kind == "Deployment" and name != "colo-gateway"]
    assert "HEALTH_PORT" not in str(others)


def test_the_servers_of_the_stack_let_in_the_users_of_the_credentials(tmp_path: Path):
    """The charts of NATS and Redis are stand-ins here, since they are fetched."""
    values = yaml.safe_load((K8S / "colo-stack" / "values.yaml").read_text())
    stack = shutil.copytree(K8S / "colo-stack", tmp_path / "colo-stack")
    shutil.copytree(CHART, stack / "charts" / "colo")
    for dependency in yaml.safe_load((stack / "Chart.yaml").read_text())["dependencies"]:
        if dependency["name"] != "colo":
            stand_in = stack / "charts" / dependency["name"]
            stand_in.mkdir()
            version = dependency["version"].lstrip("^")
            text = f"apiVersion: v2\nname: {dependency['name']}\nversion: {version}\n"
            (stand_in / "Chart.yaml").write_text(text)
    done = helm("template", "colo", str(stack), "--namespace", "colo", "--kube-version", "1.31.0")
    assert done.returncode == 0, done.stderr
    assert "nats://colo-nats:4222" in done.stdout
    assert values["nats"]["config"]["merge"]["$include"] == "../nats-credentials/nats-users.conf"
    (volume,) = (each["value"] for each in values["nats"]["podTemplate"]["patch"])
    assert volume["secret"]["secretName"] == values["redis-ha"]["existingSecret"].replace("redis", "nats")
    folder = ["-d", str(tmp_path / "credentials")]
    assert main(["admin", "credentials", "init", *folder]) == 0
    users = read_users(tmp_path / "credentials")
    printed = secrets_of(tmp_path / "credentials", users, "colo-credentials", "", redis_ha=True)
    secrets = {each["metadata"]["name"]: each["data"].keys() for each in printed["items"]}
    assert secrets[volume["secret"]["secretName"]] == {"nats-users.conf"}
    wanted = {values["redis-ha"]["authKey"], Path(values["redis-ha"]["redis"]["config"]["aclfile"]).name}
    assert secrets[values["redis-ha"]["existingSecret"]] == wanted


def test_every_service_has_a_budget_a_policy_and_an_account():
    names = set(objects("Deployment"))
    assert len(names) == 5
    assert set(objects("PodDisruptionBudget")) == names
    agents = set(objects("DaemonSet"))
    assert set(objects("ServiceAccount")) == set(objects("NetworkPolicy")) == names | agents | {"colo-streams"}
    assert set(objects("HorizontalPodAutoscaler")) <= names
    scheduler = objects("HorizontalPodAutoscaler")["colo-scheduler"]["spec"]["metrics"]
    assert [each["external"]["metric"]["selector"]["matchLabels"] for each in scheduler] == [{"of": "scheduler"}]


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        ((), {"gateway": [4222, 6379], "collector": [4222], "streams": [4222]}),
        (
            (
                "nats.url=tls://a:4333\\,tls://b:4334",
                "redis.url=rediss://colo:w0rd@redis.example/0",
                "otlpEndpoint=https://spans.example",
            ),
            {"jobs": [443, 4333, 4334, 6379], "collector": [443, 4333, 4334], "streams": [443, 4333, 4334]},
        ),
        (("redis.url=redis+sentinel://a:26400\\,b/mymaster",), {"jobs": [4222, 6379, 26379, 26400]}),
        (
            (
                "services.gateway.settings.oidc_issuer=https://id.example",
                "services.gateway.settings.oidc_jwks=https://id.example/keys",
            ),
            {"gateway": [443, 4222, 6379], "jobs": [4222, 6379]},
        ),
        (
            ("collector.settings.business_metrics=web=http://10.0.0.1:9500/metrics;metric=p99_ms",),
            {"collector": [4222, 9500], "jobs": [4222, 6379]},
        ),
    ],
)
def test_pods_may_reach_the_ports_of_what_the_values_name_and_no_other(
    settings: tuple[str, ...], ports: dict[str, list[int]]
):
    policies = {
        each["metadata"]["name"].removeprefix("colo-"): each["spec"]["egress"]
        for each in yaml.safe_load_all(rendered("1.31", *settings))
        if each and each["kind"] == "NetworkPolicy"
    }
    for name, wanted in ports.items():
        names, servers = policies[name]
        assert {each["port"] for each in names["ports"]} == {53}
        assert [each["port"] for each in servers["ports"]] == wanted, name


def test_the_alerts_and_dashboards_of_the_chart_are_the_files():
    (rule,) = objects("PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "rules" / "colo.yaml").read_text())
    boards = {each.stem: json.loads(each.read_text()) for each in (CHART / "files" / "dashboards").glob("*.json")}
    maps = objects("ConfigMap")
    assert {name: json.loads(maps[f"colo-dashboard-{name}"]["data"][f"{name}.json"]) for name in boards} == boards


def schemas(version: str, folder: Path) -> None:
    """Write one JSON schema for each kind that the chart renders."""
    place = os.environ.get("KUBERNETES_SCHEMAS")
    if not place:
        pytest.skip("NOT PROVED: KUBERNETES_SCHEMAS names no wheel kubernetes-validate")
    packed = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/"
    kinds = {each["kind"].lower() for each in everything(version)}
    with zipfile.ZipFile(place) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(packed) and name.endswith(".json")]
        assert names, f"{place} has no schemas of {version}"
        for name in names:
            if Path(name).stem.partition("-")[0] not in {*kinds, "_definitions"}:
                continue
            text = wheel.read(name).decode().replace("/api/_definitions.json#", "_definitions.json#")
            found = json.loads(text)
            if "$id" in found:
                # Its own name would make the references absolute.
                del found["$id"]
                text = json.dumps(found)
            (folder / Path(name).name).write_text(text)
