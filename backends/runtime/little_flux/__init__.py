"""A text-to-image rectified flow of 3 million parameters that is a FluxPipeline, trained on the lab's own scenes; public names load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "configuration": ["IMAGE_SIZE", "MASK_BLOCK", "SEQUENCE_LENGTH", "VOCABULARY"],
        "pipeline": ["call_settings", "load", "read"],
    },
)
