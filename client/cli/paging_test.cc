// SPDX-License-Identifier: Apache-2.0
#include "client/cli/paging.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

// A controller of `count` nodes, which tells three a page. Every second page of a list whose number
// it does not know is empty.
class Pages {
 public:
  Pages(uint64_t count, bool knows_total) : count_(count), knows_total_(knows_total) {}
  absl::StatusOr<Paged<v1::ListNodesResponse>> List(uint64_t limit) {
    return ListPages<v1::ListNodesResponse>(
        [this](const v1::ListRequest& request) { return Page(request); },
        [](v1::ListNodesResponse& of) { return of.mutable_nodes(); }, {}, limit);
  }
  int asked = 0;

 private:
  absl::StatusOr<v1::ListNodesResponse> Page(const v1::ListRequest& request) {
    if (++asked > 100) return absl::InternalError("it asks without end");
    v1::ListNodesResponse page;
    if (knows_total_) page.set_total(count_);
    uint64_t id = request.after().id();
    if (knows_total_ || asked % 2 == 1) {
      for (int i = 0; i < 3 && id < count_; ++i) page.add_nodes()->set_id(++id);
    }
    if (id < count_) page.mutable_next()->set_id(id);
    return page;
  }

  const uint64_t count_;
  const bool knows_total_;
};

TEST(PagingTest, AllRowsComeInTheirOrder) {
  for (const bool knows : {false, true}) {
    const auto all = Pages(8, knows).List(0);
    ASSERT_TRUE(all.ok());
    ASSERT_EQ(all->rows.nodes_size(), 8);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(all->rows.nodes(i).id(), i + 1u);
    EXPECT_EQ(all->left_out, 0u);
  }
}

TEST(PagingTest, AtTheLimitTheRestIsToldOrElseCounted) {
  Pages told(100, true);
  const auto some = told.List(4);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->rows.nodes_size(), 4);
  EXPECT_EQ(some->left_out, 96u);
  EXPECT_EQ(told.asked, 2);
  Pages counted(100, false);
  const auto same = counted.List(4);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->rows.nodes_size(), 4);
  EXPECT_EQ(same->left_out, 96u);
  EXPECT_EQ(Pages(4, true).List(4)->left_out, 0u);
  EXPECT_EQ(Pages(4, false).List(4)->left_out, 0u);
  EXPECT_EQ(Pages(0, true).List(4)->rows.nodes_size(), 0);
}

TEST(PagingTest, AnErrorOfAPageIsThatOfTheList) {
  EXPECT_TRUE(absl::IsInternal(Pages(1000, false).List(4).status()));
}

}  // namespace
}  // namespace fairway
