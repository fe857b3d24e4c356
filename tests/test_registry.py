"""The registry: found by walking, light to import, near matches in the fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import backends
from backends import registry
from backends.contract import InputError, Method
from backends.runtime.folders import ROOT
from tests.fakes import FakeParams, card

CARD = """
from backends.contract import Params
from tests.fakes import card
CARD = card("{slug}")
"""
METHOD = "def run(params, context):\n    yield from ()\n"


@pytest.fixture
def methods_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder beside the real methods, in which a test puts packages."""
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    registry.methods.cache_clear()
    yield tmp_path
    registry.methods.cache_clear()
    for name in [n for n in sys.modules if n.startswith("backends.zz_")]:
        del sys.modules[name]


def put(folder: Path, package: str, slug: str, extra: str = "") -> None:
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text("")
    (folder / package / "card.py").write_text(CARD.format(slug=slug) + extra)
    (folder / package / "method.py").write_text(METHOD)


def test_a_package_beside_the_others_is_a_method_with_no_line_written_elsewhere(methods_folder: Path) -> None:
    put(methods_folder, "zz_new", "zz-new", "def weight(params):\n    return 'timing'\n")
    put(methods_folder, "zz_plain", "zz-plain")
    found = registry.methods()
    new = registry.get("zz-new")
    assert isinstance(new, Method)
    assert new in registry.by_theme()["uncertainty"]
    assert (new.weight(new.Params()), found["zz-plain"].weight(None)) == ("timing", "cpu")
    assert "backends.zz_new.method" not in sys.modules, "the code is imported at its first run"
    assert list(new.run(new.Params(), None)) == []  # type: ignore[arg-type]
    assert "runtime" not in found


def test_a_card_must_name_its_package(methods_folder: Path) -> None:
    put(methods_folder, "zz_wrong", "zz-other")
    with pytest.raises(ValueError, match="its package must be named zz_other"):
        registry.methods()


def test_the_list_is_sorted_by_theme_and_title() -> None:
    order = list(registry.THEMES)
    keys = [(order.index(m.card.theme), m.card.title.lower()) for m in registry.methods().values()]
    assert keys == sorted(keys)
    assert [m for group in registry.by_theme().values() for m in group] == list(registry.methods().values())


@pytest.mark.parametrize("slug", ["conformal-ksoss", "Conformal_kSoS", "", "x" * 10_000, "../etc", "a\nb"])
def test_an_unknown_method_is_a_plain_fault(slug: str) -> None:
    with pytest.raises(InputError) as caught:
        registry.get(slug)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 400
    assert text.endswith("; did you mean conformal-ksos?") or ("; choose one of " in text and "?" not in text.split("; ")[1])


def test_a_version_changes_with_the_methods_code_and_with_what_it_stands_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("backends/fake", "backends/runtime", "backends/other", "kernels"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "code.py").write_text("x = 1")
    monkeypatch.setattr(backends, "__file__", str(tmp_path / "backends" / "__init__.py"))

    def version() -> str:
        return registry.Registered(card(), FakeParams, "backends.fake", lambda _: "cpu").version

    versions = [version()]
    for name in ("backends/fake", "backends/runtime", "kernels"):
        (tmp_path / name / "code.py").write_text("x = 2")
        versions.append(version())
    assert len(set(versions)) == 4
    (tmp_path / "backends/other/code.py").write_text("x = 2")
    assert version() == versions[-1], "another method's code is none of its business"


ASK = """
import json, sys, time
started = time.process_time()
from backends import registry
found = registry.methods()
seconds = time.process_time() - started
heavy = sorted({n.split(".")[0] for n in sys.modules} & set(sys.argv[1].split(",")))
print(json.dumps({"seconds": seconds, "heavy": heavy, "methods": sorted(found)}))
"""
OPTIONAL = "torch,transformers,diffusers,sklearn,scipy,pandas,gudhi,triton,statsmodels,mapie,gradio,plotly,fastapi,app,PIL,diskcache"


def test_the_registry_is_quick_and_loads_no_optional_package() -> None:
    """In processor time: the machine may be busy with other tests."""
    out = subprocess.run([sys.executable, "-c", ASK, OPTIONAL], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    answer = json.loads(out)
    assert answer["heavy"] == []
    assert "conformal-ksos" in answer["methods"]
    assert answer["seconds"] < 0.5
