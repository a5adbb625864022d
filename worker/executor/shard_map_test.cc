// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/shard_map.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(ShardMap, IsAMap) {
  std::mt19937 random(1);
  ShardMap<int> map;
  std::map<ShardRef, int> model;
  for (int i = 0; i < 20000; ++i) {
    const ShardRef ref{GroupId(1 + random() % 6), static_cast<int32_t>(random() % 4)};
    switch (random() % 4) {
      case 0: {
        const auto [value, fresh] = map.Insert(ref);
        EXPECT_EQ(fresh, model.try_emplace(ref).second);
        value = model[ref] = i;
        break;
      }
      case 1:
        map.erase(ref);
        model.erase(ref);
        break;
      case 2:
        if (const auto it = map.find(ref); it != map.end()) {
          const auto next = map.erase(it);
          const auto want = model.erase(model.find(ref));
          ASSERT_EQ(next == map.end(), want == model.end());
          if (next != map.end()) {
            EXPECT_EQ(next->first, want->first);
          }
        }
        break;
      default:
        ASSERT_EQ(map.contains(ref), model.contains(ref));
        if (const auto it = map.find(ref); it != map.end()) {
          EXPECT_EQ(it->second, model.at(ref));
        }
    }
    ASSERT_EQ(map.size(), model.size());
    if (i % 5000 == 4999) {
      map.clear();
      model.clear();
    }
  }
}

}  // namespace
}  // namespace fairway
