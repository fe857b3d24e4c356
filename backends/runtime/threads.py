"""Threads of this process, the one place. ``configure()`` runs before numpy or torch is imported.

Why: OpenMP workers that spin while they wait starve each other on a small host (a language model fell from
14 to 2.4 tokens a second), and one pure-Python computation holds the interpreter lock for 5 ms a turn, which
raised the first frame of 60 visitors from 0.6 to 3.7 s; a switch interval of 0.5 ms brought it to 1.9 s.
"""

from __future__ import annotations

import os
import sys

COMPUTE_THREADS = 1  # a run; more visitors are worth more than one fast run
SWITCH_INTERVAL_S = 0.0005


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def configure() -> None:
    """Sets waiting policy, thread counts and switch interval; harmless when called again."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ.setdefault(name, str(COMPUTE_THREADS))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(COMPUTE_THREADS)
