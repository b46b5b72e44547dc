"""The chart: valid for three Kubernetes versions, current where it is rendered, and no more rights than it names.

helm, kubeconform and the schemas are not part of the test environment: HELM, KUBECONFORM and KUBERNETES_SCHEMAS (the wheel
kubernetes-validate) name them, else the PATH; without them these tests say that they prove nothing.
"""

from __future__ import annotations

import json
import os
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

from tests.repo.tree import ROOT

K8S = ROOT / "k8s"
CHART = K8S / "colo"
VERSIONS = ("1.29", "1.31", "1.34")
ALL = (
    "executor.enabled=true",
    "monitoring.enabled=true",
    "otlpEndpoint=http://tempo:4318",
    "nats.existingSecret=nats",
    "nats.caKey=ca.crt",
)
AGENT_CAPABILITIES = ["SETUID", "SETGID", "KILL", "DAC_OVERRIDE", "FOWNER", "SYS_NICE"]


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
        ("nats.streamReplicas=2", "/nats/streamReplicas"),
        ("tokens.existingSecret=", "name a secret, or set services.gateway.settings.oidc_issuer"),
    ],
)
def test_wrong_values_are_refused_and_named(setting: str, says: str):
    done = helm("template", "colo", str(CHART), "--kube-version", "1.31.0", "--set", setting)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.timeout(180)
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
    pods = {name: each["spec"]["template"]["spec"] for name, each in objects("DaemonSet").items()}
    assert pods.keys() == {"colo-collector", "colo-executor"}
    collector, executor = (pods[name]["containers"][0] for name in sorted(pods))
    assert executor["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": AGENT_CAPABILITIES}
    assert collector["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert collector["securityContext"]["runAsNonRoot"] is True
    hosts = {each["name"] for each in pods["colo-collector"]["volumes"] if "hostPath" in each}
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


def test_every_service_has_a_budget_a_policy_and_an_account():
    names = set(objects("Deployment"))
    assert len(names) == 5
    assert set(objects("PodDisruptionBudget")) == names
    agents = set(objects("DaemonSet"))
    assert set(objects("ServiceAccount")) == set(objects("NetworkPolicy")) == names | agents
    assert set(objects("HorizontalPodAutoscaler")) <= names
    scheduler = objects("HorizontalPodAutoscaler")["colo-scheduler"]["spec"]["metrics"]
    assert [each["external"]["metric"]["selector"]["matchLabels"] for each in scheduler] == [{"of": "scheduler"}]


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
