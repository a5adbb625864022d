// SPDX-License-Identifier: Apache-2.0
// Decides which client's stream a call of a running program goes to, and how the call ends
// (docs/design/0046-callbacks.md).
#ifndef FAIRWAY_CONTROLLER_CALLBACKS_ROUTER_H_
#define FAIRWAY_CONTROLLER_CALLBACKS_ROUTER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/callback.h"

namespace fairway {

inline constexpr size_t kChannelBytes = 16;
inline constexpr char kChannelAttribute[] = "fairway_callbacks";  // of a session's initialization

// What ties a stream to sessions. Streams of one tenant never serve another's sessions.
struct CallbackChannel {
  CallbackChannel() = default;
  CallbackChannel(std::string bytes, std::string tenant = {})
      : bytes(std::move(bytes)), tenant(std::move(tenant)) {}
  auto operator<=>(const CallbackChannel&) const = default;

  std::string bytes;   // kChannelBytes that the client has made; empty: there is no channel
  std::string tenant;  // as the client's token says; empty: nobody asked for one
};

struct CallbackLimits {
  int64_t call_ms = 60000;  // 0: a call may take as long as it wants
  // The most calls under way at one time; a further call fails.
  size_t session_calls = 4096;
  int64_t session_bytes = 2 * kMaxCallbackBytes;  // the most bytes of arguments and results
  int64_t total_bytes = 4 * kMaxCallbackBytes;
  size_t streams = 4096;
};

// The requests of the router to its shell. Calls must not re-enter the router.
class CallbackActions {
 public:
  virtual ~CallbackActions() = default;
  virtual void Answer(ExecutorId executor, CallbackAnswer answer) = 0;
  // Fetches the arguments of a call that came without their bytes. The shell then calls
  // CallbackRouter::ArgumentsCame, unless the executor is lost.
  virtual void FetchArguments(ExecutorId executor, const CallbackCall& call) = 0;
  // `number` is the call's number on that stream. An error means that the call cannot be sent.
  virtual absl::Status SendCall(uint64_t stream, uint64_t number, const CallbackCall& call,
                                const CallbackCaller& caller) = 0;
  virtual void SendCancel(uint64_t stream, uint64_t number, const std::string& reason) = 0;
  // Ends the stream; the shell then calls StreamClosed.
  virtual void EndStream(uint64_t stream, const absl::Status& status) = 0;
};

// A pure state machine: events in, actions out; no thread, socket or clock. Loop-confined.
//
// A client is silent if it let the limit pass and has answered nothing since the call was sent. Its
// calls fail at once until it answers something. So a stopped client with much work queued holds
// devices for one limit, not for one limit per launch.
//
// A call ends once: with the client's answer, at the limit, or with the session, the stream or the
// executor. Its executor gets exactly one answer, unless the executor itself is lost.
class CallbackRouter {
 public:
  CallbackRouter(CallbackLimits limits, CallbackActions* actions)
      : limits_(limits), actions_(actions) {}

  // ---- Sessions. A session that was never opened here has no channel. When the last session of a
  // channel ends, the channel's stream ends.
  void SessionOpened(SessionId session, CallbackChannel channel);
  void SessionClosed(SessionId session);

  // ---- Streams of clients; `stream` is the shell's number.
  // INVALID_ARGUMENT: no channel. FAILED_PRECONDITION: no open session has it. ALREADY_EXISTS:
  // another stream serves it. RESOURCE_EXHAUSTED: too many streams.
  absl::Status StreamOpened(uint64_t stream, const CallbackChannel& channel);
  void StreamClosed(uint64_t stream);
  // The results have the types that the call wants. An answer to a call that has ended is ignored.
  // INVALID_ARGUMENT: there never was such a call, and the stream is to be ended.
  absl::Status Returned(uint64_t stream, uint64_t number, absl::Status status,
                        std::vector<CallbackArray> results);
  // The results that a call of that stream wants; nullptr: it has ended, or never was. Valid until
  // the next event.
  const std::vector<CallbackArray>* Wanted(uint64_t stream, uint64_t number) const;

  // ---- Executors. `caller` is an error if the call has no caller.
  void Called(int64_t now_ms, ExecutorId executor, CallbackCall call,
              absl::StatusOr<CallbackCaller> caller);
  // `arguments` are in order. Ignored when the call has ended, or has its arguments.
  void ArgumentsCame(ExecutorId executor, uint64_t call,
                     absl::StatusOr<std::vector<std::shared_ptr<const Blob>>> bytes);
  // The executor no longer waits for the call.
  void GivenUp(ExecutorId executor, uint64_t call);
  void ExecutorLost(ExecutorId executor);

  // Ends the calls that have taken too long. Called a few times a second.
  void Tick(int64_t now_ms);

  const CallbackLimits& limits() const { return limits_; }
  size_t num_calls() const { return calls_.size(); }
  int64_t num_bytes() const { return bytes_; }

 private:
  struct Session {
    CallbackChannel channel;
  };
  struct Stream {
    CallbackChannel channel;
    uint64_t calls = 0;    // so far
    uint64_t answers = 0;  // so far, late ones included
    bool silent = false;
    std::map<uint64_t, uint64_t> waits;  // number on the stream -> key of calls_
  };
  struct Call {
    ExecutorId executor;
    uint64_t call = 0;  // the executor's number for it
    SessionId session;
    uint64_t stream = 0;
    uint64_t number = 0;   // on the stream; 0: not sent yet
    uint64_t answers = 0;  // Stream::answers when it was sent
    int64_t due_ms = 0;    // 0: never
    int64_t bytes = 0;
    CallbackCaller caller;
    CallbackCall asked;  // its arguments are empty once it has been sent
  };
  struct Load {
    size_t calls = 0;
    int64_t bytes = 0;
  };

  absl::StatusOr<uint64_t> StreamFor(const CallbackCaller& caller) const;
  absl::Status TooLate() const;
  static absl::Status NoSession();
  absl::Status Room(SessionId session, int64_t bytes) const;
  static absl::Status CheckResults(const std::vector<CallbackArray>& wanted,
                                   const std::vector<CallbackArray>& came);
  // A session has given the channel up. Returns whether no session has it any more.
  bool Release(const CallbackChannel& channel);
  void Send(uint64_t key);
  // Takes the call out of all tables.
  Call Take(uint64_t key);
  // Ends the call without the client's answer; tells the client unless its stream is gone.
  void End(uint64_t key, const absl::Status& status, bool tell_client);
  template <typename Which>
  std::vector<uint64_t> Those(Which which) const;

  const CallbackLimits limits_;
  CallbackActions* const actions_;
  std::map<SessionId, Session> sessions_;
  std::map<CallbackChannel, size_t> channels_;  // of open sessions -> how many have it
  std::map<uint64_t, Stream> streams_;
  std::map<CallbackChannel, uint64_t> serving_;  // channel -> stream
  uint64_t next_key_ = 1;
  std::map<uint64_t, Call> calls_;
  std::map<std::pair<ExecutorId, uint64_t>, uint64_t> by_executor_;  // (executor, number) -> key
  std::map<SessionId, Load> loads_;
  std::set<std::pair<int64_t, uint64_t>> due_;  // (time, key)
  int64_t bytes_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CALLBACKS_ROUTER_H_
