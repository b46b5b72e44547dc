"""The chart installed, upgraded and removed by Helm at a real API server, and the objects applied by the server's own validation.

The programs are not part of the test environment: HELM, ETCD and KUBE_APISERVER name them, else the PATH; without them these tests
say that they prove nothing. There is no kubelet: pods are never started.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from colo_cli.server_process import tied_command
from tests.repo.tree import ROOT
from tests.support.ports import free_ports
from tests.support.waiting import eventually_blocking

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

CHART: Final = ROOT / "k8s" / "colo"
TOKEN: Final = "administrator"
APPLY: Final = "application/apply-patch+yaml"
#: Kind -> where the API has it; what is not here the chart does not render by itself.
PLACES: Final = {
    "ConfigMap": "api/v1", "Namespace": "api/v1", "Pod": "api/v1", "Secret": "api/v1", "Service": "api/v1",
    "ServiceAccount": "api/v1",
    "DaemonSet": "apis/apps/v1", "Deployment": "apis/apps/v1", "Job": "apis/batch/v1", "NetworkPolicy": "apis/networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2", "PodDisruptionBudget": "apis/policy/v1",
}  # fmt: skip


def program(name: str) -> str:
    variable = name.upper().replace("-", "_")
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        pytest.skip(f"NOT PROVED: {name} is neither on the PATH nor in {variable}")
    return found


class Cluster:
    """An API server; `send` returns status, body and the warnings of an answer."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.ca = folder / "certs" / "apiserver.crt"
        self.kubeconfig = folder / "kubeconfig"

    def send(self, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, Any, str]:
        request = urllib.request.Request(f"{self.url}/{path}", method=method)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", kind)
        data = json.dumps(body).encode() if body is not None else None
        try:
            with urllib.request.urlopen(
                request, data, timeout=30, context=ssl.create_default_context(cafile=str(self.ca))
            ) as answer:
                return answer.status, json.loads(answer.read()), answer.headers.get("Warning", "")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), ""

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"}),
                timeout=5,
                context=ssl.create_default_context(cafile=str(self.ca)),
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def apply(self, each: dict[str, Any], *, namespace: str, dry_run: bool) -> tuple[int, Any, str]:
        kind = each["kind"]
        plural = "networkpolicies" if kind == "NetworkPolicy" else f"{kind.lower()}s"
        within = "" if kind == "Namespace" else f"namespaces/{namespace}/"
        path = f"{PLACES[kind]}/{within}{plural}/{each['metadata']['name']}"
        query = f"?fieldManager=test&fieldValidation=Strict{'&dryRun=All' if dry_run else ''}"
        return self.send("PATCH", path + query, each, APPLY)

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HELM_DRIVER": "configmap"}
        return subprocess.run(
            [program("helm"), *words, "--namespace", "colo"],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def names(self, path: str) -> set[str]:
        status, body, _ = self.send("GET", path)
        assert status == 200, body
        return {each["metadata"]["name"] for each in body["items"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this run, with the namespaces colo and strict, which warns of every pod that has more than anybody may have."""
    etcd, apiserver = program("etcd"), program("kube-apiserver")
    program("helm")
    folder = tmp_path_factory.mktemp("cluster")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "accounts.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    client, peer, port = free_ports(3)
    found = Cluster(port, folder)
    etcd_words = [
        f"--data-dir={folder / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync", "--log-level=error",
    ]  # fmt: skip
    server_words = [
        f"--etcd-servers=http://127.0.0.1:{client}", f"--secure-port={port}", "--bind-address=127.0.0.1",
        "--endpoint-reconciler-type=none", f"--cert-dir={folder / 'certs'}", "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC", f"--token-auth-file={folder / 'tokens.csv'}", "--service-account-issuer=https://test",
        f"--service-account-key-file={folder / 'accounts.pem'}", f"--service-account-signing-key-file={folder / 'accounts.pem'}",
        "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount", "-v=0",
    ]  # fmt: skip
    started = []
    try:
        for name, words in (("etcd", [etcd, *etcd_words]), ("apiserver", [apiserver, *server_words])):
            with (folder / f"{name}.log").open("wb") as log:
                started.append(subprocess.Popen(tied_command(words), cwd=folder, stdout=log, stderr=log))

        def is_ready() -> bool:
            assert all(each.poll() is None for each in started), (folder / "apiserver.log").read_text()[-2000:]
            return found.is_ready()

        eventually_blocking(is_ready, "the API server is ready", limit_s=120)
        found.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "c", "cluster": {"server": found.url, "certificate-authority": str(found.ca)}}
                    ],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        for name, labels in (("colo", {}), ("strict", {"pod-security.kubernetes.io/warn": "restricted"})):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            assert found.send("POST", "api/v1/namespaces", namespace)[0] == 201
        yield found
    finally:
        for each in reversed(started):
            each.terminate()
            each.wait(timeout=30)


def rendered(*settings: str) -> list[dict[str, Any]]:
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [program("helm"), "template", "colo", str(CHART), "--namespace", "colo", "--kube-version", "1.34.0", *words],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_the_server_takes_every_object_and_warns_of_none(cluster: Cluster) -> None:
    everything = rendered("executor.enabled=true", "otlpEndpoint=http://tempo:4318", "nats.existingSecret=nats")
    assert {each["kind"] for each in everything} <= PLACES.keys()
    for each in everything:
        name = f"{each['kind']} {each['metadata']['name']}"
        # Agents see the processes and control groups of their machine; every other pod gets along with what anybody may have.
        is_agent = each["kind"] == "DaemonSet"
        metadata = {**each["metadata"], "namespace": "strict"}
        status, body, warning = cluster.apply({**each, "metadata": metadata}, namespace="strict", dry_run=True)
        assert status in (200, 201), (name, body)
        assert bool(warning) == is_agent, (name, warning)
    wrong = next(each for each in everything if each["kind"] == "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Never"
    status, body, _ = cluster.apply(wrong, namespace="colo", dry_run=True)
    assert (status >= 400, "imagePullPolice" in json.dumps(body)) == (True, True), body


def test_helm_installs_upgrades_and_goes_back(cluster: Cluster) -> None:
    jobs, services = "apis/batch/v1/namespaces/colo/jobs", "apis/apps/v1/namespaces/colo/deployments"
    done = cluster.helm("install", "colo", str(CHART), "--set", "executor.enabled=true")
    assert done.returncode == 0, done.stderr
    assert "colo admin credentials kubernetes --namespace colo" in done.stdout
    names = {f"colo-{name}" for name in ("gateway", "jobs", "scheduler", "overcommit", "evictor")}
    assert cluster.names(services) == names
    assert cluster.names(jobs) == {"colo-streams-1"}
    agents = {"colo-collector", "colo-executor"}
    assert cluster.names("apis/apps/v1/namespaces/colo/daemonsets") == agents
    assert names | agents | {"colo-streams"} <= cluster.names("api/v1/namespaces/colo/serviceaccounts")

    done = cluster.helm("upgrade", "colo", str(CHART), "--set", "image.tag=9.9.9", "--set", "nats.streamReplicas=3")
    assert done.returncode == 0, done.stderr
    # A job cannot be changed: that of the new version is another one.
    assert cluster.names(jobs) == {"colo-streams-2"}
    assert cluster.names("apis/apps/v1/namespaces/colo/daemonsets") == {"colo-collector"}
    done = cluster.helm("upgrade", "colo", str(CHART), "--set", "services.schedular.replicas=1")
    assert done.returncode != 0
    assert "schedular" in done.stderr

    done = cluster.helm("rollback", "colo", "1")
    assert done.returncode == 0, done.stderr
    assert cluster.names(services) == names
    # What `helm test` runs asks every service.
    _, body, _ = cluster.send("GET", "api/v1/namespaces/colo/services")
    ports = {f"{each['metadata']['name']}:{each['spec']['ports'][0]['port']}" for each in body["items"]}
    hooks = cluster.helm("get", "hooks", "colo").stdout
    assert set(yaml.safe_load(hooks)["spec"]["containers"][0]["command"][3:]) == ports
    assert cluster.helm("uninstall", "colo").returncode == 0
    assert not cluster.names(services)


@pytest.mark.parametrize(("phase", "status"), [("Succeeded", 0), ("Failed", 1)])
def test_helm_test_runs_its_pod_and_says_how_it_ended(cluster: Cluster, phase: str, status: int) -> None:
    """There is no kubelet: that the pod has ended is said in its place."""
    pod = "api/v1/namespaces/colo/pods/colo-test"
    assert cluster.helm("install", "colo", str(CHART)).returncode == 0
    try:
        with ThreadPoolExecutor(1) as elsewhere:
            running = elsewhere.submit(cluster.helm, "test", "colo", "--timeout", "90s")
            eventually_blocking(lambda: cluster.send("GET", pod)[0] == 200, "the pod is made")
            _, made, _ = cluster.send("GET", pod)
            ended = {"apiVersion": "v1", "kind": "Pod", "metadata": made["metadata"], "status": {"phase": phase}}
            assert cluster.send("PUT", f"{pod}/status", {**made, **ended})[0] == 200
            done = running.result()
        assert (done.returncode, f"Phase:          {phase}" in done.stdout) == (status, True), done.stdout + done.stderr
    finally:
        cluster.send("DELETE", f"{pod}?gracePeriodSeconds=0")
        cluster.helm("uninstall", "colo")


def test_what_kubectl_applies_is_taken(cluster: Cluster) -> None:
    kustomization = yaml.safe_load((ROOT / "k8s" / "base" / "kustomization.yaml").read_text())
    objects = [
        each
        for name in kustomization["resources"]
        for each in yaml.safe_load_all((ROOT / "k8s" / "base" / name).read_text())
        if each
    ]
    for each in objects:
        status, body, _ = cluster.apply(each, namespace="colo", dry_run=each["kind"] != "Namespace")
        assert status in (200, 201), body
