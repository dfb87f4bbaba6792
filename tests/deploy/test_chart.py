"""The Helm chart in deploy/helm: checked by Helm and the schemas of Kubernetes, and by a broker."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.command import running, write_users
from tests.deploy.files import CLOSING_S, DEPLOY, installed
from tests.metrics.scrape import get, url_of

import requite as package
from requite.access import Access
from requite.cli import main
from requite.cli.exit_codes import ExitCode

CHART = DEPLOY / "helm" / "requite"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SECURE = {"access": {"secretName": "requite-access"}}
VARIANTS: list[dict[str, Any]] = [
    {"insecure": True},
    SECURE,
    SECURE | {"persistence": {"enabled": False}, "networkPolicy": {"clients": []}},
    SECURE | {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    SECURE
    | {
        "secrets": [{"secretName": "tls", "mountPath": "/etc/requite/tls"}],
        "persistence": {"storageClass": "fast"},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "broker", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "networkPolicy": {"egress": [{"ports": [{"port": 443}]}]},
    },
]


# --- without further tools ------------------------------------------------------------------------
def test_the_version_of_the_image_is_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == package.__version__


def arguments(*, secure: bool) -> list[str]:
    """Return the arguments of the broker, read from the template without Helm."""
    template = (CHART / "templates/statefulset.yaml").read_text()
    [text] = re.findall(r" args:\n(.*?)\n +ports:", template, re.S)
    common, _, chosen = text.partition("{{- if $secret }}")
    with_users, _, without = chosen.partition("{{- else }}")
    lines = common + (with_users if secure else without)
    for name in ("service", "metrics"):
        port = str(VALUES[name]["port"])
        lines = lines.replace(f"{{{{ .Values.{name}.port }}}}", port)
    lines = lines.replace('{{ include "requite.name" . }}', "b-requite")
    return re.findall(r"^ +- (.+)$", lines, re.M)


def test_the_configuration_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(installed(VALUES["config"], tmp_path))
    for secure in (True, False):
        words = arguments(secure=secure)
        for name in ("access.toml", "broker.pem"):
            words = [
                w.replace(f"/etc/requite/access/{name}", f"{tmp_path}/etc/requite/{name}")
                for w in words
            ]
        words[words.index("/etc/requite/broker.toml")] = str(file)
        assert main([*words, "--check"]) == ExitCode.OK
        scheme = "tls" if secure else "tcp"
        port = VALUES["service"]["port"]
        assert f"would listen on {scheme}://0.0.0.0:{port}" in capsys.readouterr().out


def test_clients_do_not_reach_the_metrics() -> None:
    """They have no users, and `service.type` may let in the whole world."""
    templates = {
        name: (CHART / f"templates/{name}.yaml").read_text()
        for name in ("service", "metrics-service")
    }
    ports = {name: re.findall(r"- name: (\w+)", text) for name, text in templates.items()}
    assert ports == {"service": ["mdp"], "metrics-service": ["metrics"]}
    assert "type: ClusterIP\n" in templates["metrics-service"]
    words = arguments(secure=True)
    assert words[words.index("--http-host") + 1] == "b-requite-metrics"
    assert 'name: {{ include "requite.name" . }}-metrics\n' in templates["metrics-service"]


def test_a_changed_secret_is_read_again(tmp_path: Path) -> None:
    """Kubernetes mounts a Secret as links into a folder, and exchanges that folder."""
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        write_users(tmp_path / version / "access.toml", f'[user.{version}]\ntls = "CN=a"\n')
    (tmp_path / "..data").symlink_to("old")
    (tmp_path / "access.toml").symlink_to("..data/access.toml")
    access = Access.read(tmp_path / "access.toml")
    assert access.changed_file() is None
    (tmp_path / "..data_tmp").symlink_to("new")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    changed = access.changed_file()
    assert changed is not None
    assert list(changed.users) == ["new"]


def test_kubernetes_waits_longer_than_a_drain() -> None:
    drain_s = tomllib.loads(VALUES["config"])["drain_timeout"]
    assert VALUES["terminationGracePeriodSeconds"] > drain_s + CLOSING_S


def test_the_schema_has_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    for name, value in VALUES.items():
        members = schema["properties"][name].get("properties")
        if members is not None:
            assert members.keys() == value.keys(), name
    assert schema["properties"].keys() - VALUES.keys() == {"global"}  # Helm's own


# --- with Helm ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def helm() -> Any:
    return pytest.importorskip("helm_python.chart", reason="no Helm here: make deploy")


@pytest.fixture(scope="module")
def chart(helm: Any) -> Iterator[Any]:
    with helm.Chart.load(CHART) as loaded:
        yield loaded


def objects(chart: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the objects of a release, by kind; that of metrics as `MetricsService`."""
    files = chart.render(values, name="b", namespace="n")
    found = [yaml.safe_load(text) for name, text in files.items() if name.endswith(".yaml")]
    return {kind_of(each): each for each in found if each}


