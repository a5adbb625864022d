// SPDX-License-Identifier: Apache-2.0
// The connections of clients on which a call was let in: how many there are, and what was sent by
// them of messages that no handler has yet. gRPC 1.51 gathers each message whole, of up to 4 GiB,
// before it compares its size with any limit, and says nothing until then. But the kernel says how
// much has come by a connection, and handlers say what they took.
#ifndef FAIRWAY_TRANSPORT_INFLOW_H_
#define FAIRWAY_TRANSPORT_INFLOW_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/strangers.h"

namespace fairway {

// Of one connection. Thread-safe.
class Inflow {
 public:
  // A call that came by it.
  class Call {
   public:
    virtual ~Call() = default;
    // The connection ends: the call is to end, with that reason. On any thread.
    virtual void Over(const absl::Status& why) = 0;
  };

  void Begin(const std::shared_ptr<Call>& call);
  void End(const Call* call);
  // A handler has a message of so many bytes.
  void Took(size_t bytes) { expected_ += bytes + bytes / kFraming + kMessageFraming; }

 private:
  friend class Inflows;
  // What brings a message over TLS and HTTP/2: a part of its bytes, and so much for itself; and a
  // call's headers. Rather too much, so that who sends small messages for weeks is not taken for
  // one who sends large ones.
  static constexpr size_t kFraming = 128;
  static constexpr size_t kMessageFraming = 48;
  static constexpr size_t kCallFraming = 512;

  // Of the bytes that came: those of what was taken, with its framing.
  std::atomic<uint64_t> expected_ = 0;
  std::mutex mutex_;
  std::map<const Call*, std::weak_ptr<Call>> calls_;  // guarded by mutex_
};

// The connections of one port on which a call was let in. The bytes that no handler has are counted
// for each owner, all connections of one token together. An owner may have as many as it leaves to
// others (docs/design/0059-shares.md), so one alone may have half. Of one that has more, the
// connection that has most ends.
//
// How many there are is counted for each holder, all connections of one token together, or of one
// network where nobody is asked for a token. For one more than there may be, one of the holder that
// has most ends: its oldest without calls, else its newest. If that holder is the one that brings
// the new one, it loses none with calls, but the new one is refused. Thread-safe.
class Inflows {
 public:
  struct Limits {
    size_t connections = 8192;
    int64_t all = int64_t{1088} << 20;  // one message of 512 MiB, and more, may come
    int64_t least = int64_t{32} << 20;  // that an owner may have in any case
  };
  // What the kernel counts.
  struct Moved {
    uint64_t received = 0, sent = 0;
  };
  // nullopt: the connection has ended. `cookie` is what the kernel calls the socket.
  using Probe = std::function<std::optional<Moved>(int fd, uint64_t cookie)>;
  using Shut = std::function<void(int fd, uint64_t cookie)>;
  using Time = std::chrono::steady_clock::time_point;

  Inflows(Limits limits, Probe probe, Shut shut)
      : limits_(limits), probe_(std::move(probe)), shut_(std::move(shut)) {}

  // For whom a connection counts.
  struct Whose {
    std::string owner;   // its bytes
    std::string holder;  // itself; errors name it: "token 7"
  };
  // `fd` may close at any time. RESOURCE_EXHAUSTED: there is no room for it.
  absl::StatusOr<std::shared_ptr<Inflow>> Add(const std::string& peer, Whose whose, int fd,
                                              uint64_t cookie, Time now);
  // nullptr: there is none.
  std::shared_ptr<Inflow> Find(const std::string& peer);
  void Forget(const std::string& peer);
  // Ends connections that were told at the look before, and tells those that made room for others,
  // and those of whom an owner has too much: so their calls have the time between two looks to end
  // with the reason. Returns when to look again.
  std::chrono::milliseconds Look(Time now);

 private:
  struct Connection {
    std::shared_ptr<Inflow> inflow;
    Whose whose;
    uint64_t number = 0;  // later ones have higher
    int fd = -1;
    uint64_t cookie = 0;
    Moved seen;             // at the last look
    uint64_t expected = 0;  // the same
    Time looked;
    int64_t under_way = 0;
    absl::Status over;  // not OK: it ends
    bool told = false;  // its calls were
  };
  using Connections = std::map<std::string, Connection>;  // by peer
  using Told = std::pair<std::shared_ptr<Inflow>, absl::Status>;

  // The next four with mutex_ held.
  // Ends one for a new one of `holder`, if there are too many.
  absl::Status MakeRoom(const std::string& holder);
  // Whether it is still there.
  bool Count(Connection& connection, Time now) const;
  // Tells those that end, and forgets those that were told, and have ended. Returns the bytes of
  // each owner of the others.
  std::map<std::string, int64_t> CountAll(Time now, std::vector<Told>& told);
  // The connection that has most of the owner that has most too much; nullptr: nobody has.
  Connections::value_type* MostOver(std::map<std::string, int64_t>& owners, int64_t all);

  const Limits limits_;
  const Probe probe_;
  const Shut shut_;
  std::mutex mutex_;
  // Guarded by mutex_:
  Connections all_;
  uint64_t next_ = 1;
  std::map<std::string, absl::Status> refused_;  // holders, since the last look: they have no room
  Refusals refusals_;
};

// An Inflows::Probe.
std::optional<Inflows::Moved> MovedBy(int fd, uint64_t cookie);

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_INFLOW_H_
