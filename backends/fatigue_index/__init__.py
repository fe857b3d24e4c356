"""The Fatigue Index: a language model watched while it writes; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "alarm": ["flips", "hysteresis", "smooth", "threshold"],
        "calibration": ["Calibration", "calibrate"],
        "generation": ["Plan", "Trace", "generate"],
        "index": ["Constants", "contributions", "fatigue_index", "penalties"],
        "repetition": ["repetition_ratio", "running_repetition"],
        "signals": ["attention_to_prompt", "drift", "entropy"],
        "study": ["auroc", "rank_correlation"],
    },
)
