"""Memory of an emulated device, counted allocation by allocation."""

import types
import weakref

import numpy as np
from emulation.host import HostLauncher, arrays

from bulksample.backends.cuda.backend import Cuda


class Counted:
    """An array module that counts what is alive, and refuses what would be more than `most`."""

    def __init__(self, most=1 << 60):
        self.alive, self.peak, self.most = 0, 0, most
        makers = {name: self._made(getattr(arrays, name)) for name in ("empty", "full", "asarray")}
        makers["argsort"] = self._made(self._argsort)
        self.module = types.SimpleNamespace(**{**vars(arrays), **makers})

    def _made(self, make):
        def counted(*arguments):
            array = make(*arguments)
            if self.alive + array.nbytes > self.most:
                raise MemoryError(f"{array.nbytes} bytes beside {self.alive}")
            self.alive += array.nbytes
            self.peak = max(self.peak, self.alive)
            weakref.finalize(array, self._gone, array.nbytes)
            return array

        return counted

    def _argsort(self, keys):
        """CuPy's copies the keys, and radix sort has a second place for keys and for indices: cupy/cuda/cupy_thrust.inl."""
        self.peak = max(self.peak, self.alive + (8 + 24) * len(keys))
        return np.argsort(keys)

    def _gone(self, nbytes):
        self.alive -= nbytes


def counted_engine(counted, free_bytes):
    return Cuda(counted.module, HostLauncher(), free_bytes)
