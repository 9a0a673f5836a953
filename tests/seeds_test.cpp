// Compares docs/seeds.md with the repository. The page has a row for each part of five systems that this project
// re-creates. The checker reads its tables and reports rows that are missing, that lack a reason, or that name a
// symbol, a file or a test that does not exist. The checker is first tried on a made-up page, to show that it finds
// faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"

namespace kernelwright::seeds_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

const std::string kNothing = "–";  // a cell that names no symbol, or no test

/// The repository with which a page is compared.
struct Repository {
  std::set<std::string> files;  // paths from the root
  std::set<std::string> words;  // of the sources, outside of comments
  // Suites of each file. INSTANTIATE_TEST_SUITE_P counts as a suite's test "".
  std::map<std::string, std::set<std::pair<std::string, std::string>>> tests;
};

/// The names that the descriptions of the five systems give to parameters, fields, aliases, methods and structs, by the
/// heading of docs/seeds.md that has them.
using Names = std::map<std::string, std::string>;
const Names& names_of_the_originals() {
  static const Names names = {
      {"The KV buffer",
       "KVBufferImpl KVBuffer config tensor_core_mma swizzle BN WN BK depth num_threads num_stages token_gen out_type "
       "in_type shape group_size transpose_b mut dtype layout address_space alignment origin masked layout_int_type "
       "linear_idx_type load_tile mma_tile smem_iter bounds load_tile_id global_iterator base_layout GlobalTensorType "
       "GlobalTiledIteratorType LoadTileType MMA_K MMA_N mma_tile_layout MMATileType num_k_tiles num_mmas num_repeats "
       "num_warps_n SharedIterType SharedTileType SharedWarpTileType simd_width smem_layout thread_layout tiler_layout "
       "btile_dim0 btile_dim1 wtile_dim0 wtile_dim1 wsize iterator_axis __init__ get_dtype load_from_dram get_mma_tile "
       "copy_to_shared load_from_shared AnyType UnknownDestructibility __del__is_trivial"},
      {"The two K/V pipelines",
       "TMAProducerPipeline dtype config is_k pipeline smem bytes elements elements_full KPairType PairType SMemType "
       "num_qk_stages_effective tile_bytes tile_layout swizzle_mode k_rows_per_cta v_cols_per_cta BK0 BK1 __init__ "
       "get_smem get_tile acquire commit_step get_k_smem get_k acquire_k get_v_smem get_v acquire_v StagedPipeline "
       "ImplicitlyDestructible RegisterPassable TrivialRegisterPassable KVConsumerPipeline KVPipeline num_kv_stages "
       "num_mma_stages kv_pipeline k_smem_descriptor v_smem_descriptor v_pipeline_release_index full_kv_bytes "
       "mma_kv_bytes init wait wait_k wait_v pre_increment release_k release_v AnyType Copyable ImplicitlyCopyable "
       "Movable UnknownDestructibility __copyinit__is_trivial __del__is_trivial __moveinit__is_trivial"},
      {"2Q multi-head attention",
       "SM100MHA2Q KVLUTType output_type MaskType ScoreModType SchedulerType config FA4Config use_score_mod "
       "ValidLengthType SinkType KVRowOffsetsType _is_cache_length_accurate MaxSeqLenType PartitionType accum_type BM "
       "BN cta_group depth group k_bytes k_elements KVPipelineType MMA_K MMA_M num_m_mmas num_mma_stages num_q_heads "
       "OPipelineType padded_depth PositionType qkv_dt_size qkv_type qo_bytes qo_elements ragged simd_size "
       "swizzle_granularity UMMA0Type UMMA1Type v_bytes_per_mma num_stages kernel softmax correction load descriptor_q "
       "mma q_tma_op k_tma_op v_tma_op o_ptr_arg kv_lut scale batch_size num_keys_arg pack Pack tmem_addr "
       "warp_group_idx mbars o_mbar position tid mask kv_tile_start_row end score_mod max_seq_len o_smem sink_weights "
       "kv_pipeline_arg q_smem num_q BK0 BK1 num_kv_stages num_qk_stages swizzle_mode fuse_gqa rope_depth rope_dtype "
       "scale_dtype k_rows_per_cta v_cols_per_cta tmem_used smem_used supported split_m AnyType Copyable "
       "ImplicitlyCopyable Movable UnknownDestructibility __copyinit__is_trivial __del__is_trivial "
       "__moveinit__is_trivial"},
      {"The tile pipeline",
       "MbarPtr BlockScaledTilePayload ConsumerStage InputConsumer InputConsumerStage InputProducer InputProducerStage "
       "InputTilePipeline OutputConsumer OutputProducer OutputStage OutputTilePipeline ProducerStage "
       "StandardTilePayload TileConsumer TilePipeline TileProducer TilePayload get_tile expect_bytes k_group_size "
       "num_stages stage_stride_cols cta_group"},
  };
  return names;
}

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Runs of letters, digits and "_" that are no numbers.
Strings words_of(const std::string& text) {
  Strings words;
  for (size_t at = 0; at < text.size();) {
    if (!in_word(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    std::string word = text.substr(at, end - at);
    if (!std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); }))
      words.push_back(std::move(word));
    at = end;
  }
  return words;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// The texts between backticks.
