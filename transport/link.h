// SPDX-License-Identifier: Apache-2.0
// Framed links (docs/architecture.md, "Links"): the seam between processes for control messages.
//
// A frame is a fixed little-endian header {u32 magic, u8 version, u8 type, u16 flags, u64 id, u64
// offset, u32 length, u32 crc32c of the payload} and `length` bytes. Control frames carry one
// serialized protobuf message each.
#ifndef FAIRWAY_TRANSPORT_LINK_H_
#define FAIRWAY_TRANSPORT_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <absl/functional/any_invocable.h>

#include "async/event_loop.h"
#include "base/status.h"
#include "transport/frame.h"
#include "transport/tls.h"

namespace fairway {

struct Frame {
  uint8_t type = 0;  // of the protocol that runs over the link
  uint16_t flags = 0;
  uint64_t id = 0;
  uint64_t offset = 0;
  std::string payload;
  // CRC-32C of the payload, where its maker has worked it out; else the link does, in the loop.
  std::optional<uint32_t> crc = std::nullopt;
  // The end of the payload of a frame that is sent. What is received has none.
  SharedTail tail = {};

  size_t bytes() const { return payload.size() + tail.size(); }
  // Appends the tail to the payload.
  void Join() {
    if (tail.bytes != nullptr) payload += *tail.bytes;
    tail = {};
  }
};

inline constexpr std::chrono::milliseconds kHostSilence{3000};

// One connection. Owned by its user, who may destroy it at any time. Loop-confined: all calls and
// callbacks happen in the loop that made it. Frames arrive in the order in which they were sent, or
// the link closes.
class Link {
 public:
  virtual ~Link() = default;  // closes; no callback comes after it
  // Queues the frame; never blocks. Frames sent in one turn of the loop leave in one write.
  virtual void Send(Frame frame) = 0;
  // The bytes queued and not yet written: for back-pressure.
  virtual size_t queued_bytes() const = 0;
  // Sends the queued frames, then closes. `on_closed` comes.
  virtual void Close() = 0;
  virtual std::string peer() const = 0;  // "127.0.0.1:4711", for messages
  // Who the peer has proved to be; nullopt: nobody asked, since there is no TLS.
  virtual std::optional<Subject> subject() const { return std::nullopt; }
  // The certificate that it has shown for that.
  virtual CertificateHash certificate() const { return {}; }
  // From now on the link closes with DEADLINE_EXCEEDED if the peer's host has acknowledged nothing
  // for kHostSilence. The kernels of both hosts watch this, so a stopped or busy process does not
  // count as a silent host, unless its socket is full. Use it for links that carry next to nothing,
  // or that may end at any time. It does nothing on links within a host's own memory.
  virtual void WatchHost() {}
  // From now on a frame with more than `bytes` of payload closes the link; from the start one over
  // kMaxFrameBytes does. It does nothing on links within a host's own memory.
  virtual void LimitFrames(size_t bytes) {}

  // Set both before control returns to the loop. `on_closed` comes once: with OK after an orderly
  // end, else with the cause (bad magic, version, checksum, a frame over the limit, a reset).
  // ABORTED: the end came between two frames and without a word of TLS, as when a process is
  // killed.
  std::function<void(Frame)> on_frame;
  std::function<void(absl::Status)> on_closed;
};

// Connects in the background; `done` runs in the loop. UNAVAILABLE, with the address: no answer
// within `timeout`, or no TLS with a peer that is as `tls` wants it.
void ConnectTcp(EventLoop& loop, const std::string& host_port, std::chrono::milliseconds timeout,
                absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Link>>)> done,
                const TlsUse& tls = {});

// A listening port. Loop-confined.
class LinkServer {
 public:
  virtual ~LinkServer() = default;  // stops accepting; accepted links live on
  virtual int port() const = 0;
};

// Listens at "host:port" (port 0: any free one). `on_accept` runs in the loop, with `tls` once the
// peer is known to be as it says. ALREADY_EXISTS names the port that is taken.
absl::StatusOr<std::unique_ptr<LinkServer>> ListenTcp(
    EventLoop& loop, const std::string& host_port,
    std::function<void(std::unique_ptr<Link>)> on_accept, const TlsUse& tls = {});

// Wraps an already connected stream socket (a socketpair to a child).
std::unique_ptr<Link> AdoptSocket(EventLoop& loop, int fd);

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_LINK_H_
