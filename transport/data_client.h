// SPDX-License-Identifier: Apache-2.0
// The pulling side of the data plane: one connection to one endpoint. Runs on the plane's I/O
// thread.
#ifndef FAIRWAY_TRANSPORT_DATA_CLIENT_H_
#define FAIRWAY_TRANSPORT_DATA_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/block_pool.h"
#include "transport/data_protocol.h"
#include "transport/frame_stream.h"

namespace fairway::data {

// A pull that was sent and is not answered completely. Invariant: received <= request.bytes.
struct PendingPull {
  WireRequest request;
  DataPlane::PullDone done;  // called on the I/O thread
  std::shared_ptr<Blob> blob;
  uint64_t received = 0;
};

// A push that was not given to the socket.
struct PendingPush {
  std::string payload;  // Encode(WirePush)
  std::shared_ptr<void> pending;
};

// Owned by the plane. When it ends, all its pulls fail, but for those of a peer that said nothing;
// the plane makes a new stream for the next pull.
class ClientStream final : public FrameStream {
 public:
  using OnEnd = std::function<void(std::vector<PendingPull> unheard, const absl::Status& why)>;

  // `pulled` counts the bytes of complete shards. `blocks` gives the blocks to receive into.
  // `on_end` is called once, when the stream has ended, and why. Its pulls have failed; but if the
  // peer closed the connection before a byte of it had come, it is given them.
  ClientStream(Channel channel, std::string endpoint, std::shared_ptr<std::atomic<uint64_t>> pulled,
               std::shared_ptr<BlockPool> blocks, OnEnd on_end)
      : FrameStream(std::move(channel)),
        endpoint_(std::move(endpoint)),
        pulled_(std::move(pulled)),
        blocks_(std::move(blocks)),
        on_end_(std::move(on_end)) {}

  void Pull(PendingPull pull);
  void Push(PendingPush push);
  // Ends the transfer's pulls with CANCELLED, and tells the peer.
  void TakeBack(TransferId transfer);

 protected:
  bool NextFrame(OutFrame& frame) override;
  std::span<char> Destination(const FrameHeader& header, size_t done) override;
  size_t MaxPayload(uint8_t type) const override {
    return type == kChunk ? kMaxFrameBytes : kMaxControlBytes;
  }
  void OnFrame(const FrameHeader& header) override;
  void OnCorrupt(const FrameHeader& header) override;
  void OnStreamClosed(absl::Status status) override;

 private:
  // Returns whether a frame that begins is the next chunk of a pull. A chunk that does not fit ends
  // its pull.
  bool Takes(const FrameHeader& header);
  void OnChunk(const FrameHeader& header, PendingPull& pull);
  // Ends pull `id`; drops its later chunks.
  void End(uint64_t id, absl::Status status);

  const std::string endpoint_;
  const std::shared_ptr<std::atomic<uint64_t>> pulled_;
  const std::shared_ptr<BlockPool> blocks_;
  const OnEnd on_end_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, PendingPull> pulls_;
  std::set<std::pair<TransferId, uint64_t>> by_transfer_;  // invariant: those of pulls_
  std::deque<std::pair<uint64_t, WireRequest>> unsent_;    // some may have ended
  std::deque<uint64_t> taken_back_;                        // sent before, to be told
  std::deque<PendingPush> pushes_;
  bool takes_ = false;  // the result of Takes for the present frame
  // What the present frame's bytes go to. The socket may write there until the next call of
  // Destination or OnFrame, even if the pull has ended meanwhile; so nobody else may have it.
  std::shared_ptr<Blob> into_;
  std::vector<char> scratch_;  // for error texts, and bytes that nobody wants
};

}  // namespace fairway::data

#endif  // FAIRWAY_TRANSPORT_DATA_CLIENT_H_
