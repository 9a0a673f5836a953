/// Inside of takers.cpp: the configs in which it tries a field. One overload for each kind of config, whose value is
/// not read.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "kernelwright/generator/problem/config.h"

namespace kernelwright::detail {

template <class KindOfConfig>
using Change = std::function<void(KindOfConfig&)>;

/// Configs to start from: one for each kind of problem for which kernels differ.
const std::vector<Change<AttentionConfig>>& starts(const AttentionConfig&);
const std::vector<Change<GemmConfig>>& starts(const GemmConfig&);
const std::vector<Change<KvWriteConfig>>& starts(const KvWriteConfig&);
const std::vector<Change<RowOpConfig>>& starts(const RowOpConfig&);
const std::vector<Change<RouteConfig>>& starts(const RouteConfig&);
const std::vector<Change<MoeCombineConfig>>& starts(const MoeCombineConfig&);

/// Other fields that a value may need. They are tried one after another behind it.
const std::vector<Change<AttentionConfig>>& completions(const AttentionConfig&);
const std::vector<Change<GemmConfig>>& completions(const GemmConfig&);
const std::vector<Change<KvWriteConfig>>& completions(const KvWriteConfig&);
const std::vector<Change<RowOpConfig>>& completions(const RowOpConfig&);
const std::vector<Change<RouteConfig>>& completions(const RouteConfig&);
const std::vector<Change<MoeCombineConfig>>& completions(const MoeCombineConfig&);

/// A config in which the field matters. Otherwise every dtype of an absent operand would be accepted.
AttentionConfig plain(const AttentionConfig&, std::string_view path);
GemmConfig plain(const GemmConfig&, std::string_view path);
KvWriteConfig plain(const KvWriteConfig&, std::string_view path);
RowOpConfig plain(const RowOpConfig&, std::string_view path);
RouteConfig plain(const RouteConfig&, std::string_view path);
MoeCombineConfig plain(const MoeCombineConfig&, std::string_view path);

}  // namespace kernelwright::detail
