// SPDX-License-Identifier: Apache-2.0
// Executors of one island whose gangs exchange sums, for tests.
#ifndef FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_FIXTURE_FOR_TEST_H_
#define FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_FIXTURE_FOR_TEST_H_

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "async/event_loop.h"
#include "async/run_until.h"
#include "worker/executor/gang_exchanges.h"
#include "worker/executor/runtime/host/all_reduce.h"

namespace fairway {

using Bytes = std::shared_ptr<Blob>;
using Sum = absl::StatusOr<Bytes>;

inline PortKey KeyOf(Incarnation incarnation) { return {incarnation.value, 1}; }

inline InstallExecutable::Member MemberAt(const DataPlane& plane, Incarnation incarnation) {
  return {plane.endpoint(), incarnation, GangTicket(KeyOf(incarnation))};
}

// Executors of one island over real sockets; each member's gang is a thread of the test.
class GangExchangesTest : public testing::Test {
 protected:
  struct Peer {
    std::shared_ptr<GangExchanges> all = std::make_shared<GangExchanges>();
    std::unique_ptr<DataPlane> plane;
    std::shared_ptr<Exchange> exchange;
  };

  // Member m is on host m modulo `hosts`.
  void Make(size_t count, size_t hosts = 1) {
    peers_.resize(count);
    GangExchanges::Members members;
    for (size_t i = 0; i < count; ++i) {
      Peer& peer = peers_[i];
      const Incarnation incarnation(100 + i);
      const std::string host = fmt::format("127.0.0.{}", 1 + i % hosts);
      peer.plane = *MakeTcpDataPlane(
          loop_, host + ":0", host, incarnation, KeyOf(incarnation),
          [](PullRequest, DataPlane::Answer) {}, {},
          [this, all = peer.all](PullRequest request, DataPlane::Answer answer) {
            if (request.index == GangExchanges::kWatch) ++watches_;
            all->OnPull(request, std::move(answer));
          },
          [this, all = peer.all](const PushName& name, std::shared_ptr<Blob>& bytes) {
            ++frames_;
            return all->OnPush(name, bytes);
          });
      peer.all->Open(peer.plane.get());
      members.push_back(MemberAt(*peer.plane, incarnation));
    }
    for (size_t i = 0; i < count; ++i) peers_[i].exchange = peers_[i].all->Make(members, i);
  }
  void Close(size_t i) {
    peers_[i].all->Close(absl::UnavailableError("closed"));
    peers_[i].plane.reset();
  }
  void TearDown() override {
    for (size_t i = 0; i < peers_.size(); ++i) Close(i);
  }

  Sum Run(size_t member, uint64_t launch, uint32_t round, const std::vector<float>& values,
          int64_t push_bytes) {
    return AllReduceOver(
        *peers_[member].exchange, launch, round, DType::kF32,
        Blob::Copy({reinterpret_cast<const char*>(values.data()), 4 * values.size()}), push_bytes);
  }
  // The exchange of a gang of members `a` and `b`, for `a`.
  std::shared_ptr<Exchange> PairOf(size_t a, size_t b) {
    return peers_[a].all->Make({MemberAt(*peers_[a].plane, Incarnation(100 + a)),
                                MemberAt(*peers_[b].plane, Incarnation(100 + b))},
                               0);
  }
  // Runs one launch on all members, each in a thread.
  std::vector<std::optional<Sum>> RunAll(uint64_t launch,
                                         const std::vector<std::vector<float>>& values) {
    std::vector<std::optional<Sum>> got(peers_.size());
    std::vector<std::thread> gangs;
    for (size_t m = 0; m < peers_.size(); ++m) {
      gangs.emplace_back([&, m] {
        got[m] = Run(m, launch, 1, values[m], 1 << 20);
        peers_[m].exchange->End(launch, got[m]->status());
      });
    }
    for (std::thread& gang : gangs) gang.join();
    return got;
  }

  EventLoop loop_;
  std::atomic<int> frames_ = 0;   // pushes that came by a connection
  std::atomic<int> watches_ = 0;  // pulls that ask how a launch ends
  std::vector<Peer> peers_;
};

inline std::vector<float> ToFloats(const Sum& sum) {
  if (!sum.ok()) return {};
  std::vector<float> out((*sum)->size() / 4);
  if (!out.empty()) std::memcpy(out.data(), (*sum)->data(), (*sum)->size());
  return out;
}

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_GANG_EXCHANGES_FIXTURE_FOR_TEST_H_
