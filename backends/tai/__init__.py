"""A clarifying dialogue led by persistent homology; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "belief": ["update"],
        "homology": ["barcode", "clusters", "cut", "loops"],
        "information": ["eig", "teig"],
    },
)
