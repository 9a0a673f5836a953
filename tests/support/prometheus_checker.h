/// A strict reader of the Prometheus text format 0.0.4. It reports what is wrong with a text, line by line. It demands
/// more than scrapers do: each family has HELP, then TYPE, then all of its samples; a counter ends in _total; nothing
/// is blank.
#pragma once

#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace kernelwright::test {

struct PrometheusSample {
  std::string name;
  std::map<std::string, std::string> labels;  // unescaped
  double value = 0;
};

class PrometheusChecker {
 public:
  /// What is wrong; empty for a correct text.
  std::vector<std::string> faults;
  std::vector<PrometheusSample> samples;

  explicit PrometheusChecker(const std::string& text) {
    if (text.empty() || text.back() != '\n') faults.push_back("the last line does not end");
    std::istringstream lines(text);
    for (line_ = 1; std::getline(lines, text_); ++line_) read_line();
    end_family();
  }

  /// The value of the one sample with this name and these labels; NaN if there is none.
  double value(const std::string& name, const std::map<std::string, std::string>& labels = {}) const {
    for (const PrometheusSample& sample : samples)
      if (sample.name == name && sample.labels == labels) return sample.value;
    return std::nan("");
  }

 private:
  void fault(const std::string& what) {
    faults.push_back("line " + std::to_string(line_) + ": " + what + ": " + text_);
  }

  void read_line() {
    static const std::regex help(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ((?:[^\\]|\\\\|\\n)+))");
    static const std::regex type(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram))");
    static const std::regex sample(R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? ([^ ]+))");
    std::smatch part;
    if (std::regex_match(text_, part, help)) {
      end_family();
      family_ = part[1];
      if (!families_.insert(family_).second) fault("a family comes twice");
    } else if (std::regex_match(text_, part, type)) {
      if (part[1] != family_ || !type_.empty()) fault("TYPE stands not behind its HELP");
      type_ = part[2];
      if ((type_ == "counter") != family_.ends_with("_total")) fault("_total is the ending of counters");
    } else if (std::regex_match(text_, part, sample)) {
      read_sample(part[1], part[2].matched, part[3], part[4]);
    } else {
      fault("neither HELP, TYPE nor sample");
    }
  }

  void read_sample(const std::string& name, bool braces, const std::string& labels, const std::string& value) {
    PrometheusSample sample{name, {}, 0};
    if (type_.empty()) fault("a sample without a TYPE");
    const bool bucket = type_ == "histogram" && name == family_ + "_bucket";
    if (!(type_ == "histogram" ? bucket || name == family_ + "_sum" || name == family_ + "_count" : name == family_))
      fault("a sample of another family");
    if (braces) read_labels(labels, sample);
    char* end = nullptr;
    const std::string number = value == "+Inf" ? "inf" : value == "-Inf" ? "-inf" : value;
    sample.value = std::strtod(number.c_str(), &end);
    if (end == number.c_str() || *end) fault("no number");
    if (type_ != "gauge" && !(sample.value >= 0)) fault("a count below zero");
    if (!series_.insert({name, sample.labels}).second) fault("a series comes twice");
    if (bucket) {
      const auto le = sample.labels.find("le");
      if (le == sample.labels.end() || sample.labels.size() != 1) return fault("a bucket has one label, le");
      const double bound = le->second == "+Inf" ? INFINITY : std::strtod(le->second.c_str(), nullptr);
      if (!buckets_.empty() && !(bound > buckets_.back().first && sample.value >= buckets_.back().second))
        fault("buckets do not ascend");
      buckets_.push_back({bound, sample.value});
    } else if (type_ == "histogram") {
      (name.ends_with("_sum") ? sum_ : count_) = sample.value;
    }
    samples.push_back(std::move(sample));
    ++of_family_;
  }

  void read_labels(const std::string& text, PrometheusSample& sample) {
    static const std::regex label(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^\\"]|\\\\|\\"|\\n)*)"(,|$))re");
    auto at = text.cbegin();
    std::smatch part;
    do {
      if (!std::regex_search(at, text.cend(), part, label, std::regex_constants::match_continuous))
        return fault("labels");
      std::string value;
      const std::string raw = part[2];
      for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i] != '\\')
          value += raw[i];
        else
          value += raw[++i] == 'n' ? '\n' : raw[i];
      }
      if (!sample.labels.emplace(part[1], value).second) fault("a label comes twice");
      at = part[0].second;
    } while (at != text.cend());
    if (part[3] == ",") fault("a comma at the end");
  }

  void end_family() {
    if (!family_.empty() && of_family_ == 0) faults.push_back(family_ + " has no sample");
    if (type_ == "histogram") {
      if (buckets_.empty() || !std::isinf(buckets_.back().first)) faults.push_back(family_ + " does not end with +Inf");
      if (!buckets_.empty() && buckets_.back().second != count_) faults.push_back(family_ + "_count is not +Inf's");
      if (std::isnan(sum_)) faults.push_back(family_ + " has no sum");
    }
    family_.clear();
    type_.clear();
    buckets_.clear();
    of_family_ = 0;
    sum_ = count_ = std::nan("");
  }

  int line_ = 0, of_family_ = 0;
  std::string text_, family_, type_;
  std::set<std::string> families_;
  std::set<std::pair<std::string, std::map<std::string, std::string>>> series_;
  std::vector<std::pair<double, double>> buckets_;
  double sum_ = std::nan(""), count_ = std::nan("");
};

}  // namespace kernelwright::test
