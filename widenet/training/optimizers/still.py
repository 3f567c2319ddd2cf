"""What formulas whose idle rows stand still have in common."""

import numpy as np
from torch import Tensor


class StandsStill:
    """A formula under which a row without a gradient does not move."""

    idles = False

    def idle(self, weight: Tensor, state: dict[str, Tensor], since_U: np.ndarray, until: int, rates: np.ndarray) -> None:
        """Nothing moves."""
