"""Launches with bound arguments: what bind() of the handles returns, a class for each kind."""
from ctypes import byref, c_uint64

from ._tensors import stream_address


class _Bound:
    def __init__(self, kernel, tensors, arguments):
        self.kernel, self.tensors, self._arguments = kernel, tensors, arguments

    def _queue(self, function, stream):
        self.kernel.engine._live()
        getattr(self.kernel.engine._lib, function)(self.kernel._handle, byref(self._arguments), stream_address(stream))

    def _bytes(self, function):
        self.kernel.engine._live()
        count = c_uint64()
        getattr(self.kernel.engine._lib, function)(self.kernel._handle, byref(self._arguments), byref(count))
        return count.value


class Launch(_Bound):
    """A kernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch", stream)

    def needed_workspace_bytes(self):
        return self._bytes("workspace_bytes")


class GemmLaunch(_Bound):
    """A GemmKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch_gemm", stream)

    def needed_workspace_bytes(self):
        return self._bytes("gemm_workspace_bytes")


class KvWriteLaunch(_Bound):
    """A KvWriteKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch_kv_write", stream)


class RowOpLaunch(_Bound):
    """A RowOpKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch_row_op", stream)


class RouteLaunch(_Bound):
    """A RouteKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch_route", stream)

    def needed_workspace_bytes(self):
        return self._bytes("route_workspace_bytes")


class MoeLaunch(_Bound):
    """A MoeKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch_moe", stream)

    def needed_workspace_bytes(self):
        return self._bytes("moe_workspace_bytes")


class MoeCombineLaunch(_Bound):
    """A MoeCombineKernel with its tensors, which it keeps alive. Calling it queues the work."""

    def __call__(self, stream=None):
        self._queue("launch_moe_combine", stream)
