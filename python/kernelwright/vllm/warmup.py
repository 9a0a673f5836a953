"""What follows vLLM's warm-up: no kernel compiles any more, whichever parts of a model are ours."""
from __future__ import annotations

import functools
import sys

from .._errors import KernelwrightError

WORKER = "vllm.v1.worker.gpu_worker"  # each process that runs a model has it before it loads the model


def seal_behind_warm_up(served):
    """Lets vLLM's worker of this process seal the engines of `served` once it has warmed up and captured its graphs."""
    worker = getattr(sys.modules.get(WORKER), "Worker", None)
    given = getattr(worker, "compile_or_warm_up_model", None)
    if given is None or hasattr(given, "of_kernelwright"):
        return

    @functools.wraps(given)
    def compile_or_warm_up_model(self):
        found = given(self)
        try:
            served.seal()
        except KernelwrightError as error:
            raise type(error)(f"kernelwright: a kernel has failed that the first requests would need: {error}. KERNELWRIGHT_VLLM and "
                              "--attention-backend say what kernelwright serves") from error
        return found
    compile_or_warm_up_model.of_kernelwright = True
    worker.compile_or_warm_up_model = compile_or_warm_up_model
