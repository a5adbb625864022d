// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "log/log_model.h"
#include "log/planted.h"

namespace fairway {
namespace {

constexpr int kSeeds = 200;
constexpr int kEvents = 300;

constexpr std::array kMistakes = {
    std::pair{LogMistake::kOldVersionCounts, "old_version_counts"},
    std::pair{LogMistake::kReplaySkipped, "replay_skipped"},
    std::pair{LogMistake::kReplayRunsAgain, "replay_runs_again"},
    std::pair{LogMistake::kConcludedEarly, "concluded_early"},
    std::pair{LogMistake::kStaleSet, "stale_set"},
    std::pair{LogMistake::kAbsentChildEnded, "absent_child_ended"},
    std::pair{LogMistake::kForeignReportBelieved, "foreign_report_believed"},
};

TEST(LogModelTest, NothingIsConcludedEarlyOrTwiceAndAllEnds) {
  LogModel::counts = {};
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string failure = LogModel(seed, true).Run(kEvents);
    ASSERT_EQ(failure, "") << "seed " << seed;
  }
  const LogModel::Counts& c = LogModel::counts;
  EXPECT_EQ(c.appended, c.concluded);
  // The model does what it is for.
  EXPECT_GT(c.appended, 20 * kSeeds);
  EXPECT_GT(c.refused, kSeeds);
  EXPECT_GT(c.versions, 2 * kSeeds);
  EXPECT_GT(c.replays, 2 * kSeeds);
  EXPECT_GT(c.lies, 2 * kSeeds);
  EXPECT_GT(c.killed, kSeeds / 2);
}

TEST(LogModelTest, EveryPlantedMistakeIsFound) {
  for (const bool strict : {true, false}) {
    for (const auto& [mistake, name] : kMistakes) {
      g_planted_log_mistake = mistake;
      std::string failure;
      uint64_t seed = 0;
      while (failure.empty() && seed < kSeeds) failure = LogModel(++seed, strict).Run(kEvents);
      g_planted_log_mistake = LogMistake::kNone;
      EXPECT_NE(failure, "") << name << " is not found in " << kSeeds << " seeds";
      fmt::print("{}{}: seed {}: {}\n", name, strict ? "" : " by what comes of it", seed, failure);
    }
  }
}

}  // namespace
}  // namespace fairway
