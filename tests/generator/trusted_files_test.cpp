#include "kernelwright/generator/trusted_files.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace kernelwright {
namespace {

TEST(ErrorText, HasTheWordsAndTheName) {
  EXPECT_EQ(error_text(ENOSPC), "No space left on device (ENOSPC)");
  EXPECT_EQ(error_text(EACCES), "Permission denied (EACCES)");
  EXPECT_EQ(error_text(EOPNOTSUPP), "Operation not supported (ENOTSUP)");
}

TEST(ErrorText, OfANumberThatHasNoNameHasTheNumber) {
  EXPECT_EQ(error_text(EUCLEAN), "Structure needs cleaning (error 117)");
  EXPECT_EQ(error_text(99999), "Unknown error 99999 (error 99999)");
}

}  // namespace
}  // namespace kernelwright
