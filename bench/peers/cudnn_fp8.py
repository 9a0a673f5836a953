"""cuDNN's attention over e4m3 queries, keys and values, through its Python module: `cudnn`, PyPI's
nvidia-cudnn-frontend. PyTorch does not offer it.
"""
import copy
import dataclasses

import torch

from .arm import Arm, Cannot
from .inputs import LARGEST, values

P_SCALE = 256.0  # of probabilities, which are at most 1


def arm(case):
    """On Hopper the output of cuDNN 9.19 is e4m3 alone. An output is a mean of values, so that its scale is theirs: no
    element saturates."""
    try:
        import cudnn
    except ImportError as error:
        raise Cannot(f"{error}; fp8 rows need PyPI's nvidia-cudnn-frontend") from error
    row = case.row
    out_scale = values(case.v, case.v_scale).abs().amax().view(1) / LARGEST
    factors = {"descale_q": case.q_scale, "descale_k": case.k_scale, "descale_v": case.v_scale, "descale_s": 1 / P_SCALE,
               "scale_s": P_SCALE, "scale_o": 1 / out_scale}
    numbers = {name: torch.ones(1, 1, 1, 1, device=case.device) * x for name, x in factors.items()}
    handle = cudnn.create_handle()
    e4m3, f32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=e4m3, intermediate_data_type=f32, compute_data_type=f32, handle=handle)

    def named(name, tensor, dtype):
        return graph.tensor(name=name, dim=list(tensor.shape), stride=list(tensor.stride()), data_type=dtype)

    # [batch, heads, len, elements] views of [batch, len, heads, elements] tensors.
    tensors = {name: x.transpose(1, 2) for name, x in (("q", case.padded_q()), ("k", case.k), ("v", case.v))}
    nodes = {name: named(name, x, e4m3) for name, x in tensors.items()} | {name: named(name, x, f32) for name, x in numbers.items()}
    arguments = dict(nodes, attn_scale=row.head_dim**-0.5, use_causal_mask=row.causal, name="sdpa")
    try:
        found, _, *largest = graph.sdpa_fp8(is_inference=True, **arguments)
    except TypeError:  # its newer name
        found, _, *largest = graph.sdpa_fp8(generate_stats=False, **arguments)
    out = torch.empty(row.batch, row.q_len, row.heads, row.v_head_dim, device=case.device, dtype=torch.float8_e4m3fn)
    view = out.transpose(1, 2)
    found.set_output(True).set_dim(list(view.shape)).set_stride(list(view.stride())).set_data_type(e4m3)
    for node in largest:  # of probabilities and of the output
        node.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(f32)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(1, graph.get_workspace_size()), device=case.device, dtype=torch.uint8)
    bound = {node: (tensors | numbers)[name] for name, node in nodes.items()} | {found: view}
    bound |= {node: torch.zeros(1, 1, 1, 1, device=case.device) for node in largest}

    def call():
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(bound, workspace, handle=handle)
        return out

    own = copy.copy(case)
    own.row, own.out_scale = dataclasses.replace(row, out_dtype="e4m3"), out_scale
    return Arm("cudnn", call, row.work()[0], (graph, bound, workspace), case=own, scale=out_scale)
