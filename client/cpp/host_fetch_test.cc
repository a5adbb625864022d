// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/host_fetch.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "fairway/future.h"

namespace fairway::client {
namespace {

ArraySpec Spec(Shape shape, Sharding sharding) {
  return {DType::kU8, std::move(shape), std::move(sharding)};
}

std::unique_ptr<HostFetch> Make(const ArraySpec& spec) {
  auto fetch = HostFetch::Make(spec);
  EXPECT_TRUE(fetch.ok()) << fetch.status();
  return *std::move(fetch);
}

std::vector<int> Asked(const HostFetch& fetch) {
  v1::Fetch proto;
  fetch.Name(&proto);
  return {proto.shards().begin(), proto.shards().end()};
}

// Returns "more", "complete", or the error.
std::string Take(HostFetch& fetch, int index, int64_t size, const std::string& data) {
  v1::Fetched piece;
  piece.set_index(index);
  piece.set_size(size);
  piece.set_data(data);
  const Result<bool> taken = fetch.Take(piece);
  return !taken.ok() ? taken.status().ToString() : *taken ? "complete" : "more";
}

std::string Text(const HostArray& array) {
  const auto values = array.values<uint8_t>();
  return {values.begin(), values.end()};
}

TEST(HostFetchTest, ShardsArePutTogetherFromPiecesInAnyOrder) {
  const auto fetch = Make(Spec({2, 4}, Sharding::Tiled({7, 9}, {1, 2})));
  EXPECT_EQ(Asked(*fetch), (std::vector<int>{0, 1}));
  EXPECT_EQ(Take(*fetch, 1, 4, "CD"), "more");
  EXPECT_EQ(Take(*fetch, 0, 4, "ABEF"), "more");
  EXPECT_EQ(Take(*fetch, 1, 4, "GH"), "complete");
  EXPECT_EQ(Text(fetch->Array()), "ABCDEFGH");
}

TEST(HostFetchTest, EveryPartIsAskedForOnce) {
  EXPECT_EQ(Asked(*Make(Spec({8}, Sharding::Replicated({3, 1, 2})))), (std::vector<int>{0}));
  EXPECT_EQ(Asked(*Make(Spec({8}, {{0, 1, 2, 3}, {2}, {1, 0, 1, 0}, ""}))),
            (std::vector<int>{0, 1}));
}

TEST(HostFetchTest, UnevenCutsHaveSmallerAndEmptyShards) {
  const auto fetch = Make(Spec({5}, Sharding::Tiled({0, 1, 2, 3}, {4})));
  EXPECT_EQ(Take(*fetch, 0, 2, "AB"), "more");
  EXPECT_EQ(Take(*fetch, 1, 2, "CD"), "more");
  EXPECT_EQ(Take(*fetch, 3, 0, ""), "more");
  EXPECT_EQ(Take(*fetch, 2, 1, "E"), "complete");
  EXPECT_EQ(Text(fetch->Array()), "ABCDE");
}

TEST(HostFetchTest, AServerThatSendsOtherBytesIsFound) {
  const auto fetch = Make(Spec({4}, Sharding::Single(0)));
  const std::string number =
      "INTERNAL: the controller sent another number of bytes than a shard has";
  EXPECT_EQ(Take(*fetch, 1, 4, "AB"),
            "INTERNAL: the controller sent bytes of a shard that was not asked for");
  EXPECT_EQ(Take(*fetch, 0, 5, "AB"), number);
  EXPECT_EQ(Take(*fetch, 0, 4, "ABCDE"), number);
  EXPECT_EQ(Take(*fetch, 0, 4, "ABCD"), "complete");
  EXPECT_EQ(Take(*fetch, 0, 4, ""), number);
}

TEST(FutureTest, CallbacksRunOnceWheneverTheyWereGiven) {
  Promise<Status> promise;
  const Future<Status> future = promise.future();
  int before = 0, after = 0;
  future.Then([&](const Status& status) { before += status.ok() ? 1 : 100; });
  EXPECT_FALSE(future.ready());
  EXPECT_FALSE(future.WaitFor(std::chrono::nanoseconds(1)));
  promise.Set(Status());
  promise.Set(Status(StatusCode::kAborted, "too late"));
  future.Then([&](const Status& status) { after += status.ok() ? 1 : 100; });
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 1);
}

TEST(FutureTest, GetWaitsForAnotherThread) {
  Promise<Result<int>> promise;
  std::thread other([&] { promise.Set(5); });
  EXPECT_EQ(promise.future().Get().value(), 5);
  other.join();
}

}  // namespace
}  // namespace fairway::client
