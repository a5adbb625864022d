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

TEST(SessionCapsTest, ReadingStopsWhileCommandsHoldMoreThanTheirShare) {
  const SessionCaps caps;
  Cluster::Sessions::Backlog backlog = WithRoom();
  EXPECT_TRUE(caps.MayRead(backlog, PendingCompilations()));
  backlog.commands_wait = true;
  EXPECT_FALSE(caps.MayRead(backlog, PendingCompilations()));
  backlog.waits_for_memory = true;  // no change: executors take commands whatever the client asks
  EXPECT_FALSE(caps.MayRead(backlog, PendingCompilations()));
}

TEST(SessionCapsTest, ReadingStopsWhileProgramsThatAreBeingCompiledHoldMoreThanTheirShare) {
  const SessionCaps caps;
  const auto memory = std::make_shared<MemoryBudget>(6 << 20);
  PendingCompilations one(memory), other(memory);
  const std::shared_ptr<void> small = one.Add(1 << 20);  // twice as much is charged
  EXPECT_TRUE(caps.MayRead(WithRoom(), one));
  std::shared_ptr<void> large = one.Add(1 << 20);
  EXPECT_FALSE(caps.MayRead(WithRoom(), one));
  EXPECT_TRUE(caps.MayRead(WithRoom(), other));
  large.reset();
  EXPECT_TRUE(caps.MayRead(WithRoom(), one));
}

}  // namespace
}  // namespace fairway
