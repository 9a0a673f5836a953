#include "kernelwright/verify/formats/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kernelwright {
namespace {

using testing::HasSubstr;

class Npy : public testing::Test {
 protected:
  Npy() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-npy-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Npy() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "a.npy") const { return folder_ / name; }
  std::string file(const std::string& text) const {
    std::ofstream(path(), std::ios::binary) << text;
    return path();
  }
  // A file with that dict, and `bytes` of data.
  std::string with_header(const std::string& dict, std::size_t bytes, int version = 1) const {
    std::string text = "\x93NUMPY";
    text += static_cast<char>(version);
    text += '\0';
    const std::size_t length_bytes = version == 1 ? 2 : 4;
    for (std::size_t i = 0; i < length_bytes; ++i) text += static_cast<char>(dict.size() >> (8 * i));
    return file(text + dict + std::string(bytes, '\0'));
  }
  std::string refusal(const std::string& path) const {
    try {
      read_npy<float>(path);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));  // names the file
      return error.what();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(Npy, ComesBackAsItWasWritten) {
  const std::vector<float> values{1, -2, 0.5, 3e38f, 0, 7};
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{6}, std::vector<std::int64_t>{2, 3}, std::vector<std::int64_t>{1, 2, 1, 3}}) {
    write_npy<float>(path(), shape, values);
    const NpyArray<float> back = read_npy<float>(path());
    EXPECT_EQ(back.shape, shape);
    EXPECT_EQ(back.values, values);
  }
  write_npy<std::int32_t>(path(), {3}, {1, -2, 2147480000});
  EXPECT_EQ(read_npy<std::int32_t>(path()).values, (std::vector<std::int32_t>{1, -2, 2147480000}));
}

TEST_F(Npy, StartsItsDataAtAMultipleOf64Bytes) {
  write_npy<float>(path(), {2, 3}, std::vector<float>(6));
  EXPECT_EQ((std::filesystem::file_size(path()) - 24) % 64, 0u);
}

TEST_F(Npy, ReadsVersion2AndAScalar) {
  EXPECT_EQ(read_npy<float>(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8, 2)).shape,
            (std::vector<std::int64_t>{2}));
  EXPECT_EQ(read_npy<float>(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", 4)).values.size(),
            1u);
}

TEST_F(Npy, ReadsAnArrayWithoutElements) {
  EXPECT_TRUE(
      read_npy<float>(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }", 0)).values.empty());
}

TEST_F(Npy, RefusesOtherElements) {
  for (const char* type : {"<f8", ">f4", "<f2", "<i8", "|u1", "<U3"})
    EXPECT_THAT(
        refusal(with_header(std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (1,), }", 8)),
        AllOf(HasSubstr(type), HasSubstr("float32 (descr '<f4') would do")));
  EXPECT_THAT(refusal(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4)),
              HasSubstr("records"));
}

TEST_F(Npy, RefusesFortranOrder) {
  EXPECT_THAT(refusal(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", 4)),
              HasSubstr("Fortran order; C order would do"));
}

TEST_F(Npy, RefusesWhatIsCutShortOrTooLong) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
  EXPECT_THAT(refusal(with_header(dict, 23)), HasSubstr("holds 23 bytes of data and its shape [3, 2] takes 24"));
  EXPECT_THAT(refusal(with_header(dict, 25)), HasSubstr("holds 25 bytes of data and its shape [3, 2] takes 24"));
  EXPECT_THAT(refusal(file("\x93NUMPY\x01")), HasSubstr("has 7 bytes and is no .npy file"));
  EXPECT_THAT(refusal(file(std::string("\x93NUMPY\x01\x00\x40\x00{'descr'", 18))), HasSubstr("inside its header"));
}

TEST_F(Npy, RefusesAForeignFile) {
  EXPECT_THAT(refusal(file("{\"version\": 1, \"kind\": 2}")), HasSubstr("does not begin as an .npy file does"));
  EXPECT_THAT(refusal(with_header("{}", 0, 3)), HasSubstr("format version 3; 1 and 2 are read"));
}

TEST_F(Npy, BoundsWhatAHeaderMayClaim) {
  EXPECT_THAT(refusal(file(std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12))),
              HasSubstr("header of 2147483647 bytes"));
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  EXPECT_THAT(refusal(with_header(start + "1000000000, 1000000000), }", 4)), HasSubstr("takes more than"));
  EXPECT_THAT(refusal(with_header(start + "99999999999999999999,), }", 4)), HasSubstr("dimension above 2^40"));
  EXPECT_THAT(refusal(with_header(start + "-1,), }", 4)), HasSubstr("shape that does not read"));
  EXPECT_THAT(refusal(with_header(start + "1,1,1,1,1,1,1,1,1), }", 4)), HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(refusal(with_header(start + "1", 4)), HasSubstr("without a shape"));
  EXPECT_THAT(refusal(with_header("{'descr': '<f4'", 4)), HasSubstr("without fortran_order"));
}

TEST_F(Npy, RefusesWhatIsNoFile) {
  EXPECT_THAT(refusal(path("none.npy")), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder_), HasSubstr("is a directory"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal(path("fifo")), HasSubstr("no regular file"));
}

TEST_F(Npy, SaysThatItCannotWrite) {
  EXPECT_THROW(write_npy<float>(path("no/such/folder.npy"), {1}, {1.f}), ConfigError);
}

}  // namespace
}  // namespace kernelwright