Strings quoted_in(const std::string& text) {
  Strings found;
  for (size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at)) {
    const size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    found.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return found;
}

/// Whether a quoted text names a file.
bool is_path(const std::string& text) {
  for (const std::string ending : {".cuh", ".cu", ".h", ".cpp", ".md", ".txt", ".csv", ".json"})
    if (text.size() > ending.size() && text.ends_with(ending) && text.find_first_of(" ()<>{},") == std::string::npos)
      return true;
  return false;
}

/// Cells of a table's row.
Strings cells_of(const std::string& line) {
  Strings cells;
  std::istringstream parts(line.substr(1));
  for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

/// A table's columns. Those between `ours` and `tests` say what is the same, and why the rest differs.
struct Columns {
  Strings names;
  size_t ours = 0, tests = 0;
  explicit Columns(Strings header) : names(std::move(header)) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].starts_with("ours")) ours = i;
      if (names[i] == "tests") tests = i;
    }
  }
  bool maps() const { return ours > 0; }
};

class Checker {
 public:
  Checker(const Repository& repository, const Names& names) : repository_(repository) {
    for (const auto& [heading, list] : names)
      for (std::string& name : words_of(list)) missing_[heading].insert(std::move(name));
  }

  Strings check(const std::string& page) {
    std::istringstream lines(page);
    Strings header;
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      std::string lower = line;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
      if (lower.find("not built") != std::string::npos) say("says \"not built\"");
      for (const std::string& quoted : quoted_in(line))
        if (is_path(quoted) && !repository_.files.contains(quoted)) say("no file " + quoted);
      if (line.starts_with("## ")) heading_ = line.substr(3);
      if (!line.starts_with("|")) {
        header.clear();
      } else if (header.empty()) {
        header = cells_of(line);
        if (const Columns columns(header); columns.maps() && columns.tests <= columns.ours + 1)
          say("a table without a column for reasons, or for tests");
      } else if (!line.starts_with("|-")) {
        check_row(Columns(header), cells_of(line));
      }
    }
    ++line_;
    for (const auto& [heading, names] : missing_)
      for (const std::string& name : names) say("no row for " + name + " under \"" + heading + "\"");
    for (const auto& [suite, place] : used_) {
      line_ = place;
      if (!homes_.contains(suite)) say("no row says which file has the suite " + suite);
    }
    return found_;
  }

 private:
  void say(const std::string& what) { found_.push_back("docs/seeds.md:" + std::to_string(line_) + ": " + what); }

  void check_row(const Columns& columns, const Strings& cells) {
    if (cells.size() != columns.names.size())
      return say("a row of " + std::to_string(cells.size()) + " cells, not " + std::to_string(columns.names.size()));
    if (columns.names == Strings{"suite", "file"}) return check_home(cells[0], cells[1]);
    if (!columns.maps()) return;
    if (columns.names[0] == "theirs")
      for (const std::string& quoted : quoted_in(cells[0]))
        for (const std::string& word : words_of(quoted)) missing_[heading_].erase(word);
    const std::string& ours = cells[columns.ours];
    bool reason = false;
    for (size_t i = columns.ours + 1; i < columns.tests; ++i) reason = reason || !cells[i].empty();
    if (!reason) say("neither says what is the same nor what is different");
    if (ours == kNothing) {
      if (cells[columns.tests - 1].empty()) say("has nothing of ours, and no reason");
    } else {
      check_symbols(ours);
      if (cells[columns.tests] == kNothing) say("names no test");
    }
    check_tests(cells[columns.tests]);
  }

  void check_symbols(const std::string& ours) {
    const Strings quoted = quoted_in(ours);
    if (quoted.empty()) say("names no symbol of ours");
    for (const std::string& text : quoted) {
      if (is_path(text)) continue;
      for (const std::string& word : words_of(text))
        if (!repository_.words.contains(word)) say("no symbol " + word + " in the sources");
    }
  }

  void check_tests(const std::string& cell) {
    const Strings quoted = quoted_in(cell);
    if (quoted.empty() && cell != kNothing) say("names no test");
    for (const std::string& text : quoted) {
      const size_t dot = text.find('.');
      const std::string suite = text.substr(0, dot), name = dot == std::string::npos ? "" : text.substr(dot + 1);
      used_.emplace(suite, line_);
      bool exists = false;
      for (const auto& [file, tests] : repository_.tests)
        for (const auto& test : tests)
          exists = exists || (test.first == suite && (name.empty() || test.second == name));
      if (!exists) say("no test " + text);
    }
  }

  /// A row of the table that says where suites are.
  void check_home(const std::string& suite_cell, const std::string& files) {
    for (const std::string& suite : quoted_in(suite_cell)) {
      homes_.insert(suite);
      if (!used_.contains(suite)) say("no row names the suite " + suite);
      for (const std::string& file : quoted_in(files)) {
        const auto tests = repository_.tests.find(file);
        bool exists = false;
        if (tests != repository_.tests.end())
          for (const auto& test : tests->second) exists = exists || test.first == suite;
        if (!exists) say("no suite " + suite + " in " + file);
      }
    }
  }

  const Repository& repository_;
  std::map<std::string, std::set<std::string>> missing_;  // by heading: names that no row has had so far
  std::map<std::string, int> used_;                       // suites that rows name, with the first line that does
  std::set<std::string> homes_;                           // suites whose file is named
  std::string heading_;
  int line_ = 0;
  Strings found_;
};

