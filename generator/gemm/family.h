/// Inside of the generator: what each GEMM kernel family takes, and how it is planned.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/plan/predicted.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright::detail {

/// A tile, and the row counts of a launch for which the model may choose it.
struct GemmTile {
  GemmSpec spec;
  RowRange rows{1, 1 << 24};
};

/// A change to one field of a tile, for a tuner to try.
using GemmChange = std::function<void(GemmSchedule&)>;

/// One row of the table of families: all that the planner, validation, the tuner, explain, reports and launches need of
/// a family. The family's own file fills it. A new family is such a file and its line in gemm_families().
struct GemmFamily {
  Family family;
  /// Finds what the family lacks for a problem and a schedule, with any tile.
  void (*check)(const GemmProblem&, const GemmSchedule&, std::optional<Arch>, std::vector<Violation>&);
  /// Checks the resolved tile against the machine. A violation names the nearest tile that fits.
  void (*check_tile)(const GemmSpec&, const ArchInfo&, std::vector<Violation>&);
  /// The family's tiles, with the schedule's fields put in; `base` has all other fields. check_tile() judges which
  /// tiles fit.
  std::vector<GemmTile> (*tiles)(const GemmSpec& base, const GemmProblem&, const GemmSchedule&);
  /// What explain says of a tile.
  void (*explain)(const GemmSpec&, const GemmSchedule&, const std::string& why, std::vector<Choice>&);
  /// As gemm_cost_us().
  double (*cost_us)(const GemmSpec&, const GemmExtent&, int num_sms);
  std::uint32_t (*shared_bytes)(const GemmSpec&);
  std::vector<SharedRegion> (*shared_map)(const GemmSpec&);
  std::vector<KernelRole> (*roles)(const GemmSpec&);
  /// The warps or CTAs that work on a tile, for a table of explain: "2 cooperative".
  std::string (*workers)(const GemmSpec&);
  /// Adds the changes that a tuner tries besides the tiles. Null: only the tiles are tried.
  void (*add_changes)(std::vector<GemmChange>&, const GemmProblem&, const GemmSchedule& given) = nullptr;
  /// Null: the kernel takes no tensor memory.
  TensorMemoryMap (*tensor_memory_map)(const GemmSpec&) = nullptr;
  /// Null: no model predicts the kernel.
  std::optional<Predicted> (*predict)(const GemmSpec&, const GemmProblem&, const GemmShape&,
                                      const MachineClass&) = nullptr;
  /// The direction of bands of tiles where the schedule leaves it open. Null: along m.
  Raster (*raster)(const GemmSpec&) = nullptr;
  /// Warps that add up parts of k that take turns. Null: there are no such parts.
  int (*storing_warps)(const GemmSpec&) = nullptr;
  /// Whether a plan tells row counts apart by steps of 32 and 64, since there are tiles for them. Null: it does not.
  bool (*has_steps)(const GemmSpec&) = nullptr;
  bool one_tile_a_cta = false;  // unless a launch has a budget of SMs: an SM holds several CTAs
  bool keeps_f32 = false;       // sums of 8-bit operands stay f32 without promotion
};

/// The rows, in the order in which families are tried for a problem: families of one architecture, then portable.
std::span<const GemmFamily* const> gemm_families() noexcept;
const GemmFamily& gemm_row(Family family) noexcept;
inline const GemmFamily& family_row(const GemmSpec& spec) noexcept { return gemm_row(spec.family); }

const GemmFamily& portable_gemm();
const GemmFamily& hopper_gemm();
const GemmFamily& blackwell_gemm();

/// Adds one row while the object lives, before all others. Create it before other threads plan, and destroy it after.
class AddedGemmFamily {
 public:
  explicit AddedGemmFamily(const GemmFamily& row);
  ~AddedGemmFamily();
  AddedGemmFamily(const AddedGemmFamily&) = delete;
};

