"""Code that people or models wrote, run where it can do no harm: every outcome has a name."""

from backends.runtime.sandbox.parent import SHARED, BadCall, Limits, Outcome, Sandbox

__all__ = ["SHARED", "BadCall", "Limits", "Outcome", "Sandbox"]
