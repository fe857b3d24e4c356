"""The list of checks, and how it is run on one method.

``for name, check in checks_of(method): check(method)`` runs on any object that has the form of ``backends.contract.Method``, also one
that is not registered here; a page module ``app.pages.<package>`` must be importable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from backends.contract import Claim, Method
from tests.contract import card_checks, input_checks, page_checks, run_checks, stop_checks
from tests.contract.golden_results import check_golden_result, path_of
from tests.contract.preset_checks import is_slow

Check = Callable[[Method], None]
ALL: tuple[Check, ...] = (*card_checks.CHECKS, *input_checks.CHECKS, *run_checks.CHECKS, *stop_checks.CHECKS, *page_checks.CHECKS)


def checks_of(method: Method) -> Iterator[tuple[str, Check]]:
    """The checks that apply by what the method says of itself: name and function."""
    fields = method.Params.model_fields.values()
    has_live = any(isinstance(f.json_schema_extra, dict) and f.json_schema_extra.get("live") for f in fields)
    has_files = bool(input_checks.upload_fields(method))
    repeats = method.card.deterministic is not False
    for check in ALL:
        if check in (run_checks.check_live_run_equals_full_run, page_checks.check_live_frame_draws_too) and not has_live:
            continue
        if check is input_checks.check_files_come_as_bytes_only and not has_files:
            continue
        if check in NEED_REPEATING and not repeats:
            continue
        yield name_of(check), check
    if repeats and path_of(method).exists():
        yield name_of(check_golden_result), check_golden_result


NEED_REPEATING = (
    run_checks.check_equal_seed_equal_result,
    run_checks.check_warm_store_changes_nothing,
    run_checks.check_interleaved_runs_equal_runs_in_a_row,
)


def name_of(check: Check) -> str:
    """The check's name in a test id: ``check_stored_run_is_small`` becomes ``stored-run-is-small``."""
    return check.__name__.removeprefix("check_").replace("_", "-")



def is_slow_claim(method: Method, claim: Claim) -> bool:
    return is_slow(method.card.preset(claim.preset))
