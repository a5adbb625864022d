// SPDX-License-Identifier: Apache-2.0
// The implementation of SessionStream. Include stream.h.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_STREAM_IMPL_H_
#define FAIRWAY_CONTROLLER_SESSIONS_STREAM_IMPL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "controller/sessions/stream.h"

namespace fairway {

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::Start() {
  self_ = Self();
  context_.loop->Post("session open", [self = self_] {
    const absl::Status opened = self->OpenSession();
    if (!opened.ok()) return self->End(opened);
    Starts starts;
    {
      const std::lock_guard lock(self->mu_);
      self->paused_ = false;
      self->MaybeRead(starts);
    }
    self->StartAll(starts);
  });
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::Refuse(absl::Status status) {
  self_ = Self();
  End(std::move(status));
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::Fail(absl::Status status) {
  context_.loop->Post("session fail",
                      [self = Self(), status = std::move(status)] { self->FailSession(status); });
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::StartAll(const Starts& starts) {
  if (starts.drain) context_.loop->Post("session requests", [self = Self()] { self->Drain(); });
  if (starts.write != nullptr) StartWriting(starts.write, starts.more);
  if (starts.read != nullptr) StartReading(starts.read);
  if (starts.late)
    context_.loop->PostAfter(kAnswersWait, "session late answers",
                             [self = Self()] { self->FlushLate(); });
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::MaybeRead(Starts& starts) {
  if (read_at_work_ || paused_ || ending_ || inbox_.size() >= kInboxItems ||
      inbox_bytes_ >= kInboxBytes || unsent_.bytes >= kUnsentBytes || Over())
    return;
  read_at_work_ = true;
  reading_ = std::make_unique<In>();
  starts.read = reading_.get();
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::ReadDone(bool ok) {
  // gRPC gives the same signal for bytes that do not parse and for the end of the client's side.
  absl::StatusOr<Decoded> decoded =
      ok ? Decode(std::move(reading_))
         : Error(absl::StatusCode::kCancelled,
                 "the session has ended: the client closed its stream, or sent no valid {}",
                 context_.message);
  Starts starts;
  std::unique_lock lock(mu_);
  read_at_work_ = false;
  if (!decoded.ok()) {
    lock.unlock();
    PostClose();
    return End(decoded.status());
  }
  inbox_bytes_ += decoded->bytes;
  share_->Take(static_cast<int64_t>(decoded->bytes));
  if (context_.took) context_.took(decoded->sent);
  inbox_.push_back(std::move(decoded->item));
  MaybeDrain(starts);
  MaybeRead(starts);
  lock.unlock();
  StartAll(starts);
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::Drain() {
  std::vector<Item> batch;
  {
    const std::lock_guard lock(mu_);
    drain_posted_ = false;
    flush_coming_ = true;
    // The items left to the session and the messages gathered here have separate bounds.
    if (going_ == Going::kOn) {
      batch.swap(inbox_);
      inbox_bytes_ = 0;
    }
  }
  Going going = HandleAll(std::move(batch));
  Flush(false);
  if (going == Going::kEnded) return;
  const bool over = Over();
  if (going == Going::kOn && (over || *given_away_ >= kInboxBytes)) going = Going::kLater;
  Starts starts;
  {
    const std::lock_guard lock(mu_);
    going_ = going;
    paused_ = going == Going::kLater;
    MaybeRead(starts);
    if (going == Going::kLater && !std::exchange(drain_posted_, true))
      context_.loop->PostAfter(over ? kOverPoll : kPausePoll, "session paused",
                               [self = Self()] { self->Drain(); });
    if (going == Going::kSoon || !inbox_.empty()) MaybeDrain(starts);
  }
  StartAll(starts);
}

template <typename In, typename Item, typename Out>
template <typename Queue>
void SessionStream<In, Item, Out>::Send(Queue queue, bool may_wait) {
  const std::lock_guard lock(mu_);
  if (ending_) return;
  const Weight more = queue();
  CountUnsent(unsent_.bytes + more.bytes, unsent_.own + more.own);
  if (!may_wait || ++waiting_ >= kMostWaiting) due_ = true;
  if (writing_.message != nullptr || std::exchange(flush_coming_, true)) return;
  context_.loop->Post("session answers", [self = Self()] { self->Flush(false); });
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::Flush(bool again) {
  Starts starts;
  {
    const std::lock_guard lock(mu_);
    flush_coming_ = again;
    MaybeWrite(starts);
  }
  StartAll(starts);
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::FlushLate() {
  Starts starts;
  {
    const std::lock_guard lock(mu_);
    late_flush_ = false;
    due_ = due_ || waiting_ > 0;
    MaybeWrite(starts);
  }
  StartAll(starts);
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::MaybeWrite(Starts& starts) {
  if (writing_.message != nullptr || finished_) return;
  if (!due_) {
    starts.late = waiting_ > 0 && !std::exchange(late_flush_, true);
    return;
  }
  writing_ = Next();
  if (writing_.message == nullptr) {
    due_ = false;
    waiting_ = 0;
  }
  starts.write = writing_.message.get();
  starts.more = writing_.more;
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::WriteDone(bool ok) {
  Starts starts;
  std::unique_lock lock(mu_);
  CountUnsent(unsent_.bytes - writing_.weight.bytes, unsent_.own - writing_.weight.own);
  writing_ = {};
  if (!ok || ending_) {
    DropUnsent();
    CountUnsent(0, 0);
  }
  MaybeRead(starts);
  MaybeWrite(starts);
  if (writing_.message == nullptr && ending_ && !std::exchange(finished_, true))
    FinishStream(end_status_);
  lock.unlock();
  StartAll(starts);
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::End(absl::Status status) {
  Starts starts;
  std::unique_lock lock(mu_);
  if (ending_) return;
  ending_ = true;
  end_status_ = std::move(status);
  due_ = true;
  MaybeWrite(starts);
  if (writing_.message != nullptr) {  // WriteDone goes on when the client reads, which may be never
    DropUnsent();
    CountUnsent(writing_.weight.bytes, writing_.weight.own);
    starts.more = false;
    lock.unlock();
    return StartAll(starts);
  }
  finished_ = true;
  FinishStream(end_status_);
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::Cancelled() {
  PostClose();
  End(absl::CancelledError());
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::PostClose() {
  context_.loop->Post("session close", [self = Self()] { self->CloseSession(); });
}

template <typename In, typename Item, typename Out>
void SessionStream<In, Item, Out>::TransportDone() {
  PostClose();
  context_.on_end();
  self_.reset();
}

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_STREAM_IMPL_H_
