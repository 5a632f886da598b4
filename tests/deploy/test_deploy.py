"""The files in deploy/: every command line, setting, extra and metric that they name exists, and they fit together."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml

from rowlock.cli import main
from rowlock.core.config import WorkerSettings, load_settings
from rowlock.core.config.alert_rules import KINDS
from rowlock.core.config.load import OTHER_VARIABLES, VARIABLES
from rowlock.health.conditions import CONDITIONS
from rowlock.signals.metrics import METRICS
from support.each import each
from support.files.chart import Chart

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "rowlock"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
COMPOSE = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def check_command(words: list[str]) -> None:
    """That `rowlock …` has this verb with these options; values are checked where they are settings."""
    command: Any = typer.main.get_command(main.app)
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    verb = words.pop(0)
    command = command.commands[verb]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    flags = {name: option for option in command.params for name in option.opts}
    while words:
        name = words.pop(0)
        assert name in flags, f"rowlock {verb} has no option {name}"
        value = words.pop(0)
        if verb == "worker" and f"worker.{flags[name].name}" in VARIABLES.values():
            load_settings(env={}, flags={f"worker.{flags[name].name}": value})


def check_variable(name: str, value: str) -> None:
    """That a ROWLOCK_… variable exists and takes this value."""
    assert name in VARIABLES or name in OTHER_VARIABLES, f"there is no setting {name}"
    if name in VARIABLES:
        load_settings(env={name: value}, flags={})


def test_no_file_names_a_registry_of_packages_or_a_secret() -> None:
    for file in FILES:
        text = file.read_text()
        assert not re.search(r"pypi|pythonhosted|npmjs|--index-url|--extra-index", text), file
        assert "whsec_" not in text


# --- containers


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "docker" / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2]) for line in lines]


def test_the_image_has_two_stages_no_root_and_stops_by_sigterm() -> None:
    found = instructions()
    stages = [rest for verb, rest in found if verb == "FROM"]
    assert stages == ["python:${PYTHON}-slim AS build", "python:${PYTHON}-slim"]
    last = found[max(n for n, (verb, _) in enumerate(found) if verb == "FROM") :]
    assert ("USER", "10001:10001") in last
    assert ("STOPSIGNAL", "SIGTERM") in last
    assert ("ENTRYPOINT", '["rowlock"]') in last  # the form that starts no shell, which would keep the signal
    assert not [rest for verb, rest in last if verb in ("RUN", "COPY") and ("pip" in rest or "COPY ." in rest)]


def test_the_image_installs_extras_that_exist_and_copies_files_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = [rest.partition("=")[2] for verb, rest in instructions() if verb == "ARG" and "EXTRAS" in rest]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    copied = [rest.split()[:-1] for verb, rest in instructions() if verb == "COPY" and "--from" not in rest]
    allowed = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    for name in [name for names in copied for name in names]:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name
    assert {project["readme"], *project["license-files"]} <= {name for names in copied for name in names}


def test_the_compose_file_runs_commands_and_settings_that_exist() -> None:
    for name, service in COMPOSE["services"].items():
        if name == "database":
            continue
        check_command(service["command"])
        for variable, value in service["environment"].items():
            if variable.startswith("ROWLOCK_"):
                check_variable(variable, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)))
        assert service["read_only"] is True
        assert service["user"] == "10001:10001"
        assert service["cap_drop"] == ["ALL"]
    worker = COMPOSE["services"]["worker"]
    grace = int(worker["stop_grace_period"].removesuffix("s"))
    assert grace > float(worker["environment"]["ROWLOCK_WORKER__SHUTDOWN_TIMEOUT_SECONDS"])
    port = worker["command"][worker["command"].index("--metrics-port") + 1]
    assert f"127.0.0.1:{port}/readyz" in worker["healthcheck"]["test"][-1]
    for published in COMPOSE["services"]["server"]["ports"]:
        assert published.startswith("127.0.0.1:")
    build = COMPOSE["services"]["migrate"]["build"]
    assert (DEPLOY / "docker" / build["context"] / build["dockerfile"]).resolve().exists()


def test_the_app_of_the_compose_file_is_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    from rowlock.cli.kit.target import load_app

    monkeypatch.syspath_prepend(DEPLOY / "docker" / "app")
    monkeypatch.delitem(__import__("sys").modules, "jobs", raising=False)
    app = load_app(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE["x-rowlock"]["environment"]["ROWLOCK_APP"]))
    assert set(app.registry.all()) == {"greet", "tick"}
    monkeypatch.delitem(__import__("sys").modules, "jobs", raising=False)


# --- systemd


def settings_of(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@each("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists_and_waits_for_its_end(unit: Path) -> None:
    found = settings_of(unit)
    program, *words = shlex.split(found["ExecStart"][0])
    assert program.endswith("/rowlock")
    check_command(words)
    assert found["Type"] == ["notify"]
    assert found["KillMode"] == ["mixed"]
    if words[0] == "worker":
        assert int(found["TimeoutStopSec"][0]) > WorkerSettings().shutdown_timeout_seconds
    for pair in [pair for line in found["Environment"] for pair in line.split()]:
        name, _, value = pair.partition("=")
        if name.startswith("ROWLOCK_"):
            check_variable(name, value)


@pytest.mark.needs("systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:  # it wants the program to be there
        copies.append(tmp_path / unit.name)
        copies[-1].write_text(unit.read_text().replace("/opt/rowlock/bin/rowlock", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", *copies], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if any(copy.name in line for copy in copies)]
    assert (done.returncode, complaints) == (0, [])


# --- the chart


def values(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, value in changes.items():
        *parts, last = path.split("__")
        inside = found
        for part in parts:
            inside = inside[part]
        inside[last] = value
    return found


def rendered(**changes: Any) -> dict[tuple[str, str], dict[str, Any]]:
    objects = Chart(CHART, values(**changes)).objects()
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


def containers(objects: dict[tuple[str, str], dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for (kind, name), one in objects.items():
        if kind in ("Deployment", "Job"):
            pod = one["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            yield name, pod, container


def test_the_default_values_fit_their_schema() -> None:
    import jsonschema

    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(values(), schema)
    for wrong in (values(worker__poolSize="ten"), values(worker__poolsize=3), values(app="no app")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_chart_renders_to_the_objects_of_its_values() -> None:
    assert set(rendered()) == {
        ("Deployment", "demo-worker"),
        ("Deployment", "demo-dispatcher"),
        ("Deployment", "demo-server"),
        ("ConfigMap", "demo-server"),
        ("Service", "demo-server"),
        ("Job", "demo-migrate"),
    }
    few = rendered(server__enabled=False, migrate__enabled=False, keda__enabled=True)
    assert set(few) == {
        ("Deployment", "demo-worker"),
        ("Deployment", "demo-dispatcher"),
        ("ScaledObject", "demo-worker"),
    }
    assert "replicas" not in few["Deployment", "demo-worker"]["spec"]  # KEDA decides


def test_every_container_of_the_chart_runs_a_command_and_settings_that_exist() -> None:
    more = {"ROWLOCK_WORKER__LEASE_SECONDS": 90}
    for name, pod, container in containers(rendered(env=more, keda__enabled=True)):
        check_command([str(word) for word in container["args"]])
        given = {one["name"]: one["value"] for one in container["env"]}
        assert given["ROWLOCK_WORKER__LEASE_SECONDS"] == "90"
        for variable, value in given.items():
            check_variable(variable, value)
        assert container["envFrom"][0] == {"secretRef": {"name": "rowlock"}}
        assert container["image"] == "rowlock:0.1.0"
        locked = container["securityContext"]
        assert (locked["readOnlyRootFilesystem"], locked["allowPrivilegeEscalation"]) == (True, False), name
        assert pod["securityContext"]["runAsNonRoot"] is True
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    config = rendered()["ConfigMap", "demo-server"]
    for variable, value in config["data"].items():
        check_variable(variable, value)
    refs = [source for _, _, one in containers(rendered()) for source in one["envFrom"] if "configMapRef" in source]
    assert refs == [{"configMapRef": {"name": "demo-server"}}]


def test_selectors_ports_and_grace_periods_of_the_chart_fit_together() -> None:
    objects = rendered(worker__shutdownTimeoutSeconds=120)
    for (kind, _), one in objects.items():
        if kind == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
    worker = objects["Deployment", "demo-worker"]["spec"]["template"]
    assert worker["spec"]["terminationGracePeriodSeconds"] > 120
    assert worker["metadata"]["annotations"]["prometheus.io/port"] == "9464"
    service = objects["Service", "demo-server"]["spec"]
    server = objects["Deployment", "demo-server"]["spec"]["template"]
    assert service["selector"].items() <= server["metadata"]["labels"].items()
    for _, _, container in containers(objects):
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                asked = container[probe]["httpGet"]
                assert asked["port"] in ports
                assert asked["path"] in ("/livez", "/readyz")
    assert service["ports"][0]["targetPort"] in {port["name"] for port in server["spec"]["containers"][0]["ports"]}


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_query_of_the_scaler_answers_one_number(database: str) -> None:
    scaled = rendered(keda__enabled=True, worker__queues="default,links")["ScaledObject", "demo-worker"]["spec"]
    (trigger,) = scaled["triggers"]
    assert scaled["scaleTargetRef"]["name"] == "demo-worker"
    assert trigger["metadata"]["targetQueryValue"] == "10"
    with psycopg.connect(database) as connection:
        assert connection.execute(trigger["metadata"]["query"]).fetchall() == [(0,)]


# --- Prometheus and Grafana

SELECTOR = re.compile(r"\b(rowlock_\w+)(?:\{([^}]*)\})?")
HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def check_expression(text: str) -> None:
    """That each metric exists and has the labels by which the expression chooses and groups."""
    used = SELECTOR.findall(text)
    assert used, text
    labels = {"le", "instance"}
    for name, chosen in used:
        base = HISTOGRAM.sub("", name)
        metric = METRICS.get(name) or METRICS.get(base)
        assert metric is not None, f"there is no metric {name}"
        assert (metric.kind == "histogram") == (name != metric.name), text
        labels |= set(metric.labels)
        for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", chosen):
            assert label in metric.labels, f"{name} has no label {label}"
        if metric.kind == "counter":
            assert re.search(rf"(rate|increase)\({name}", text), f"{name} only grows: {text}"
    for group in re.findall(r"\bby \(([^)]*)\)", text):
        assert set(group.split(", ")) <= labels, text


def test_alert_rules_name_metrics_and_labels_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rowlock.rules.yml").read_text())
    (group,) = rules["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        check_expression(rule["expr"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        grouped = {label for found in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in found.split(", ")}
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= grouped, rule["alert"]


def test_the_alert_rules_are_about_the_conditions_that_rowlock_knows() -> None:
    """A rule says in its label which condition it is about; one rule is for all that have none. Limits are those that a
    rule of `alerts.rules` has by default."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rowlock.rules.yml").read_text())["groups"][0]["rules"]
    (rest,) = [rule for rule in rules if "rowlock_problems" in rule["expr"]]
    (left,) = re.findall(r'kind!~"([^"]+)"', rest["expr"])
    own = {rule["labels"]["condition"]: rule for rule in rules if "condition" in rule["labels"]}
    assert set(own) <= set(CONDITIONS)
    assert set(left.split("|")) == {kind for kind in own if not CONDITIONS[kind].needs_limit}
    assert {CONDITIONS[kind].rule for kind in own} == set(KINDS)
    for kind, rule in own.items():
        limit = KINDS[str(CONDITIONS[kind].rule)].above
        if limit is not None:
            assert float(rule["expr"].rpartition("> ")[2]) == limit, rule["alert"]


def test_the_dashboard_names_metrics_and_labels_that_exist_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "rowlock.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            check_expression(target["expr"])
            grouped = {
                label for found in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in found.split(", ")
            }
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, panel["title"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    (query,) = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    check_expression(f"max by (queue) ({SELECTOR.findall(query)[0][0]})")
    assert {name for name, metric in METRICS.items() if metric.counted_in == "server"} <= {
        HISTOGRAM.sub("", name) for panel in dashboard["panels"] for target in panel["targets"]
        for name, _ in SELECTOR.findall(target["expr"])
    }  # fmt: skip
