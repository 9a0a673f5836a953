"""The exceptions of the package."""


class KernelwrightError(RuntimeError):
    """An error that a call of the library reported. The subclasses are the statuses of the C ABI."""


class ConfigError(KernelwrightError, ValueError):
    """A config, an option or a tensor that cannot be used. A retry gives the same error."""


class CompileError(KernelwrightError):
    """NVRTC rejected a source."""


class MissingError(KernelwrightError):
    """The machine lacks a driver, a GPU, a compiler, or the library itself."""


class DeviceError(KernelwrightError):
    """A driver call failed, or a launch on the emulator failed."""


class NotReadyError(KernelwrightError):
    """A kernel is not prepared, and the engine is sealed, the stream captures, or the caller does not want to wait."""


class InternalError(KernelwrightError):
    """Out of memory, or a bug in the library."""
