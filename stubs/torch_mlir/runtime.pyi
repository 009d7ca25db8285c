from ctypes import Structure

import numpy as np
from numpy.typing import NDArray

def get_ranked_memref_descriptor(array: NDArray[np.generic]) -> Structure: ...
