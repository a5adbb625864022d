// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/caps.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

Cluster::Sessions::Backlog WithRoom() {
  Cluster::Sessions::Backlog backlog;
  backlog.record_room = size_t{1} << 30;
  return backlog;
}

TEST(SessionCapsTest, ReadingStopsWhileTooManyBytesAreBeingFetched) {
  const SessionCaps caps;
  Cluster::Sessions::Backlog backlog = WithRoom();
  backlog.fetching = caps.max_fetching - 1;
  EXPECT_TRUE(caps.MayRead(backlog, PendingCompilations()));
  backlog.fetching = caps.max_fetching;
  EXPECT_FALSE(caps.MayRead(backlog, PendingCompilations()));
  backlog.waits_for_memory = true;  // no change: a fetch ends whatever the client asks next
  EXPECT_FALSE(caps.MayRead(backlog, PendingCompilations()));
}

TEST(SessionCapsTest, MoreIsReadWhileTheNextRequestsMayFreeMemory) {
  const SessionCaps caps;
  Cluster::Sessions::Backlog backlog = WithRoom();
  backlog.nodes = caps.max_queued_nodes + 1;
  EXPECT_FALSE(caps.MayRead(backlog, PendingCompilations()));
  backlog.waits_for_memory = true;
  EXPECT_TRUE(caps.MayRead(backlog, PendingCompilations()));
}

}  // namespace
}  // namespace fairway