// ---- this repository ----

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void add_words(const std::string& text, std::set<std::string>& words) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (std::string& word : words_of(line.substr(0, line.find("//")))) words.insert(std::move(word));
}

void add_tests(const std::string& text, std::set<std::pair<std::string, std::string>>& tests) {
  for (const std::string macro : {"TEST(", "TEST_F(", "TEST_P(", "INSTANTIATE_TEST_SUITE_P("})
    for (size_t at = text.find(macro); at != std::string::npos; at = text.find(macro, at)) {
      const bool whole = at == 0 || !in_word(text[at - 1]);
      at += macro.size();
      const size_t comma = text.find(',', at), end = text.find_first_of(",)", comma + 1);
      if (!whole || end == std::string::npos) continue;
      const std::string first = trimmed(text.substr(at, comma - at)),
                        second = trimmed(text.substr(comma + 1, end - comma - 1));
      if (macro[0] == 'I')
        tests.emplace(second, "");
      else
        tests.emplace(first, second);
    }
}

Repository this_repository() {
  const fs::path root = test::source_dir();
  Repository repository;
  for (const std::string folder : {"templates", "generator", "runtime", "tests", "docs", "configs", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string path = fs::relative(entry.path(), root).generic_string();
      const std::string ending = entry.path().extension().string();
      repository.files.insert(path);
      if (path == "tests/seeds_test.cpp") continue;  // its made-up tests are none
      if (folder == "tests" && ending == ".cpp")
        add_tests(text_of(entry.path()), repository.tests[path]);
      else if ((folder == "templates" || folder == "generator" || folder == "runtime") &&
               (ending == ".h" || ending == ".cpp" || ending == ".cuh" || ending == ".cu"))
        add_words(text_of(entry.path()), repository.words);
    }
  return repository;
}

TEST(Seeds, AreMappedToWhatExists) {
  const Repository repository = this_repository();
  EXPECT_GT(repository.words.size(), 1000u);
  EXPECT_GT(repository.tests.size(), 100u);
  const std::string page = text_of(test::source_dir() / "docs/seeds.md");
  EXPECT_THAT(Checker(repository, names_of_the_originals()).check(page), IsEmpty());
}

// ---- a made-up one ----

const Repository& small_repository() {
  static const Repository repository = [] {
    Repository made;
    made.files = {"templates/tile/ring.cuh", "tests/ring_test.cpp"};
    add_words("struct Ring { int num_slots; };  // old_name", made.words);
    add_tests("TEST(Ring, Turns) {}\nINSTANTIATE_TEST_SUITE_P(All, EachRing, Values(1));\n",
              made.tests["tests/ring_test.cpp"]);
    return made;
  }();
  return repository;
}

constexpr const char* kPage = R"(# Seeds
## The ring
| theirs | ours (`templates/tile/ring.cuh`) | the same | different, and why | tests |
|---|---|---|---|---|
| `RingImpl`, `num_stages` = 2 | `Ring`: `num_slots` | slots | | `Ring.Turns`, `EachRing` |
| `origin` | – | | C++ has none | – |
## Where
| suite | file |
|---|---|
| `Ring` | `tests/ring_test.cpp` |
| `EachRing` | `tests/ring_test.cpp` |
)";

