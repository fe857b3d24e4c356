"""What a process of the lab does with threads: set before numpy and torch are imported, in one place."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from backends.runtime import device, folders, threads
from backends.runtime.folders import ROOT

ASK = """
import json, os, sys
from backends.runtime import threads
assert "numpy" not in sys.modules and "torch" not in sys.modules
threads.configure()
threads.configure()
import numpy, threadpoolctl
names = ["OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM"]
print(json.dumps({
    "environment": {n: os.environ[n] for n in names},
    "switch": sys.getswitchinterval(),
    "blas": [p["num_threads"] for p in threadpoolctl.threadpool_info()],
}))
"""


def _asked(**environment: str) -> dict[str, object]:
    bare = {k: v for k, v in os.environ.items() if not k.endswith("_THREADS") and k not in ("OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM")}
    out = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, env=bare | environment, capture_output=True, text=True, check=True, timeout=60).stdout
    return dict(json.loads(out))


def test_a_fresh_process_computes_in_one_thread_and_switches_often() -> None:
    said = _asked()
    assert said["environment"] == {
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert said["switch"] == pytest.approx(0.0005)
    assert set(said["blas"]) <= {1}  # type: ignore[call-overload]


def test_what_the_operator_set_stays() -> None:
    said = _asked(OMP_NUM_THREADS="2", OMP_WAIT_POLICY="active")
    assert said["environment"]["OMP_NUM_THREADS"] == "2"  # type: ignore[index]
    assert said["environment"]["OMP_WAIT_POLICY"] == "active"  # type: ignore[index]


def test_cores_are_those_this_process_may_use() -> None:
    assert 1 <= threads.cores() <= (os.cpu_count() or 1)


def test_the_device_is_chosen_by_the_operator_and_else_found(monkeypatch: pytest.MonkeyPatch) -> None:
    device.default.cache_clear()
    monkeypatch.setenv("PLAYABLE_DEVICE", "cuda:1")
    assert device.default() == "cuda:1"
    device.default.cache_clear()
    monkeypatch.delenv("PLAYABLE_DEVICE")
    assert device.default() in ("cpu", "cuda")
    device.default.cache_clear()


def test_the_cache_folder_is_made_where_the_operator_wants_it(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", f"{tmp_path}/a/b")
    assert folders.cache().is_dir()
    assert str(folders.cache()) == f"{tmp_path}/a/b"
    monkeypatch.setenv("PLAYABLE_CACHE", "")
    assert folders.cache() == ROOT / ".cache"
