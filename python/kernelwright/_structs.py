"""The structs, callbacks and constants of runtime/c/c_api.h.

scripts/generate_structs.py writes this file. Do not edit it: change the header and run the script.
"""
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from ._checked import Checked, Struct

OK = 0
INVALID_ARGUMENT = 1
COMPILE_ERROR = 2
MISSING = 3
DEVICE_ERROR = 4
NOT_READY = 5
INTERNAL_ERROR = 6

LEVEL_DEBUG = 0
LEVEL_INFO = 1
LEVEL_WARNING = 2
LEVEL_ERROR = 3


class Event(Struct):
    _fields_ = [("struct_size", c_size_t), ("kind", c_char_p), ("key", c_char_p), ("name", c_char_p), ("detail", c_char_p),
                ("milliseconds", c_double), ("level", c_int32)]


EventCallback = CFUNCTYPE(None, POINTER(Event), c_void_p)


ON_MISS_BLOCK = 0
ON_MISS_FALLBACK = 1
ON_MISS_ERROR = 2


class EngineOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("backend", c_char_p), ("cache_directory", c_char_p),
                ("read_only_layers", POINTER(c_char_p)), ("num_read_only_layers", c_size_t), ("max_cache_bytes", c_uint64),
                ("nvrtc_path", c_char_p), ("memory_only_cache", c_int32), ("compile_threads", c_int32),
                ("event_callback", EventCallback), ("user_data", c_void_p), ("emulator_arch", c_char_p),
                ("completion", c_char_p), ("seed", c_uint64), ("hazards", c_int32), ("emulator_threads", c_int32),
                ("tuned_dir", c_char_p), ("event_level", c_int32), ("launch_sampling", c_uint32), ("check_data", c_int32),
                ("lock_timeout_ms", c_int32), ("bundles", POINTER(c_char_p)), ("num_bundles", c_size_t),
                ("bundle_keys", POINTER(c_char_p)), ("num_bundle_keys", c_size_t), ("fallback_first", c_int32),
                ("compile_in", c_char_p), ("compile_worker", c_char_p), ("compile_time_limit_ms", c_int32),
                ("compiles_per_host", c_int32), ("compile_memory_bytes", c_uint64), ("remote", c_char_p),
                ("remote_keys", POINTER(c_char_p)), ("num_remote_keys", c_size_t), ("remote_signing_key", c_char_p),
                ("remote_allow_unsigned", c_int32), ("remote_ca", c_char_p), ("remote_certificate", c_char_p),
                ("remote_certificate_key", c_char_p)]


class Counters(Struct):
    _fields_ = [("struct_size", c_size_t), ("ready", c_uint64), ("pending", c_uint64), ("failed", c_uint64),
                ("loads", c_uint64), ("loaded_bytes", c_uint64), ("fallback_launches", c_uint64), ("sealed_misses", c_uint64),
                ("capture_misses", c_uint64), ("promotions", c_uint64), ("compiles", c_uint64), ("memory_hits", c_uint64),
                ("disk_hits", c_uint64), ("cache_misses", c_uint64), ("quarantined", c_uint64), ("layer_hits", c_uint64),
                ("compile_failures", c_uint64), ("writes", c_uint64), ("write_failures", c_uint64), ("evicted", c_uint64)]


LATENCY_PREPARE = 0
LATENCY_COMPILE = 1
LATENCY_LOAD = 2
LATENCY_LAUNCH = 3

LATENCY_BOUNDS = 22


class Latency(Struct):
    _fields_ = [("struct_size", c_size_t), ("count", c_uint64), ("sum_seconds", c_double),
                ("bounds_seconds", c_double * LATENCY_BOUNDS), ("buckets", c_uint64 * (LATENCY_BOUNDS + 1))]


TextCallback = CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)


class Hazard(Struct):
    _fields_ = [("struct_size", c_size_t), ("kind", c_char_p), ("kernel", c_char_p), ("what", c_char_p), ("where", c_char_p),
                ("text", c_char_p), ("count", c_uint64), ("rule", c_char_p), ("grade", c_char_p), ("section", c_char_p),
                ("mend", c_char_p)]


HazardCallback = CFUNCTYPE(None, POINTER(Hazard), c_void_p)


class PrepareOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("device", c_int32), ("on_miss", c_int32), ("background", c_int32),
                ("allow_when_sealed", c_int32)]


