// SPDX-License-Identifier: Apache-2.0
// The serving side of the data plane: one accepted connection. Runs on the plane's I/O thread.
#ifndef FAIRWAY_TRANSPORT_DATA_SERVER_H_
#define FAIRWAY_TRANSPORT_DATA_SERVER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "transport/data_protocol.h"
#include "transport/frame_stream.h"

namespace fairway::data {

// Owned by the plane. Sends answers in chunks, and takes turns between the answers that are ready,
// so that a large shard does not hold up small ones. Keeps an answer's owner until its last byte is
// written.
class ServerStream final : public FrameStream {
 public:
  // `key`: of the port. `on_pull` is called on the I/O thread for requests to the right incarnation
  // with the right ticket. It answers later, through Answer. `on_push`: see OnPush. `on_taken_back`
  // is called for a request that is not answered yet and whose answer nobody wants any more.
  ServerStream(Channel channel, Incarnation incarnation, const PortKey& key,
               std::function<void(std::shared_ptr<ServerStream>, uint64_t id, PullRequest)> on_pull,
               std::function<void(ServerStream*)> on_end,
               std::shared_ptr<std::atomic<uint64_t>> served, OnPush on_push = {},
               std::function<void(PullRequest)> on_taken_back = {})
      : FrameStream(std::move(channel)),
        incarnation_(incarnation),
        key_(key),
        gang_ticket_(GangTicket(key)),
        on_pull_(std::move(on_pull)),
        on_end_(std::move(on_end)),
        served_(std::move(served)),
        on_push_(std::move(on_push)),
        on_taken_back_(std::move(on_taken_back)) {}

  // `known` is called once, when the peer first shows a right ticket, which strangers do not have.
  void set_known(std::function<void()> known) { known_ = std::move(known); }
  // `refused` is called when the peer has shown none, or a wrong one.
  void set_refused(std::function<void(const absl::Status& why)> refused) {
    refused_ = std::move(refused);
  }
  void Answer(uint64_t id, absl::StatusOr<DataView> answer);
  // Offers the push that was not taken to `on_push` again, and reads on if it is taken now. If it
  // is not, and the peer has gone, the stream ends.
  void RetryPush();

 protected:
  bool NextFrame(OutFrame& frame) override;
  bool MayRead() const override { return outgoing_.size() <= kMaxOutgoing && !held_.has_value(); }
  size_t MaxPayload(uint8_t type) const override {
    return type == kPush ? kPushNameBytes + kMaxPushBytes : kMaxFrameBytes;
  }
  std::span<char> Destination(const FrameHeader& header, size_t done) override;
  void OnFrame(const FrameHeader& header) override;
  void OnStreamClosed(absl::Status status) override;

 private:
  void OnPushed(const FrameHeader& header);
  // Whether the push whose name has come may be taken. One with a wrong ticket is answered with an
  // error.
  bool Takes(const FrameHeader& header);
  absl::Status CheckTicketOf(const PullRequest& request) const;
  void Known();
  void OnTakenBack(uint64_t id);

  static constexpr size_t kMaxOutgoing = 4096;  // answers; more than any puller that reads has
  struct Outgoing {
    uint64_t id = 0;
    absl::Status error;  // not OK: this is the answer
    DataView view;
    size_t sent = 0;
  };

  const Incarnation incarnation_;
  const PortKey key_;
  const Ticket gang_ticket_;
  const std::function<void(std::shared_ptr<ServerStream>, uint64_t, PullRequest)> on_pull_;
  const std::function<void(ServerStream*)> on_end_;
  const std::shared_ptr<std::atomic<uint64_t>> served_;
  // Of a request that is not answered yet.
  struct Expected {
    int64_t bytes = 0;
    PullRequest request;
  };
  std::map<uint64_t, Expected> expected_;
  std::deque<Outgoing> outgoing_;
  std::array<char, 4096> request_;  // longer requests are refused
  std::function<void()> known_;     // empty: it has been called
  std::function<void(const absl::Status&)> refused_ = [](const absl::Status&) {};
  const OnPush on_push_;
  const std::function<void(PullRequest)> on_taken_back_;
  bool takes_ = false;            // the result of Takes for the push that is being read
  std::shared_ptr<Blob> pushed_;  // its bytes
  struct Held {
    PushName name;
    std::shared_ptr<Blob> bytes;
  };
  std::optional<Held> held_;  // a push that was not taken
};

}  // namespace fairway::data

#endif  // FAIRWAY_TRANSPORT_DATA_SERVER_H_
