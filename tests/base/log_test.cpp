#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace longhaul::base {
namespace {

TEST(Log, HandsLinesToTheInstalledSink) {
  std::vector<std::string> lines;
  set_log_sink([&lines](const std::string& line) { lines.push_back(line); });
  log_line("one");
  log_line("");
  set_log_sink({});
  log_line("dropped");
  EXPECT_EQ(lines, (std::vector<std::string>{"one", ""}));
}

TEST(Log, TakesLinesFromSeveralThreadsOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  std::size_t count = 0;  // unguarded on purpose: the sink is called under the log's own lock
  set_log_sink([&count](const std::string&) { ++count; });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < kLines; ++i) {
          log_line("x");
        }
      });
    }
  }
  set_log_sink({});
  EXPECT_EQ(count, static_cast<std::size_t>(kThreads * kLines));
}

}  // namespace
}  // namespace longhaul::base
