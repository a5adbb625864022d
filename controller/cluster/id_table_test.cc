// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/id_table.h"

#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "base/ids.h"

namespace fairway {
namespace {

struct Record {
  NodeId id;
};

// Ids that share a place among those found last, too.
TEST(IdTableTest, FindsWhatWasInsertedAndNotTaken) {
  std::mt19937_64 random(5);
  IdTable<NodeId, Record> table;
  std::map<NodeId, Record*> naive;
  const auto any = [&] { return NodeId(1 + random() % 8 + (random() % 4 << 14)); };
  for (int i = 0; i < 20000; ++i) {
    const NodeId id = any();
    const auto known = naive.find(id);
    ASSERT_EQ(table.Find(id), known == naive.end() ? nullptr : known->second);
    if (known == naive.end()) {
      naive[id] = &table.Insert(std::make_unique<Record>(Record{id}));
    } else if (random() % 2 == 0) {
      ASSERT_EQ(table.Take(id).get(), known->second);
      naive.erase(known);
    } else {
      ASSERT_EQ(table.at(id), known->second);
    }
    ASSERT_EQ(table.size(), naive.size());
    if (i % 16 != 0) continue;
    for (const auto& [next, record] : naive) ASSERT_EQ(table.Find(next), record);  // a walk
  }
  const NodeId from = any();
  auto it = table.lower_bound(from);
  for (auto expected = naive.lower_bound(from); expected != naive.end(); ++expected, ++it)
    ASSERT_EQ(it->second.get(), expected->second);
  EXPECT_EQ(it, table.end());
}

}  // namespace
}  // namespace fairway
