"""An engine for tests of handles that build structs and launch nothing."""
import ctypes

from kernelwright import _door, _library


class NoKernels:
    """An engine whose handles are never launched: enough to build structs."""

    def __init__(self):
        self._lib, self._lives = _library.load(), ctypes.c_int32(1)
        self._workspaces = _door.Workspaces(self)

    def is_emulated(self, _device):
        return True

    def _live(self):
        return ctypes.c_void_p()
