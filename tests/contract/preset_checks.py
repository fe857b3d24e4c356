"""Checks of a method's presets and claims: each preset is run once, and a claim with the same params takes that run."""

from __future__ import annotations

import pickle
import time

from app import pages
from app.plotting import view_json
from app.render import claim_params
from backends.contract import Claim, Frame, Method, Params, Preset
from backends.store import RUN_LIMIT_BYTES, FrameKeeper
from backends.validation import validate
from tests.contract.run_checks import assert_metrics, assert_progress
from tests.contract.running import HANG_FACTOR, run

SLOW_S = 20.0  # presets stated above this are run by `make bench` only
LOAD_S = 60.0  # imports and shared loads, which the stated time leaves out

_RUNS: dict[str, tuple[tuple[Frame, ...], float]] = {}


def is_slow(preset: Preset) -> bool:
    return preset.seconds > SLOW_S


def run_once(method: Method, params: Params, stated_s: float) -> tuple[tuple[Frame, ...], float]:
    """The frames that a store would keep, and the seconds; one run for equal params."""
    key = f"{method.card.slug} {params.model_dump_json()}"
    if key not in _RUNS:
        started = time.monotonic()
        result = run(method, params, limit_s=HANG_FACTOR * stated_s + LOAD_S)
        assert_progress(result.frames)
        keeper = FrameKeeper()
        for frame in result.frames:
            assert_metrics(method, frame)
            keeper.add(frame)
        _RUNS[key] = keeper.frames(), time.monotonic() - started
    return _RUNS[key]


def check_preset(method: Method, preset: Preset) -> None:
    """Ends within ten times its stated time (a hang guard), draws, and can be stored."""
    params = validate(method.Params, preset.params)
    frames, seconds = run_once(method, params, preset.seconds)
    print(f"{method.card.slug} {preset.name}: {seconds:.1f} s, stated {preset.seconds:g} s")
    assert frames, "the last frame alone is larger than a stored run may be"
    assert sum(len(pickle.dumps(f, protocol=5)) for f in frames) <= RUN_LIMIT_BYTES
    assert seconds <= HANG_FACTOR * preset.seconds + LOAD_S
    views = pages.load(method.card.slug).views(frames[-1], params)
    assert views, "the last frame has no picture"
    for view in views:
        view_json(view)


def check_claim(method: Method, claim: Claim) -> None:
    """The claim's figure, measured again from its preset, lies within its tolerance."""
    params = claim_params(method.card, method.Params, claim.name)
    frames, _ = run_once(method, params, method.card.preset(claim.preset).seconds)
    here = frames[-1].metrics.get(claim.metric)
    assert isinstance(here, int | float), f"{claim.metric} is {here!r}: {frames[-1].message}"
    print(f"{method.card.slug} {claim.name}: {here:.6g} here, {claim.value:g} stated, tolerance {claim.tolerance:g}")
    off = abs(float(here) - claim.value)
    assert off <= claim.tolerance, f"{claim.text}: {here:.6g} here, {claim.value:g} stated in {claim.source}, tolerance {claim.tolerance:g}"
