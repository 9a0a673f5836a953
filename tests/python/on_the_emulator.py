"""What tests of kernels on the emulator share: an engine, one kernel, arrays of it, and how a call takes them."""
import struct
import unittest

import kernelwright
from lent import Lent

FAST = kernelwright.fast_calls()["fast"]


class EmulatorTest(unittest.TestCase):
    """cls.engine, and cls.kernel of cls.config(). Skipped where there is no NVRTC."""

    @classmethod
    def config(cls):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        if cls is EmulatorTest:
            raise unittest.SkipTest("a base")
        cls.engine = kernelwright.Engine("emulator", hazards=True)
        try:
            cls.kernel = cls.engine.prepare(cls.config())
        except kernelwright.MissingError as error:
            raise unittest.SkipTest(f"no NVRTC: {error}")

    @classmethod
    def tearDownClass(cls):
        if cls is not EmulatorTest:
            cls.engine.close()

    def array(self, values, dtype, letter, *shape):
        array = self.engine.empty(shape, dtype)
        array.write(struct.pack(f"{len(values)}{letter}", *values))
        return array

    def read(self, array, letter="e"):
        data = getattr(array, "owner", array).read()
        return struct.unpack(f"{len(data) // struct.calcsize(letter)}{letter}", data)

    def lent(self, array):
        """The array as a framework's tensor, which the extension takes."""
        return Lent(array.address, array.shape, None, array.dtype, owner=array)

    def ways(self):
        """How a call takes tensors, and whether the extension takes the call."""
        Lent.on_allocate = staticmethod(lambda shape, dtype: self.lent(self.engine.empty(shape, dtype)))
        return [(self.lent, True)] * FAST + [(lambda array: array, False)]
