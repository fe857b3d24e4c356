"""What the pictures of a run need, as plain data (the layout stands in ``method``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.kernelband.compare import COMPARED, Comparison
from backends.kernelband.landscape import Landscape
from backends.kernelband.search import Search
from backends.kernelband.substrate import RESOURCES, STRATEGIES, Candidate, Roofline
from backends.kernelband.survey import Survey

TEXT_LIMIT = 20_000  # characters of a program, or of what the compiler said of it, that a frame carries


def search(run: Search) -> dict[str, Any]:
    """All that a search has found so far; needs its baseline."""
    return {
        "phase": run.now.phase,
        "round": run.now.round,
        "strategies": list(STRATEGIES),
        "resources": list(RESOURCES),
        "attempts": _attempts(run),
        "drift": {"round": [r for r, _ in run.drift], "ms": [ms for _, ms in run.drift]},
        "arms": _arms(run),
        "headroom": _headroom(run),
        "kernels": _kernels(run),
        "features": features(run),
        "roofline": _roofline(run.bench.roofline),
        "diff": _diff(run),
        "best": best(run.frontier.candidates[0], run.frontier.candidates[run.frontier.best()], run.frontier.best()),
        "counters": {**vars(run.counters), "failed": run.counters.wrong + run.counters.compile_errors},
    }


def best(naive: Candidate, found: Candidate, member: int) -> dict[str, Any]:
    """The texts of the naive and of the fastest kernel."""
    return {"member": member, "naive": naive.source[:TEXT_LIMIT], "source": found.source[:TEXT_LIMIT]}


def _attempts(run: Search) -> dict[str, list[Any]]:
    done = run.attempts
    best, least = [], run.frontier.timings[0].ms
    for attempt in done:
        least = min(least, attempt.ms or least)
        best.append(least)
    return {
        "round": [a.round for a in done],
        "cluster": [a.cluster for a in done],
        "strategy": [a.strategy for a in done],
        "parent": [a.parent for a in done],
        "member": [a.member for a in done],
        "outcome": [a.outcome for a in done],
        "ms": [a.ms for a in done],
        "parent_ms": [run.frontier.timings[a.parent].ms for a in done],
        "best_ms": best,
        "reward": [a.reward for a in done],
        "saved": [a.saved for a in done],
        "text": [a.entry.failure.text[:200] if a.entry.failure else "" for a in done],
    }


def _arms(run: Search) -> dict[str, Any] | None:
    """None for a sampler that has no arms."""
    choice, standing = run.now.choice, run.policy.standing
    if choice is not None and choice.strategy < 0 and run.now.round > 0:
        return None
    bandit = run.policy.bandit
    return {
        "mu": bandit.mu.copy(),
        "n": bandit.n.copy(),
        "bonus": bandit.bonus(),
        "open": standing.open.copy() if len(standing.open) else np.ones(bandit.mu.shape, bool),
        "empty": list(standing.empty),
        "chosen": [choice.cluster, choice.strategy] if choice and choice.strategy >= 0 else None,
    }


def _headroom(run: Search) -> dict[str, Any]:
    standing = run.policy.standing
    return {"h": standing.h.copy(), "representative": list(standing.representatives), "theta": np.array(run.policy.settings.theta)}


def _kernels(run: Search) -> dict[str, Any]:
    frontier = run.frontier
    flops, moved = (np.array([getattr(p, name) for p in frontier.profiles]) for name in ("flops", "bytes"))
    return {
        "ms": frontier.ms,
        "cv": np.array([t.cv for t in frontier.timings]),
        "noise": np.array([t.noise for t in frontier.timings]),
        "cluster": frontier.labels,
        "parent": np.array(frontier.parent),
        "strategy": np.array(frontier.strategy),
        "round": np.array(frontier.round),
        "intensity": flops / moved,
        "gflops": flops / frontier.ms / 1e6,
        "h": frontier.h,
        "phi": frontier.phi,
        "facts": [dict(p.facts) for p in frontier.profiles],
    }


def features(run: Search) -> dict[str, Any] | None:
    """The first two principal components of the standardised features, with the centroids in them; None below two members."""
    phi = run.frontier.phi
    if len(phi) < 2:
        return None
    mean, spread = phi.mean(axis=0), phi.std(axis=0)
    scale = np.where(spread < 1e-8, 1.0, spread)
    points = (phi - mean) / scale
    _, singular, axes = np.linalg.svd(points, full_matrices=False)
    axes = axes[:2] * np.where(axes[:2].sum(axis=1, keepdims=True) < 0, -1, 1)  # a fixed sign: pictures must not flip between frames
    variance = singular**2
    centroids = run.policy.clustering.raw_centroids()
    return {
        "xy": points @ axes.T,
        "centroids": None if centroids is None else (centroids - mean) / scale @ axes.T,
        "share": (variance[:2] / max(variance.sum(), 1e-12)).tolist(),
        "names": ["ln(1 + ms)", "registers", "working set", "log2 of the tile", "lanes in use"],
    }


def _roofline(roofline: Roofline) -> dict[str, float]:
    return {"gflops": roofline.gflops, "dram": roofline.dram, "cache": roofline.cache}


def _diff(run: Search) -> dict[str, Any] | None:
    """Parent and child of the attempt under way, or of the last one."""
    choice, child = run.now.choice, run.now.child
    if choice is None:
        return None
    last = run.attempts[-1] if run.attempts else None
    settled = last is not None and last.round == run.now.round
    return {
        "parent": run.frontier.candidates[choice.parent].source[:TEXT_LIMIT],
        "child": child.source[:TEXT_LIMIT] if child else None,
        "output": last.entry.log[:TEXT_LIMIT] if settled and last else "",
        "outcome": last.outcome if settled and last else None,
    }


def comparison(found: Comparison, landscape: Landscape, chosen: str) -> dict[str, Any]:
    """Bands of all policies, and how much of the space the table holds."""
    bands = {name: found.band(name) for name in COMPARED}
    entries = landscape.entries.values()
    return {
        "chosen": chosen,
        "seeds": len(found.best[COMPARED[0]]),
        "policies": {name: {"mean": b.mean, "low": b.low, "high": b.high} for name, b in bands.items() if b is not None},
        "pulls": {name: pulls.copy() for name, pulls in found.pulls.items() if name != "tpe"},
        "strategies": list(STRATEGIES),
        "final": {name: np.exp([row[-1] for row in rows]) for name, rows in found.best.items()},
        "landscape": {
            "schedules": len(landscape.entries),
            "failures": sum(e.failure is not None for e in entries),
            "fastest": max(landscape.baseline_ms / e.timing.ms for e in entries if e.timing is not None),
            "inside": landscape.share_inside(),
            "stale": landscape.stale,
            "ms": np.sort([e.timing.ms for e in entries if e.timing is not None]),
        },
    }


def instructions(log: str) -> str:
    """The PTX that a log of the compiler ends with: from its target on, without comments, positions in the source and debug sections.

    >>> instructions("softmax for sm_90: 38 registers\\n\\n//\\n.version 8.7\\n.target sm_90a\\n\\t.loc\\t1 22 0\\n\\tret;  // %bb.0\\n\\t.section .debug")
    '.target sm_90a\\n\\tret;'
    """
    _, start, text = log.partition("\n.target")
    lines = (line.partition("//")[0].rstrip() for line in (start + text).partition("\t.section")[0].splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("\t.loc"))[:TEXT_LIMIT]


def survey(run: Survey) -> dict[str, Any]:
    """A table of what the compiler says, the newest edit, and the machine code of the newest program that is right, with its parent's."""
    last = run.rows[-1]
    newest = max(place for place, row in enumerate(run.rows) if row.outcome == "right")
    parent = max(run.rows[newest].parent, 0)
    return {
        "strategies": list(STRATEGIES),
        "rows": [
            {"round": r.round, "strategy": r.strategy, "parent": r.parent, "outcome": r.outcome, "facts": dict(r.facts), "text": r.log[:200]} for r in run.rows
        ],
        "diff": {
            "parent": run.rows[max(last.parent, 0)].candidate.source[:TEXT_LIMIT],
            "child": last.candidate.source[:TEXT_LIMIT],
            "output": last.log[:TEXT_LIMIT],
            "outcome": last.outcome,
        },
        "ptx": {"program": newest, "parent": parent, "before": instructions(run.rows[parent].log), "after": instructions(run.rows[newest].log)},
        "counters": {**vars(run.counters), "failed": run.counters.wrong + run.counters.compile_errors},
    }
