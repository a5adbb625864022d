// SPDX-License-Identifier: Apache-2.0
// One session's stream of messages: between the callbacks of a transport (gRPC) and a session in
// the loop. The front doors' own streams are made of it; it knows neither gRPC nor any protocol.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_STREAM_H_
#define FAIRWAY_CONTROLLER_SESSIONS_STREAM_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/status.h"
#include "controller/sessions/open_streams.h"

namespace fairway {

// Thread-safe. Lives until the transport is done with it and as long as posted work refers to it.
//
// Messages gather in an inbox that the loop empties in batches; reading stops while the inbox is
// full, while the client leaves too many answers unread, or while the session may not read (rule
// B3). `In` and `Out` are what the transport reads and writes, `Item` is a message as the session
// takes it.
template <typename In, typename Item, typename Out>
class SessionStream : public OpenStream,
                      public std::enable_shared_from_this<SessionStream<In, Item, Out>> {
 public:
  struct Context {
    EventLoop* loop = nullptr;
    std::shared_ptr<BlockingPool> pool;
    uint64_t owner = 0;            // of what it runs there (BlockingPool::Run)
    std::function<void()> on_end;  // on any thread, once
    std::string message;           // what the client's messages are, "IfrtRequest": for errors
    // Only destroys, so that nothing waits long for it; nullptr: who has garbage does it.
    std::shared_ptr<BlockingPool> garbage = nullptr;
  };

  explicit SessionStream(Context context) : context_(std::move(context)) {}

  // Opens the session and reads. Keeps itself alive until TransportDone.
  void Start();
  // Instead of Start: ends it at once.
  void Refuse(absl::Status status);
  void Fail(absl::Status status) override;
  void End(absl::Status status) override;

 protected:
  struct Decoded {
    Item item;
    size_t bytes = 0;
  };
  struct Outgoing {
    std::unique_ptr<Out> message;
    size_t bytes = 0;  // as counted when it was queued
  };

  // ---- The transport's part; with the lock held.
  virtual void StartReading(In* into) = 0;
  virtual void StartWriting(const Out* message) = 0;
  virtual void FinishStream(const absl::Status& status) = 0;
  // What to write next, if there is anything.
  virtual Outgoing Next() = 0;
  // Forgets what was to be written.
  virtual void DropUnsent() = 0;

  // On the transport's threads, one message at a time. An error ends the stream.
  virtual absl::StatusOr<Decoded> Decode(std::unique_ptr<In> message) = 0;

  // ---- The session's part; in the loop.
  virtual absl::Status OpenSession() = 0;
  enum class Going : uint8_t {
    kOn,     // all was handled
    kSoon,   // not all: others had to wait long enough
    kLater,  // the session has to wait: no reading, and try again in a while
    kEnded,  // there is no session any more
  };
  // Handles what came before and was not handled, then `items`.
  virtual Going HandleAll(std::vector<Item> items) = 0;
  virtual void FailSession(const absl::Status& status) = 0;
  virtual void CloseSession() = 0;  // also when there is none

  // ---- The transport's callbacks.
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Cancelled();
  void TransportDone();

  // Calls queue(), which leaves something for Next and returns its bytes, unless the stream has
  // ended. It is written with what else the loop sends in this turn: a message that comes by itself
  // wakes a thread of the client's.
  template <typename Queue>
  void Send(Queue queue);
  // Calls forget(), which takes from what is left for Next and returns the bytes that it took.
  template <typename Forget>
  void Unsend(Forget forget) {
    const std::lock_guard lock(mu_);
    unsent_ -= forget();
  }
  // Writes what was sent so far. `again`: the caller, a handler, goes on.
  void Flush(bool again);
  // Runs `work` on a thread of the pool, then `then` in the loop. What both hold is given up in the
  // loop: the thread has nothing left of it when `then` begins.
  void WorkThen(std::function<void()> work, std::function<void()> then) {
    context_.pool->Run(
        [loop = context_.loop, work = std::move(work), then = std::move(then)]() mutable {
          work();
          work = nullptr;
          loop->Post("session off loop", std::exchange(then, nullptr));
        },
        context_.owner);
  }

  // Has another thread destroy it.
  template <typename Garbage>
  void GiveAway(Garbage garbage) {
    if (context_.garbage == nullptr) return;
    context_.garbage->Run([garbage = std::move(garbage)] {}, context_.owner);
  }
  // Destroys what holds so many bytes, about: much of it takes long. Until that is done they count:
  // above kInboxBytes the session has to wait.
  template <typename Garbage>
  void GiveUp(Garbage garbage, size_t bytes) {
    if (bytes <= kGivenUpHere || context_.garbage == nullptr) return;
    *given_away_ += bytes;
    context_.garbage->Run(
        [garbage = std::optional(std::move(garbage)), bytes, given_away = given_away_]() mutable {
          garbage.reset();
          *given_away -= bytes;
        },
        context_.owner);
  }

  const Context& context() const { return context_; }
  // Bytes that the client has not taken yet, and whether that is too much to go on.
  bool LeavesTooMuchUnread() {
    const std::lock_guard lock(mu_);
    return unsent_ >= kUnsentBytes;
  }
  size_t unsent() {
    const std::lock_guard lock(mu_);
    return unsent_;
  }
  std::shared_ptr<SessionStream> Self() { return this->shared_from_this(); }

 private:
  static constexpr size_t kInboxItems = 4096;
  static constexpr size_t kInboxBytes = size_t{16} << 20;
  static constexpr size_t kUnsentBytes = size_t{64} << 20;
  static constexpr size_t kGivenUpHere = size_t{64} << 10;
  // How often a paused stream looks whether the session may read again.
  static constexpr std::chrono::milliseconds kPausePoll{5};

  void Drain();
  void PostDrain();  // with mu_ held
  void PostClose();
  // With mu_ held: starts the next read, if there is room and none is at work.
  void MaybeRead();
  void MaybeWrite();

  const Context context_;
  // Bytes of messages that wait to be destroyed.
  const std::shared_ptr<std::atomic<size_t>> given_away_ = std::make_shared<std::atomic<size_t>>(0);
  std::shared_ptr<SessionStream> self_;  // until TransportDone
  std::unique_ptr<In> reading_;          // being filled by the transport

  // Guards what follows, and every StartReading, StartWriting and FinishStream: none may come after
  // FinishStream.
  std::mutex mu_;
  std::vector<Item> inbox_;
  size_t inbox_bytes_ = 0;
  bool drain_posted_ = false;
  Going going_ = Going::kOn;  // as HandleAll said last
  bool read_at_work_ = false;
  bool paused_ = true;  // until the session is open, and while it may not read
  Outgoing writing_;    // no message: none is at work
  size_t unsent_ = 0;   // bytes, with those of writing_
  bool flush_coming_ = false;
  bool ending_ = false;
  bool finished_ = false;
  absl::Status end_status_;
};

}  // namespace fairway

#include "controller/sessions/stream_impl.h"

#endif  // FAIRWAY_CONTROLLER_SESSIONS_STREAM_H_
