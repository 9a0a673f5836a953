/// A caller's text in messages: quoted, escaped and cut to a length that fits. Also JSON pointers, which name places.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright {

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// As json_quoted, cut to a length that fits a message.
std::string quoted_for_message(std::string_view text);

/// `pointer` with one more step: "/" + key. ~ and / are escaped; long or unprintable keys are made fit for a message.
std::string pointer_to(std::string_view pointer, std::string_view key);
std::string pointer_to(std::string_view pointer, std::size_t index);

/// The length of the UTF-8 sequence that `text` starts with, 0 if it is not valid.
std::size_t utf8_length(std::string_view text);

/// "a, b, c"
std::string join(const std::vector<std::string_view>& words);

}  // namespace kernelwright