class AttentionProblem(Struct):
    _fields_ = [("struct_size", c_size_t), ("q_dtype", c_char_p), ("kv_dtype", c_char_p), ("out_dtype", c_char_p),
                ("head_dim_qk", c_int32), ("head_dim_v", c_int32), ("q_heads", c_int32), ("kv_heads", c_int32),
                ("q_layout", c_char_p), ("kv_layout", c_char_p), ("page_size", c_int32), ("mask", c_char_p),
                ("window_left", c_int32), ("window_right", c_int32), ("score_mod", c_char_p), ("softcap", c_double),
                ("sinks", c_int32), ("lse", c_int32), ("scales", c_char_p), ("max_q_len", c_int32), ("kv_offsets", c_int32),
                ("deterministic", c_int32), ("batch_invariant", c_int32), ("mask_chunk", c_int32), ("kv_starts", c_int32)]


PENDING = 0
READY = 1
FAILED = 2


class KernelInfo(Struct):
    _fields_ = [("struct_size", c_size_t), ("state", c_int32), ("serves_fallback", c_int32), ("device", c_int32),
                ("registers", c_int32), ("spill_bytes", c_int32), ("static_shared_bytes", c_int32), ("cubin_bytes", c_uint64),
                ("key", c_char_p)]


class KernelRow(Struct):
    _fields_ = [("struct_size", c_size_t), ("prepared", c_uint64), ("kind", c_char_p), ("kernel", c_char_p),
                ("family", c_char_p), ("key", c_char_p), ("error", c_char_p), ("state", c_int32), ("device", c_int32),
                ("fallback", c_int32), ("serving", c_int32), ("source", c_char_p), ("entry", c_char_p), ("registers", c_int32),
                ("spill_bytes", c_int32), ("static_shared_bytes", c_int32), ("cubin_bytes", c_uint64), ("compile_ms", c_double)]


KernelRowCallback = CFUNCTYPE(None, POINTER(KernelRow), c_void_p)


class Strides(Checked):
    _fields_ = [("batch", c_int64), ("token", c_int64), ("head", c_int64)]


SET_SCALE = 1
SET_SOFTCAP = 2
SET_WINDOW = 4


class AttentionTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("q", c_uint64), ("k", c_uint64), ("v", c_uint64), ("o", c_uint64),
                ("lse", c_uint64), ("q_offsets", c_uint64), ("kv_offsets", c_uint64), ("kv_lengths", c_uint64),
                ("page_table", c_uint64), ("sinks", c_uint64), ("k_scale", c_uint64), ("v_scale", c_uint64),
                ("workspace", c_uint64), ("workspace_bytes", c_uint64), ("batch", c_int32), ("q_len", c_int32),
                ("kv_len", c_int32), ("page_table_stride", c_int32), ("q_tokens", c_int64), ("q_strides", Strides),
                ("k_strides", Strides), ("v_strides", Strides), ("o_strides", Strides), ("overrides", c_uint32),
                ("scale", c_float), ("softcap", c_float), ("window_left", c_int32), ("window_right", c_int32),
                ("kv_tokens", c_int64), ("sm_budget", c_int32), ("alibi_slopes", c_uint64), ("pdl", c_int32),
                ("q_rope", c_uint64), ("k_rope", c_uint64), ("q_rope_strides", Strides), ("k_rope_strides", Strides),
                ("q_scale", c_uint64), ("num_pages", c_int32), ("zero_padding", c_int32), ("mask", c_uint64),
                ("mask_strides", Strides), ("bias", c_uint64), ("bias_strides", Strides), ("kv_starts", c_uint64),
                ("k_scale_strides", Strides), ("v_scale_strides", Strides)]


SET_EPS = 1


class KvWriteTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("q", c_uint64), ("k", c_uint64), ("v", c_uint64), ("q_out", c_uint64),
                ("k_cache", c_uint64), ("v_cache", c_uint64), ("q_weight", c_uint64), ("k_weight", c_uint64),
                ("cos_sin", c_uint64), ("positions", c_uint64), ("slot_mapping", c_uint64), ("batch_indices", c_uint64),
                ("page_table", c_uint64), ("q_scale", c_uint64), ("k_scale", c_uint64), ("v_scale", c_uint64),
                ("tokens", c_int64), ("num_pages", c_int32), ("batch", c_int32), ("kv_len", c_int32),
                ("page_table_stride", c_int32), ("kv_tokens", c_int64), ("cos_sin_rows", c_int32), ("position_bytes", c_int32),
                ("q_strides", Strides), ("k_strides", Strides), ("v_strides", Strides), ("q_out_strides", Strides),
                ("k_cache_strides", Strides), ("v_cache_strides", Strides), ("pdl", c_int32), ("overrides", c_uint32),
                ("eps", c_float), ("k_scale_strides", Strides), ("v_scale_strides", Strides)]


SET_ALPHA = 1
SET_BETA = 2
SET_RMS_EPS = 4


class GemmTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("a", c_uint64), ("b", c_uint64), ("d", c_uint64), ("c", c_uint64),
                ("bias", c_uint64), ("scale_a", c_uint64), ("scale_b", c_uint64), ("a_stride", c_int64), ("b_stride", c_int64),
                ("c_stride", c_int64), ("d_stride", c_int64), ("scale_a_stride", c_int64), ("scale_b_stride", c_int64),
                ("m", c_int32), ("sm_budget", c_int32), ("pdl", c_int32), ("overrides", c_uint32), ("alpha", c_float),
                ("beta", c_float), ("constant_b", c_int32), ("workspace", c_uint64), ("workspace_bytes", c_uint64),
                ("bounds", c_uint64), ("status", c_uint64), ("gather", c_uint64), ("expected_m", c_int32),
                ("source_rows", c_int32), ("scale_d", c_uint64), ("scale_d_stride", c_int64), ("a_batch_stride", c_int64),
                ("b_batch_stride", c_int64), ("c_batch_stride", c_int64), ("d_batch_stride", c_int64), ("scatter", c_uint64),
                ("result_rows", c_int32), ("tensor_scale", c_float), ("rms_eps", c_float), ("amax", c_uint64),
                ("squares", c_uint64), ("squares_a", c_uint64), ("squares_stride", c_int64), ("squares_a_stride", c_int64),
                ("kv_write", POINTER(KvWriteTensors))]


class QuantizeTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("x", c_uint64), ("elements", c_uint64), ("scales", c_uint64), ("x_stride", c_int64),
                ("elements_stride", c_int64), ("rows", c_int32), ("k", c_int32), ("pdl", c_int32), ("tensor_scale", c_float)]


SET_GATE_ALPHA = 2
SET_GATE_LIMIT = 4


class RowOpTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("x", c_uint64), ("residual", c_uint64), ("residual_out", c_uint64),
                ("weight", c_uint64), ("out", c_uint64), ("scale", c_uint64), ("rows", c_int64), ("x_stride", c_int64),
                ("residual_stride", c_int64), ("residual_out_stride", c_int64), ("out_stride", c_int64),
                ("scale_stride", c_int64), ("pdl", c_int32), ("overrides", c_uint32), ("eps", c_float), ("gate_alpha", c_float),
                ("gate_limit", c_float), ("tensor_scale", c_float), ("constant_weight", c_int32), ("lse", c_uint64),
                ("residual_lse", c_uint64), ("lse_out", c_uint64), ("lse_stride", c_int64), ("lse_head_stride", c_int64)]


SET_FACTOR = 1


class RouteTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("logits", c_uint64), ("bias", c_uint64), ("local_ids", c_uint64), ("ids", c_uint64),
                ("weights", c_uint64), ("starts", c_uint64), ("source_rows", c_uint64), ("positions", c_uint64),
                ("sorted_weights", c_uint64), ("workspace", c_uint64), ("workspace_bytes", c_uint64), ("tokens", c_int64),
                ("logits_stride", c_int64), ("pdl", c_int32), ("overrides", c_uint32), ("factor", c_float)]


class MoeCombineTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("rows", c_uint64), ("positions", c_uint64), ("weights", c_uint64),
                ("residual", c_uint64), ("out", c_uint64), ("num_rows", c_int64), ("tokens", c_int64), ("rows_stride", c_int64),
                ("residual_stride", c_int64), ("out_stride", c_int64), ("pdl", c_int32)]


class MoeTensors(Struct):
    _fields_ = [("struct_size", c_size_t), ("x", c_uint64), ("logits", c_uint64), ("bias", c_uint64), ("local_ids", c_uint64),
                ("ids", c_uint64), ("weights", c_uint64), ("gate_up", c_uint64), ("gate_up_scale", c_uint64),
                ("gate_up_bias", c_uint64), ("down", c_uint64), ("down_scale", c_uint64), ("down_bias", c_uint64),
                ("residual", c_uint64), ("out", c_uint64), ("workspace", c_uint64), ("workspace_bytes", c_uint64),
                ("tokens", c_int64), ("x_stride", c_int64), ("logits_stride", c_int64), ("residual_stride", c_int64),
                ("out_stride", c_int64), ("pdl", c_int32), ("overrides", c_uint32), ("factor", c_float)]


class Rope(Struct):
    _fields_ = [("struct_size", c_size_t), ("scaling", c_char_p), ("width", c_int32), ("no_truncate", c_int32),
                ("theta", c_double), ("factor", c_double), ("original_positions", c_double), ("low", c_double),
                ("high", c_double), ("beta_fast", c_double), ("beta_slow", c_double), ("mscale", c_double),
                ("mscale_all", c_double), ("share", c_double), ("attention_factor", c_double), ("factors", POINTER(c_double)),
                ("num_factors", c_uint64)]