/// Tiles and models in files of their own, <family>_choices.cpp.
std::vector<GemmTile> hopper_gemm_tiles(const GemmSpec& base, const GemmProblem& problem, const GemmSchedule& schedule);
void explain_hopper_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                         std::vector<Choice>& choices);
/// Whether all that a launch does is a product: no groups, no scales of blocks, nothing added, nothing quantised, both
/// operands by rows of k. Such products have tiles for any number of rows up to most_rows_of_steps().
bool hopper_gemm_has_steps(const GemmSpec& spec);
/// Launches with more results have many rounds of tiles, and what counts for them is power: tiles of another model are
/// faster. Interleaved on an H200: bench/results/gemm/2026-11-28-h200-steps.md.
constexpr int most_rows_of_steps(int n) {
  constexpr int kMostRows = 4096, kMostResults = 14'000'000;
  return n < kMostResults / kMostRows ? kMostRows : kMostResults / n;
}
double hopper_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);
Raster hopper_raster(const GemmSpec& spec);
std::vector<GemmTile> blackwell_gemm_tiles(const GemmSpec& base, const GemmProblem& problem,
                                           const GemmSchedule& schedule);
void explain_blackwell_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                            std::vector<Choice>& choices);
double blackwell_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);
std::optional<Predicted> predict_blackwell_gemm(const GemmSpec& spec, const GemmProblem& problem,
                                                const GemmShape& shape, const MachineClass& machine);

/// `values` of a field as changes: for a row's add_changes().
template <class T>
void add_values(std::vector<GemmChange>& changes, Auto<T> GemmSchedule::*member, std::initializer_list<T> values) {
  for (const T& value : values)
    changes.push_back([member, value](GemmSchedule& schedule) {
      schedule.*member = value;
      // The planner then takes as many slots as fit.
      if constexpr (!std::is_same_v<T, Raster>) schedule.stages = {};
    });
}

/// The family that serves a config: the schedule's family. Else it is the architecture's own family, if that takes the
/// config, else portable, if that takes it. `lacks` is what check_gemm() says of that family: empty if it takes the
/// config.
struct ServingGemm {
  Family family;
  std::vector<Violation> lacks;
};
ServingGemm serving_gemm(const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch);

/// Finds what `family` lacks for `problem` and `schedule`, with any tile; on `arch`, where one is known. It finds no
/// contradictions: validate() has those.
void check_gemm(Family family, const GemmProblem& problem, const GemmSchedule& schedule, std::optional<Arch> arch,
                std::vector<Violation>& violations);

/// Checks block_k and swizzle: how much of k a slot has, and its layout. The same in all families.
void check_slab(const GemmProblem& problem, const GemmSchedule& schedule, std::vector<Violation>& violations);
/// Fills them from the schedule, else with 128 bytes and the widest swizzle that divides them.
void plan_slab(const GemmProblem& problem, const GemmSchedule& schedule, GemmSpec& spec);
/// Checks that CTAs that load shares of `side` of a slab load whole groups of 8 rows.
void check_shares(const GemmSpec& spec, TileSide side, int sharers, std::vector<Violation>& violations);
/// Checks what the kernels of `family` lack of a cache that the GEMM writes, if it does.
void check_heads(const GemmProblem& problem, Family family, std::vector<Violation>& violations);
/// Hopper: slabs of results of a warp that heads of a tile wait in.
int slabs_of_heads(const GemmSpec& spec);
/// Checks that a tile has whole heads of such a GEMM, and memory for them.
void check_heads_of_tile(const GemmSpec& spec, std::vector<Violation>& violations);
/// What the columns of a row that a tile has whole groups of share, for messages.
const char* what_columns_share(const GemmSpec& spec);
/// Refuses block-scaled results of groups: of families other than blackwell.
void check_blocks_of_groups(Family family, const GemmProblem& problem, std::vector<Violation>& violations);
/// Checks that rows of d begin at 16-byte boundaries, from which TMA stores them.
void check_result_rows(const GemmProblem& problem, std::vector<Violation>& violations);
/// What explain says of block_k and swizzle.
void explain_slab(const GemmSpec& spec, const GemmSchedule& schedule, std::vector<Choice>& choices);

/// The most slots that fit beside the rest, in whole groups; at least two groups.
int most_gemm_stages(GemmSpec spec, int shared_bytes_per_cta);

/// Every tile that fits, of the family that serves the problem, with the schedule's fields put in. The model chooses
/// from these, for each row count from those whose rows contain it. There are no repeats. Throws ConfigError as
/// plan_gemm().
std::vector<GemmTile> gemm_tiles(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch);

/// Scales of one slot in shared memory, bytes.
int gemm_scale_bytes(const GemmSpec& spec);

/// Microseconds that a launch is expected to take on a typical device of the architecture: the busiest SM's tensor
/// cores' time or the memory's time, the longer one. It ranks tiles; it is no promise.
double gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms);
}  // namespace kernelwright::detail
