// SPDX-License-Identifier: Apache-2.0
// Two data planes of one process, for tests: a source and a sink.
#ifndef FAIRWAY_TRANSPORT_PLANES_FOR_TEST_H_
#define FAIRWAY_TRANSPORT_PLANES_FOR_TEST_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "async/run_until.h"
#include "identity/files_for_test.h"
#include "transport/data_plane.h"

namespace fairway {

using Answer = DataPlane::Answer;

inline DataView View(std::string_view bytes) {
  auto blob = Blob::Copy(bytes);
  return {blob->view(), blob};
}

inline PortKey KeyOf(Incarnation incarnation) { return {incarnation.value, 1}; }

// With TLS, and without.
class Planes : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    source_ = Make(Incarnation(7), [this](PullRequest request, Answer answer) {
      on_pull_(request, std::move(answer));
    });
    sink_ = Make(Incarnation(8), [](PullRequest, Answer) {});
  }
  std::unique_ptr<DataPlane> Make(Incarnation incarnation,
                                  std::function<void(PullRequest, Answer)> on_pull,
                                  Spool spool = {}) {
    auto plane =
        MakeTcpDataPlane(loop_, "127.0.0.1:0", "127.0.0.1", incarnation, KeyOf(incarnation),
                         std::move(on_pull), std::move(spool), {}, {}, {}, tls_);
    EXPECT_TRUE(plane.ok()) << plane.status();
    return *std::move(plane);
  }
  void Pull(uint64_t transfer, int32_t index, int64_t bytes,
            Incarnation incarnation = Incarnation(7)) {
    PullWith(SinksTicket(transfer), transfer, index, bytes, incarnation);
  }
  static Ticket SinksTicket(uint64_t transfer) {
    return TicketFor(KeyOf(Incarnation(7)), TransferId(transfer), Incarnation(8));
  }
  void PullWith(const Ticket& ticket, uint64_t transfer, int32_t index, int64_t bytes,
                Incarnation incarnation = Incarnation(7)) {
    sink_->Pull(source_endpoint(), incarnation,
                {TransferId(transfer), index, Incarnation(), 0, ticket}, bytes,
                [this, transfer, index](auto blob) {
                  got_.insert_or_assign({transfer, index}, std::move(blob));
                });
  }
  std::string source_endpoint() const {
    return endpoint_.empty() ? source_->endpoint() : endpoint_;
  }
  absl::Status PullStatus(int64_t bytes, Incarnation incarnation = Incarnation(7)) {
    got_.clear();
    Pull(1, 0, bytes, incarnation);
    EXPECT_TRUE(RunUntil(loop_, [&] { return !got_.empty(); }));
    return got_.empty() ? absl::OkStatus() : got_.begin()->second.status();
  }

  CertificateFiles files_;
  const TlsUse tls_ = GetParam() ? TlsUse{files_.Worker("w0"), std::nullopt} : TlsUse{};
  EventLoop loop_;
  std::function<void(PullRequest, Answer)> on_pull_;
  std::unique_ptr<DataPlane> source_, sink_;
  std::string endpoint_;
  std::map<std::pair<uint64_t, int32_t>, absl::StatusOr<std::shared_ptr<Blob>>> got_;
};

inline std::string KindOf(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Tls" : "Plain";
}

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_PLANES_FOR_TEST_H_
