// Compares predicted with measured times. Reads the table of bench/timeline_table.py from standard input.
//
//   kernelwright_timeline_bench            a table of predictions, as Markdown
//   kernelwright_timeline_bench --fit 14   first this many rounds of coordinate descent over the fitted constants, on
//                                          the rows to fit only; prints the constants
//   kernelwright_timeline_bench --spell    the same lines, each schedule with the planner's resolved fields of today
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/attention/predicted.h"
#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/json/config_json.h"

namespace kernelwright {
namespace {

struct Row {
  std::string set, file, name, arm;
  double ms, mhz;
  AttentionConfig config;
  AttentionPlan plan;
  bool fits() const { return set == "fit"; }
};

std::vector<Row> read_rows(std::istream& in) {
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    std::stringstream fields(line);
    Row row;
    std::string ms, mhz, config;
    for (std::string* field : {&row.set, &row.file, &row.name, &row.arm, &ms, &mhz, &config})
      std::getline(fields, *field, '\t');
    row.ms = std::atof(ms.c_str()), row.mhz = std::atof(mhz.c_str());
    row.config = std::get<AttentionConfig>(read_config(config));
    row.plan = plan_attention(row.config.problem, row.config.schedule, Arch::kSm90a);
    rows.push_back(std::move(row));
  }
  return rows;
}

Predicted predict(const Row& row, const MachineRates& machine) {
  return predict(row.plan, row.config.problem, row.config.shapes[0], machine).value();
}

/// The constants that follow neither from a data sheet nor from a direct measurement.
constexpr std::pair<const char*, double MachineRates::*> kFitted[] = {
    {"mma_share", &MachineRates::mma_share},
    {"issue_clocks", &MachineRates::issue_clocks},
    {"neighbour_clocks", &MachineRates::neighbour_clocks},
    {"mma_latency", &MachineRates::mma_latency},
    {"barrier", &MachineRates::barrier},
    {"l2_latency", &MachineRates::l2_latency},
    {"memory_latency", &MachineRates::memory_latency},
    {"tile_clocks", &MachineRates::tile_clocks},
    {"item_clocks", &MachineRates::item_clocks},
    {"burst_clocks", &MachineRates::burst_clocks},
    {"merge_us", &MachineRates::merge_us},
    {"cool_share", &MachineRates::cool_share}};

/// The mean, over shapes, of the squared error of the logarithms, however many arms a shape has. Errors above 12 %
/// weigh more. Half of the clock's error is added: a launch must not be right because of a wrong clock.
double loss(const std::vector<Row>& rows, const MachineRates& machine) {
  constexpr double kFar = 0.12, kWeight = 4;
  std::map<std::string, std::pair<double, int>> shapes;
  double clocks = 0;
  for (const Row& row : rows) {
    if (!row.fits()) continue;
    const Predicted timeline = predict(row, machine);
    const double error = std::log(timeline.microseconds / 1e3 / row.ms), far = std::max(0.0, std::abs(error) - kFar);
    shapes[row.name].first += error * error + kWeight * far * far;
    ++shapes[row.name].second;
    const double clock = std::log(timeline.clock_ghz * 1e3 / row.mhz);
    if (row.arm == "auto") clocks += clock * clock / 2;
  }
  double sum = machine.mma_share > 1 ? 1 : clocks;
  for (const auto& [name, shape] : shapes) sum += shape.first / shape.second;
  return sum / static_cast<double>(shapes.size());
}

MachineRates fitted(const std::vector<Row>& rows, MachineRates machine, int rounds) {
  double least = loss(rows, machine), step = 0.15;
  for (int round = 0; round < rounds; ++round, step *= 0.75)
    for (const auto& [name, field] : kFitted)
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        MachineRates other = machine;
        other.*field *= factor;
        const double now = loss(rows, other);
        if (now >= least) continue;
        least = now, machine = other;
        break;
      }
  for (const auto& [name, field] : kFitted) fmt::print("{} {:.4g}\n", name, machine.*field);
  fmt::print("loss {:.5f}\n\n", least);
  return machine;
}

void print_table(const std::vector<Row>& rows, const MachineRates& machine) {
  fmt::print("| shape | arm | set | measured ms | predicted ms | error | bound by |\n|---|---|---|---|---|---|---|\n");
  std::map<std::string, std::vector<double>> errors;
  for (const Row& row : rows) {
    const Predicted timeline = predict(row, machine);
    const double error = timeline.microseconds / 1e3 / row.ms - 1;
    errors[row.set].push_back(error);
    fmt::print("| {} | {} | {} | {:.4f} | {:.4f} | {:+.1f} %{} | {} |\n", row.name, row.arm, row.set, row.ms,
               timeline.microseconds / 1e3, error * 100, std::abs(error) > 0.15 ? " (missed)" : "", timeline.bound);
  }
  for (const auto& [set, all] : errors) {
    double squares = 0, worst = 0;
    for (const double error : all) squares += error * error, worst = std::max(worst, std::abs(error));
    fmt::print("\n{}: {} rows, rms {:.1f} %, worst {:.1f} %\n", set, all.size(),
               std::sqrt(squares / static_cast<double>(all.size())) * 100, worst * 100);
  }
}

void spell(const std::vector<Row>& rows) {
  std::vector<std::string> fields;
  AttentionSchedule any_schedule;
  visit_fields(any_schedule, [&](const char* name, auto&, const auto&, const char*) { fields.push_back(name); });
  for (const Row& row : rows) {
    AttentionConfig config = row.config;
    config.schedule = with_values_of(row.plan, config.schedule, fields);
    std::string json = write_config(Config(config));
    json.erase(std::remove(json.begin(), json.end(), '\n'), json.end());
    fmt::print("{}\t{}\t{}\t{}\t{:.4f}\t{}\t{}\n", row.set, row.file, row.name, row.arm, row.ms, row.mhz, json);
  }
}

int run(int argc, char** argv) {
  const std::vector<Row> rows = read_rows(std::cin);
  MachineRates machine = *machine_rates(Arch::kSm90a);
  if (argc > 1 && std::string_view(argv[1]) == "--spell") return spell(rows), 0;
  if (argc > 2 && std::string_view(argv[1]) == "--fit") machine = fitted(rows, machine, std::atoi(argv[2]));
  print_table(rows, machine);
  return 0;
}

}  // namespace
}  // namespace kernelwright

int main(int argc, char** argv) try { return kernelwright::run(argc, argv); } catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
