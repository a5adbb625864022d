// SPDX-License-Identifier: Apache-2.0
// One session's stream of messages, between the callbacks of a transport (gRPC) and a session in
// the loop. The front doors' streams derive from it; it knows neither gRPC nor any protocol.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_STREAM_H_
#define FAIRWAY_CONTROLLER_SESSIONS_STREAM_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "controller/sessions/open_streams.h"

namespace fairway {

// Thread-safe. Lives until the transport is done with it and no posted work refers to it.
//
// Messages gather in an inbox that the loop empties in batches. Reading stops while the inbox
// is full, while the client leaves too many answers unread, while the stream's messages hold more
// than it leaves to others, or while the session may not read (rule B3). The transport reads `In`
// and writes `Out`; the session takes a message as an `Item`.
template <typename In, typename Item, typename Out>
class SessionStream : public OpenStream,
                      public std::enable_shared_from_this<SessionStream<In, Item, Out>> {
 public:
  struct Context {
    EventLoop* loop = nullptr;
    std::shared_ptr<BlockingPool> pool;
    uint64_t owner = 0;            // of its work in the pool (BlockingPool::Run)
    std::function<void()> on_end;  // called once, on any thread
    std::string message;           // the type of the client's messages, for errors: "IfrtRequest"
    // Only destroys, so that nothing waits long for it; nullptr: the owner of garbage destroys it.
    std::shared_ptr<BlockingPool> garbage = nullptr;
    // For the messages of all streams: those that came until they are destroyed, and those that the
    // client has not taken. nullptr: they are bounded for each stream only.
    std::shared_ptr<MemoryBudget> messages = nullptr;
    // Hears of each message that came, by its bytes on the wire; may be empty.
    std::function<void(size_t)> took = {};
  };

  explicit SessionStream(Context context)
      : context_(std::move(context)),
        share_(context_.messages == nullptr
                   ? std::make_shared<MemoryBudget>(std::numeric_limits<int64_t>::max())
                   : std::make_shared<MemoryBudget>(context_.messages)) {}

  // Opens the session and reads. Keeps itself alive until TransportDone.
  void Start();
  // Ends the stream at once. Called instead of Start.
  void Refuse(absl::Status status);
  void Fail(absl::Status status) override;
  void End(absl::Status status) override;

 protected:
  struct Decoded {
    Item item;
    size_t bytes = 0;  // in memory
    size_t sent = 0;   // on the wire
  };
  // What something takes while it waits to be written: in all, and without what is counted
  // elsewhere already, such as the bytes of a fetched array.
  struct Weight {
    Weight(size_t bytes = 0) : bytes(bytes), own(bytes) {}
    Weight(size_t bytes, size_t own) : bytes(bytes), own(own) {}
    size_t bytes, own;
  };
  struct Outgoing {
    std::unique_ptr<Out> message;
    Weight weight;      // as counted when it was queued
    bool more = false;  // another one follows at once
  };

  // ---- The transport's part. One read and one write at a time. A read may be started after
  // FinishStream, and does nothing then.
  virtual void StartReading(In* into) = 0;
  virtual void StartWriting(const Out* message, bool more) = 0;
  // Called with the lock held, as the two below.
  virtual void FinishStream(const absl::Status& status) = 0;
  // The next message to write, if there is one.
  virtual Outgoing Next() = 0;
  // Forgets the messages that were not written.
  virtual void DropUnsent() = 0;

  // Called on the transport's threads, one message at a time. An error ends the stream.
  virtual absl::StatusOr<Decoded> Decode(std::unique_ptr<In> message) = 0;

  // ---- The session's part. Called in the loop.
  virtual absl::Status OpenSession() = 0;
  enum class Going : uint8_t {
    kOn,     // all was handled
    kSoon,   // not all: the turn was used up
    kLater,  // the session has to wait: reading stops, and the loop tries again later
    kEnded,  // there is no session any more
  };
  // Handles the items that were left before, then `items`.
  virtual Going HandleAll(std::vector<Item> items) = 0;
  virtual void FailSession(const absl::Status& status) = 0;
  virtual void CloseSession() = 0;  // also called when there is none

  // ---- The transport's callbacks.
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Cancelled();
  void TransportDone();

  // Calls queue(), which leaves something for Next and returns its weight, unless the stream has
  // ended. It is written together with the other messages of this turn of the loop, because a
  // message alone wakes a thread of the client. `may_wait`: no client waits for it, so it is
  // written with what comes within kAnswersWait.
  template <typename Queue>
  void Send(Queue queue, bool may_wait = false);
  // Calls forget(), which drops some of what is left for Next and returns its bytes.
  template <typename Forget>
  void Unsend(Forget forget) {
    const std::lock_guard lock(mu_);
    const Weight less = forget();
    CountUnsent(unsent_.bytes - less.bytes, unsent_.own - less.own);
  }
  // Writes the messages so far, unless all may wait. `again`: the caller, a handler, goes on.
  void Flush(bool again);
  // Runs `work` on a thread of the pool, then `then` in the loop. The thread holds nothing of
  // either when `then` begins: both are destroyed before that, or in the loop.
  void WorkThen(std::function<void()> work, std::function<void()> then) {
    context_.pool->Run(
        [loop = context_.loop, work = std::move(work), then = std::move(then)]() mutable {
          work();
          work = nullptr;
          loop->Post("session off loop", std::exchange(then, nullptr));
        },
        context_.owner);
  }

  // Lets another thread destroy `garbage`.
  template <typename Garbage>
  void GiveAway(Garbage garbage) {
    if (context_.garbage == nullptr) return;
    context_.garbage->Run([garbage = std::move(garbage)] {}, context_.owner);
  }
  // Destroys a message that was decoded as one of `bytes` bytes. A large one takes long unless it
  // is `brief`, so another thread does it. Until then its bytes count: above kInboxBytes the
  // session has to wait.
  template <typename Garbage>
  void GiveUp(Garbage garbage, size_t bytes, bool brief = false) {
    if (brief || bytes <= kGivenUpHere || context_.garbage == nullptr)
      return share_->Release(static_cast<int64_t>(bytes));
    *given_away_ += bytes;
    context_.garbage->Run(
        [garbage = std::optional(std::move(garbage)), bytes, given_away = given_away_,
         share = share_]() mutable {
          garbage.reset();
          *given_away -= bytes;
          share->Release(static_cast<int64_t>(bytes));
        },
        context_.owner);
  }

  const Context& context() const { return context_; }
  // Whether the bytes that the client has not taken are too many to go on; and their number.
  bool LeavesTooMuchUnread() {
    const std::lock_guard lock(mu_);
    return unsent_.bytes >= kUnsentBytes || (unsent_.own > kLeastBytes && share_->over());
  }
  size_t unsent() {
    const std::lock_guard lock(mu_);
    return unsent_.bytes;
  }
  std::shared_ptr<SessionStream> Self() { return this->shared_from_this(); }

 private:
  static constexpr size_t kInboxItems = 4096;
  static constexpr size_t kInboxBytes = size_t{16} << 20;
  static constexpr size_t kUnsentBytes = size_t{64} << 20;
  // What a stream may hold even when others hold all the memory for messages.
  static constexpr size_t kLeastBytes = size_t{64} << 10;
  static constexpr size_t kGivenUpHere = size_t{64} << 10;
  // How long, and how many, messages wait that may.
  static constexpr std::chrono::milliseconds kAnswersWait{1};
  static constexpr size_t kMostWaiting = 32;
  // How often a paused stream checks whether the session may read again.
  static constexpr std::chrono::milliseconds kPausePoll{5};
  // The same while it holds more than its share of the memory for messages: many may wait for that.
  static constexpr std::chrono::milliseconds kOverPoll{40};

  // What is started once mu_ is released. A read or a write may send within the call, and a post
  // wakes the loop, which would wait for the lock.
  struct Starts {
    bool drain = false;
    In* read = nullptr;
    const Out* write = nullptr;
    bool more = false;  // of `write`
    bool late = false;  // FlushLate
  };
  void StartAll(const Starts& starts);

  void Drain();
  void FlushLate();
  void PostClose();
  // With mu_ held. MaybeRead: adds the next read, if there is room and none is under way.
  void MaybeRead(Starts& starts);
  void MaybeWrite(Starts& starts);
  void MaybeDrain(Starts& starts) { starts.drain = !std::exchange(drain_posted_, true); }
  // With mu_ held.
  void CountUnsent(size_t bytes, size_t own) {
    share_->Take(static_cast<int64_t>(own) - static_cast<int64_t>(unsent_.own));
    unsent_ = {bytes, own};
  }
  // Whether its messages hold more than its share.
  bool Over() const { return share_->used() > static_cast<int64_t>(kLeastBytes) && share_->over(); }

  const Context context_;
  // The bytes of its messages. Invariant: of those decoded and not destroyed, and unsent_.own.
  const std::shared_ptr<MemoryBudget> share_;
  // Bytes of messages that wait to be destroyed.
  const std::shared_ptr<std::atomic<size_t>> given_away_ = std::make_shared<std::atomic<size_t>>(0);
  std::shared_ptr<SessionStream> self_;  // until TransportDone
  std::unique_ptr<In> reading_;          // being filled by the transport

  // Guards the members below, and FinishStream.
  std::mutex mu_;
  std::vector<Item> inbox_;
  size_t inbox_bytes_ = 0;
  bool drain_posted_ = false;
  Going going_ = Going::kOn;  // the last result of HandleAll
  bool read_at_work_ = false;
  bool paused_ = true;  // until the session is open, and while it may not read
  Outgoing writing_;    // no message: no write is under way
  Weight unsent_;       // including that of writing_
  bool flush_coming_ = false;
  bool due_ = false;         // some of what is left for Next may not wait
  size_t waiting_ = 0;       // messages that were left for Next since it had none, and may wait
  bool late_flush_ = false;  // FlushLate is to come
  bool ending_ = false;
  bool finished_ = false;
  absl::Status end_status_;
};

}  // namespace fairway

#include "controller/sessions/stream_impl.h"

#endif  // FAIRWAY_CONTROLLER_SESSIONS_STREAM_H_
