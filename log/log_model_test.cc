// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/planted_names.h"
#include "log/log_model.h"
#include "log/planted.h"

namespace fairway {
namespace {

constexpr int kRight = 80;   // seeds of the model without a mistake
constexpr int kSeeds = 200;  // that find each mistake
constexpr int kEvents = 300;

TEST(LogModelTest, NothingIsConcludedEarlyOrTwiceAndAllEnds) {
  LogModel::counts = {};
  for (uint64_t seed = 1; seed <= kRight; ++seed) {
    const std::string failure = LogModel(seed, true).Run(kEvents);
    ASSERT_EQ(failure, "") << "seed " << seed;
  }
  const LogModel::Counts& c = LogModel::counts;
  EXPECT_EQ(c.appended, c.concluded);
  // The model has tested what it is for.
  EXPECT_GT(c.appended, 20 * kRight);
  EXPECT_GT(c.refused, kRight);
  EXPECT_GT(c.versions, 2 * kRight);
  EXPECT_GT(c.replays, 2 * kRight);
  EXPECT_GT(c.lies, 2 * kRight);
  EXPECT_GT(c.killed, kRight / 2);
}

TEST(LogModelTest, EveryPlantedMistakeIsFound) {
  for (const bool strict : {true, false}) {
    for (const auto& [mistake, name] : kLogMistakes) {
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

// They are looked for in the simulation, too.
TEST(LogModelTest, EveryPlantedBugOfRelaysIsFound) {
  for (const Bug bug : {Bug::kForgetEarlyEnds, Bug::kKnownIsConcluded, Bug::kTellAllBelow,
                        Bug::kFloorOfPredecessor}) {
    g_planted_bug = bug;
    std::string failure;
    uint64_t seed = 0;
    while (failure.empty() && seed < kSeeds) failure = LogModel(++seed, true).Run(kEvents);
    g_planted_bug = Bug::kNone;
    const auto* const named =
        std::ranges::find(kAllBugs, bug, [](const auto& entry) { return entry.first; });
    EXPECT_NE(failure, "") << named->second << " is not found in " << kSeeds << " seeds";
    fmt::print("{}: seed {}: {}\n", named->second, seed, failure);
  }
}

}  // namespace
}  // namespace fairway