Strings wrong_in(const std::string& page) {
  return Checker(small_repository(), {{"The ring", "RingImpl num_stages origin"}}).check(page);
}

TEST(SeedsChecker, FindsNothingInAPageThatIsTrue) { EXPECT_THAT(wrong_in(kPage), IsEmpty()); }

struct Change {
  const char *from, *to;  // of kPage
  const char* found;      // what the checker must report
};
class SeedsCheckerChange : public testing::TestWithParam<Change> {};

TEST_P(SeedsCheckerChange, IsFoundWithItsRow) {
  std::string page = kPage;
  const auto& [from, to, found] = GetParam();
  const size_t at = page.find(from);
  ASSERT_NE(at, std::string::npos);
  page.replace(at, std::string(from).size(), to);
  const Strings wrong = wrong_in(page);
  ASSERT_FALSE(wrong.empty());
  EXPECT_THAT(wrong.front(), HasSubstr(found));
}

INSTANTIATE_TEST_SUITE_P(
    Of, SeedsCheckerChange,
    testing::Values(
        Change{"`num_slots`", "`num_slot`", "seeds.md:5: no symbol num_slot in the sources"},
        Change{"`num_slots`", "`old_name`", "seeds.md:5: no symbol old_name in the sources"},
        Change{"`Ring`: `num_slots`", "the same names", "seeds.md:5: names no symbol of ours"},
        Change{"`templates/tile/ring.cuh`", "`templates/tile/rings.cuh`",
               "seeds.md:3: no file templates/tile/rings.cuh"},
        Change{"slots |", "`tile/ring.cuh` |", "seeds.md:5: no file tile/ring.cuh"},
        Change{"`Ring.Turns`", "`Ring.Turn`", "seeds.md:5: no test Ring.Turn"},
        Change{"`Ring.Turns`, `EachRing`", "`EachRing.Turns`, `Ring`", "seeds.md:5: no test EachRing.Turns"},
        Change{"| slots |", "| |", "seeds.md:5: neither says what is the same nor what is different"},
        Change{"| | C++ has none |", "| C++ has none | |", "seeds.md:6: has nothing of ours, and no reason"},
        Change{"| slots | |", "| slots |", "seeds.md:5: a row of 4 cells, not 5"},
        Change{"slots |", "This is Not Built. |", "seeds.md:5: says \"not built\""},
        Change{"`num_stages` = 2", "two", "no row for num_stages under \"The ring\""},
        Change{"| `EachRing` | `tests/ring_test.cpp` |\n", "",
               "seeds.md:5: no row says which file has the suite EachRing"},
        Change{"different, and why | tests |", "different, and why | files |",
               "seeds.md:3: a table without a column for reasons, or for tests"}));

/// A suite that does not exist is reported for the row that names it, and for the row that says where it is.
TEST(SeedsChecker, FindsSuitesInOtherFiles) {
  std::string page = kPage;
  page.replace(page.find("| `EachRing` |"), std::string("| `EachRing` |").size(), "| `Ring`, `Wheel` |");
  EXPECT_THAT(wrong_in(page), ElementsAre(HasSubstr("seeds.md:11: no row names the suite Wheel"),
                                          HasSubstr("seeds.md:11: no suite Wheel in tests/ring_test.cpp"),
                                          HasSubstr("no row says which file has the suite EachRing")));
}

}  // namespace
}  // namespace kernelwright::seeds_test
