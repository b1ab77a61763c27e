"""ops-nn: run neural networks on small boards."""

from __future__ import annotations

from .errors import OpsNNError
from .schema import VERSION as __version__

__all__ = ["OpsNNError", "__version__"]
