/// What is said of numbers in device memory that contradict a launch: EngineOptions::check_data.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace kernelwright::detail {

/// A sentence for each bad number, of which the last says how many there are beyond kMost.
class BadData {
 public:
  static constexpr std::size_t kMost = 16;

  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    if (list_.size() < kMost) list_.push_back(fmt::format(text, std::forward<Args>(args)...));
    ++count_;
  }
  std::vector<std::string> take() {
    if (count_ > kMost) list_.back() = fmt::format("and {} more", count_ - kMost + 1);
    return std::move(list_);
  }

 private:
  std::vector<std::string> list_;
  std::size_t count_ = 0;
};

}  // namespace kernelwright::detail