def kind_of(made: dict[str, Any]) -> str:
    is_for_metrics = made["metadata"]["name"].endswith("-metrics")
    return ("Metrics" if is_for_metrics else "") + str(made["kind"])


@pytest.mark.parametrize("values", VARIANTS)
def test_helm_lint_has_no_complaint(helm: Any, values: dict[str, Any]) -> None:
    report = helm.lint(CHART, values, strict=True)
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("values", VARIANTS)
def test_kubernetes_accepts_the_objects(chart: Any, values: dict[str, Any]) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="not here: make deploy")
    made = objects(chart, values)
    assert made.keys() >= {"ConfigMap", "Service", "MetricsService", "StatefulSet"}
    for each in made.values():
        kubernetes.validate(each, kubernetes.latest_version(), strict=True)


def test_a_release_without_users_must_be_asked_for(chart: Any) -> None:
    with pytest.raises(Exception, match=r"set access\.secretName to a Secret"):
        chart.render({}, name="b")
    with pytest.raises(Exception, match="not both"):
        chart.render(SECURE | {"insecure": True}, name="b")


@pytest.mark.parametrize(("values", "option"), [(SECURE, "--access"), ({"insecure": True}, "")])
def test_the_broker_gets_its_users_or_is_told_to_let_everybody_in(
    chart: Any, values: dict[str, Any], option: str
) -> None:
    spec = objects(chart, values)["StatefulSet"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    words = container["args"]
    assert ("--insecure" in words) is not bool(option)
    assert (option in words) is bool(option)
    secrets = [each["secret"] for each in spec["volumes"] if "secret" in each]
    if option:
        assert secrets == [{"secretName": "requite-access", "defaultMode": 0o440}]
        folder = Path(words[words.index(option) + 1]).parent
        [mount] = [m for m in container["volumeMounts"] if m["mountPath"] == str(folder)]
        assert mount["readOnly"]
        assert "subPath" not in mount  # its changes would never arrive
    else:
        assert secrets == []


def test_a_misspelt_value_is_refused(chart: Any) -> None:
    with pytest.raises(Exception, match="insecur"):
        chart.render({"insecur": True}, name="b")


def test_the_pod_has_no_rights(chart: Any) -> None:
    spec = objects(chart, SECURE)["StatefulSet"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_network_policy_lets_in_labelled_pods_only(chart: Any) -> None:
    spec = objects(chart, SECURE)["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    labels = [rule["from"][0]["podSelector"]["matchLabels"] for rule in spec["ingress"]]
    assert labels == [{"requite-client": "true"}, {"requite-metrics": "true"}]
    assert [rule["ports"][0]["port"] for rule in spec["ingress"]] == ["mdp", "metrics"]
    assert spec["egress"] == []
    closed = {"networkPolicy": {"clients": []}, "metrics": {"clients": []}}
    none = objects(chart, SECURE | closed)["NetworkPolicy"]["spec"]
    assert none["ingress"] == []


def test_a_change_of_the_configuration_restarts_the_broker(chart: Any) -> None:
    templates = [
        objects(chart, SECURE | change)["StatefulSet"]["spec"]["template"]
        for change in ({}, {"config": "bind = []"})
    ]
    assert templates[0] != templates[1]


@pytest.mark.e2e
def test_the_probes_pass_while_the_broker_works(chart: Any) -> None:
    spec = objects(chart, SECURE)["StatefulSet"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    words = container["args"]
    assert words[words.index("--http") + 1] == f"0.0.0.0:{ports['metrics']}"
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert [each["path"] for each in probes] == ["/ready", "/ready", "/health"]
    assert {each["port"] for each in probes} == {"metrics"}
    options = ("--http", ":0", "--http-host", words[words.index("--http-host") + 1])
    with running("broker", "--bind", "tcp://127.0.0.1:0", *options) as broker:
        url = url_of(broker)
        broker.line()
        for probe in probes:
            assert get(url, probe["path"]).status == 200
        assert get(url, "/metrics", {"Host": f"b-requite-metrics:{ports['metrics']}"}).status == 200
