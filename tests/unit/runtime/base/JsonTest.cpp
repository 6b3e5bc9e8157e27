#include "runtime/base/Json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace llmopt::runtime;

namespace {

/// "line:column: what"; empty for a text that is taken.
std::string problemOf(std::string_view text) {
  nlohmann::json value;
  std::optional<JsonProblem> problem = parseJson(text, value);
  return problem ? fmt::format("{}:{}: {}", problem->line, problem->column, problem->what) : "";
}

} // namespace

TEST(Json, ValuesAreTaken) {
  nlohmann::json value;
  EXPECT_FALSE(parseJson("{\"a\": [1, 1e308, -1.5, 1e-999, \"\\u0000\", null]}", value));
  EXPECT_EQ(value["a"].size(), 6u);
  EXPECT_EQ(value["a"][1], 1e308);
}

TEST(Json, MistakesAreLocatedInOneLine) {
  std::string key = problemOf("{\n \"a\": 1,\n oops}");
  EXPECT_TRUE(key.starts_with("3:2: syntax error while parsing object key")) << key;
  EXPECT_EQ(key.find('\n'), std::string::npos) << key;
  EXPECT_TRUE(problemOf("").starts_with("1:1: syntax error")) << problemOf("");
  EXPECT_TRUE(problemOf("[1\n").starts_with("2:1: syntax error")) << problemOf("[1\n");
  EXPECT_TRUE(problemOf("[\"\xff\"]").starts_with("1:3: syntax error")) << problemOf("[\"\xff\"]");
  EXPECT_EQ(problemOf(std::string_view("[1]\n\0x", 6)), "2:1: a NUL byte");
  std::string deep = "\n" + std::string(257, '[');
  EXPECT_EQ(problemOf(deep), "2:257: nested too deeply; 256 levels are allowed");
}

// The parser knows no place for these.
TEST(Json, NumbersBeyondADoubleAreLocated) {
  for (const char *number : {"1e400", "-1e400", "1e999999999"})
    EXPECT_EQ(problemOf(fmt::format("{{\"a\": 1,\n  \"b\": [2, {}], \"c\": 1e401}}", number)),
              fmt::format("2:12: the number {} is too large; up to 1.8e308 are allowed", number));
  EXPECT_EQ(problemOf("[" + std::string(1000, '9') + "]"),
            "1:2: the number " + std::string(40, '9') +
                "... is too large; up to 1.8e308 are "
                "allowed");
}

TEST(Json, LongTextsAreCutInMessages) {
  EXPECT_LT(problemOf("[\"" + std::string(1 << 20, 'x') + "\xff\"]").size(), 300u);
  EXPECT_EQ(shortJson(nlohmann::json{{"a", {1, 2}}}), "{\"a\":[1,2]}");
  EXPECT_EQ(shortJson(std::string(78, 'x') + "\u00e9y").substr(70), "xxxxxxxxx...");
}
