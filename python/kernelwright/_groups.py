"""Activations to e4m3, with a scale for each 128 elements of a row: what GEMMs with scales per_block take as their left
operand. The engine's own quantising kernels have other formats (mxfp8, mxfp4, nvfp4)."""
import functools

import torch

GROUP = 128
MOST = 448.0  # the largest e4m3
LEAST = 1e-10  # of a group's largest element, so that a group of zeros has a scale


def quantize_groups(x):
    """x [m, k], k a multiple of 128: (elements e4m3 [m, k], scales f32 [k / 128, m], whose rows have a stride that is a
    multiple of 4)."""
    if x.device.type == "cuda" and not torch.compiler.is_compiling() and _triton() is not None:
        return _triton()(x)
    m, k = x.shape
    groups = x.float().reshape(m, k // GROUP, GROUP)
    scales = groups.abs().amax(-1).clamp_min(LEAST) / MOST
    out = x.new_empty(k // GROUP, (m + 3) // 4 * 4, dtype=torch.float32)[:, :m]
    return (groups / scales[..., None]).to(torch.float8_e4m3fn).view(m, k), out.copy_(scales.t())


@functools.cache
def _triton():
    """The same in one launch; None where Triton is not installed. torch.compile makes one kernel of the above itself."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None
    groups = 8  # of a row, which one program takes

    @triton.jit
    def kernel(x, elements, scales, x_stride, scale_stride, k, GROUPS: tl.constexpr, GROUP: tl.constexpr,
               MOST: tl.constexpr, LEAST: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
        column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        values = tl.load(x + row * x_stride + column, mask=column < k, other=0.0).to(tl.float32)
        scale = tl.div_rn(tl.maximum(tl.max(tl.abs(values), 1), LEAST), MOST)  # rounded as torch rounds
        rounded = tl.div_rn(values, tl.broadcast_to(scale[:, None], (GROUPS, GROUP))).to(elements.dtype.element_ty)
        tl.store(elements + row * k + column, rounded, mask=column < k)
        tl.store(scales + group.to(tl.int64) * scale_stride + row, scale, mask=group * GROUP < k)

    def run(x):
        m, k = x.shape
        x = x if x.stride(1) == 1 else x.contiguous()
        elements = torch.empty(m, k, dtype=torch.float8_e4m3fn, device=x.device)
        scales = torch.empty(k // GROUP, (m + 3) // 4 * 4, dtype=torch.float32, device=x.device)
        kernel[(m, triton.cdiv(k, groups * GROUP))](x, elements, scales, x.stride(0), scales.stride(0), k, groups, GROUP, MOST,
                                                    LEAST)
        return elements, scales[:, :m]
    return run
