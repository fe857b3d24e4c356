"""Every registered method under one contract; ids are ``method-check``. A new method is tested with no line written here."""

from __future__ import annotations

import pytest

from backends import registry
from backends.contract import Claim, Method, Preset
from tests.contract.collection import Check, checks_of, is_slow_claim
from tests.contract.golden_results import path_of
from tests.contract.preset_checks import LOAD_S, check_claim, check_preset, is_slow
from tests.contract.running import HANG_FACTOR

METHODS = list(registry.methods().values())
LIMIT_S = 150


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(("method", "check"), [pytest.param(m, c, id=f"{m.card.slug}-{n}") for m in METHODS for n, c in checks_of(m)])
def test_contract(method: Method, check: Check) -> None:
    check(method)


def _preset_param(method: Method, preset: Preset) -> object:
    marks = [pytest.mark.timeout(HANG_FACTOR * preset.seconds + LOAD_S + LIMIT_S)]
    return pytest.param(method, preset, id=f"{method.card.slug}-{preset.name}", marks=[*marks, *([pytest.mark.slow] if is_slow(preset) else [])])


@pytest.mark.parametrize(("method", "preset"), [_preset_param(m, p) for m in METHODS for p in m.card.presets])
def test_preset(method: Method, preset: Preset) -> None:
    check_preset(method, preset)


def _claim_param(method: Method, claim: Claim) -> object:
    marks = [pytest.mark.timeout(HANG_FACTOR * method.card.preset(claim.preset).seconds + LOAD_S + LIMIT_S)]
    return pytest.param(method, claim, id=f"{method.card.slug}-{claim.name}", marks=[*marks, *([pytest.mark.slow] if is_slow_claim(method, claim) else [])])


@pytest.mark.parametrize(("method", "claim"), [_claim_param(m, c) for m in METHODS for c in m.card.claims])
def test_claim(method: Method, claim: Claim) -> None:
    check_claim(method, claim)


@pytest.mark.parametrize("method", [pytest.param(m, id=m.card.slug) for m in METHODS if m.card.deterministic is not False])
def test_has_golden_result(method: Method) -> None:
    if not path_of(method).exists():
        pytest.skip(f"no golden result of {method.card.slug}: python -m tests.contract.golden_results {method.card.slug} writes one")
