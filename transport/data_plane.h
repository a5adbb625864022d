// SPDX-License-Identifier: Apache-2.0
// Pulls bulk bytes (docs/architecture.md, "Links"): the receiver asks the source's data port for
// (transfer, index); the source answers when it has the bytes, or with an error. Each executor and
// the controller run one.
#ifndef FAIRWAY_TRANSPORT_DATA_PLANE_H_
#define FAIRWAY_TRANSPORT_DATA_PLANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "async/event_loop.h"
#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/ticket.h"
#include "transport/block_pool.h"
#include "transport/tls.h"

namespace fairway {

// Bytes to send; they live as long as `owner`.
struct DataView {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// Names the bytes that are asked for.
struct PullRequest {
  TransferId transfer;
  int32_t index = 0;
  Incarnation from{};  // the puller; its plane fills it in
  // Not 0: bytes that the launches of one gang exchange. Their handlers run on the I/O threads of
  // both sides, because a gang waits for them.
  uint32_t round = 0;
  // What the puller got from the controller to be answered at all: for a round the GangTicket of
  // the source's port, else TicketFor the transfer and `from`.
  Ticket ticket = {};
};

// Names bytes that come without being asked for: an executor pushes them to another one that runs
// the same gang (docs/design/0063-push-exchange.md).
struct PushName {
  uint64_t launch = 0;
  uint32_t round = 0;
  int32_t part = 0;
  Incarnation from{};  // the pusher; its plane fills it in
};
inline constexpr size_t kMaxPushBytes = 64 << 10;

// Owned by a session of an executor, or by the controller. Bytes move on the plane's own I/O
// thread, which owns no state of others; handlers run in the loop.
class DataPlane {
 public:
  using Answer = absl::AnyInvocable<void(absl::StatusOr<DataView>)>;  // thread-safe; called once
  using PullDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Blob>>)>;

  virtual ~DataPlane() = default;

  // "host:port" that peers can reach.
  virtual std::string endpoint() const = 0;

  // Asks `endpoint` for `request`. The answer must have `bytes` bytes. The block is allocated here,
  // after the caller has reserved the memory. `done` runs once, unless the plane ends before: in
  // the loop (for a round: on the I/O thread). Thread-safe. UNAVAILABLE: the peer cannot be reached
  // or went away; ABORTED: it has another incarnation; PERMISSION_DENIED: request.ticket is not the
  // right one; DATA_LOSS: checksum or size differ; else the source's own error.
  virtual void Pull(const std::string& endpoint, Incarnation incarnation, PullRequest request,
                    int64_t bytes, PullDone done) = 0;

  // Nobody wants the bytes of these pulls any more: they end with CANCELLED, if they have not
  // ended, and the peer is told. Thread-safe.
  virtual void TakeBack(const std::string& endpoint, TransferId transfer) = 0;

  // Copies `bytes`, at most kMaxPushBytes, and sends them. They are dropped if the peer cannot be
  // reached, goes away, has another incarnation, or if `ticket` is not its GangTicket; a Pull would
  // tell. `pending` is released when they were given to the socket, or dropped. Thread-safe.
  virtual void Push(const std::string& endpoint, Incarnation incarnation, const Ticket& ticket,
                    PushName name, std::string_view bytes, std::shared_ptr<void> pending) = 0;
  // Passes the pushes that were not taken to OnPush again. Thread-safe.
  virtual void RetryPushes() = 0;

  // The bytes pulled from each endpoint so far, for metrics.
  virtual std::vector<std::pair<std::string, uint64_t>> PulledBytes() const = 0;
  virtual uint64_t ServedBytes() const = 0;
};

// Takes bytes that were pushed here, on the I/O thread. False: there is no room for them yet. Then
// the plane keeps them, reads nothing more of that connection, and offers them again in
// RetryPushes. So it keeps one push for each connection at most.
using OnPush = std::function<bool(const PushName& name, std::shared_ptr<Blob>& bytes)>;

// `on_pull` runs in the loop (for rounds `on_round`, on the I/O thread) for every request from
// outside that shows the right ticket of `key`. It answers now or later through `answer`; an Answer
// that is destroyed unused answers UNAVAILABLE. `advertise_host`: the host in endpoint(); an IPv6
// address with or without brackets. `spool`: takes pulled bytes beyond a budget of memory; empty:
// memory only. `on_push`: see OnPush; empty: pushes are dropped. `on_taken_back` runs in the loop,
// after on_pull, for a request that was not answered and whose peer does not want the answer any
// more; `answer` does nothing then. `tls`: of the connections that it makes and accepts. Requests
// and pushes without the right ticket get an error, and a line in the log, one a second at most.
absl::StatusOr<std::unique_ptr<DataPlane>> MakeTcpDataPlane(
    EventLoop& loop, const std::string& bind_host_port, const std::string& advertise_host,
    Incarnation incarnation, const PortKey& key,
    std::function<void(PullRequest request, DataPlane::Answer answer)> on_pull, Spool spool = {},
    std::function<void(PullRequest request, DataPlane::Answer answer)> on_round = {},
    OnPush on_push = {}, std::function<void(PullRequest request)> on_taken_back = {},
    const TlsUse& tls = {});

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_DATA_PLANE_H_
