/// EXPECT_THROW_MESSAGE(statement, Type, text): `statement` must throw exactly `Type`, and its what() must be `text`.
#pragma once

#include <gtest/gtest.h>

#include <string>

#define EXPECT_THROW_MESSAGE(statement, Type, text)   \
  EXPECT_THROW(                                       \
      {                                               \
        try {                                         \
          statement;                                  \
        } catch (const Type& error) {                 \
          EXPECT_EQ(std::string(error.what()), text); \
          throw;                                      \
        }                                             \
      },                                              \
      Type)
