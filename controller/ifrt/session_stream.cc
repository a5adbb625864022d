// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/session_stream.h"

#include <malloc.h>

#include <chrono>
#include <utility>

namespace fairway {
namespace {

// How often a paused stream looks whether the session may read again.
constexpr std::chrono::milliseconds kPausePoll{5};

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(static_cast<int>(status.code())), Text(status)};
}

void SessionStream::Start() {
  self_ = shared_from_this();
  context_.loop->Post("ifrt open", [self = self_] {
    const auto session = self->context_.door->Open(self->id_, self->tenant_, self.get());
    if (!session.ok()) return self->End(ToGrpc(session.status()));
    const std::lock_guard lock(self->mu_);
    self->paused_ = false;
    self->MaybeRead();
  });
}

void SessionStream::Refuse(grpc::Status status) {
  self_ = shared_from_this();
  End(std::move(status));
}

void SessionStream::Fail(absl::Status status) {
  context_.loop->Post("ifrt fail", [self = shared_from_this(), status = std::move(status)] {
    IfrtSession* session = self->context_.door->Find(self->id_);
    if (session != nullptr) session->Refuse(status);
  });
}

void SessionStream::MaybeRead() {
  if (read_at_work_ || paused_ || ending_ || inbox_.size() >= kInboxRequests ||
      inbox_bytes_ >= kInboxBytes || outbox_bytes_ >= kOutboxBytes)
    return;
  read_at_work_ = true;
  reading_ = std::make_unique<Request>();
  StartRead(reading_.get());
}

void SessionStream::OnReadDone(bool ok) {
  if (!ok) {
    {
      const std::lock_guard lock(mu_);
      read_at_work_ = false;
    }
    CloseSession();
    // gRPC tells bytes that do not parse and the end of the client's side alike.
    return End({grpc::StatusCode::CANCELLED,
                "the session has ended: the client closed its stream, or sent what is no "
                "IfrtRequest"});
  }
  const std::lock_guard lock(mu_);
  read_at_work_ = false;
  inbox_bytes_ += reading_->ByteSizeLong();
  inbox_.push_back(std::move(reading_));
  if (!std::exchange(drain_posted_, true))
    context_.loop->Post("ifrt requests", [self = shared_from_this()] { self->Drain(); });
  MaybeRead();
}

void SessionStream::Drain() {
  std::vector<std::unique_ptr<Request>> batch;
  {
    const std::lock_guard lock(mu_);
    batch.swap(inbox_);
    inbox_bytes_ = 0;
    drain_posted_ = false;
  }
  IfrtSession* session = context_.door->Find(id_);
  if (session == nullptr) return;
  for (const auto& request : batch) session->Handle(*request);
  const bool may_read = session->MayRead();
  const std::lock_guard lock(mu_);
  paused_ = !may_read;
  MaybeRead();
  if (!may_read)
    context_.loop->PostAfter(kPausePoll, "ifrt paused",
                             [self = shared_from_this()] { self->Drain(); });
}

void SessionStream::Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response) {
  const std::lock_guard lock(mu_);
  if (ending_) return;
  outbox_bytes_ += kAnswerBytes + response->ByteSizeLong();
  outbox_.push_back(std::move(response));
  if (outbox_.size() == 1) StartWrite(outbox_.front().get());
}

void SessionStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mu_);
  outbox_bytes_ -= kAnswerBytes + outbox_.front()->ByteSizeLong();
  outbox_.pop_front();
  if (!ok || ending_) {
    outbox_.clear();
    outbox_bytes_ = 0;
  }
  MaybeRead();
  if (!outbox_.empty()) {
    StartWrite(outbox_.front().get());
  } else if (ending_ && !std::exchange(finished_, true)) {
    Finish(end_status_);
  }
}

void SessionStream::End(grpc::Status status) {
  const std::lock_guard lock(mu_);
  if (ending_) return;
  ending_ = true;
  end_status_ = std::move(status);
  if (!outbox_.empty()) return;  // OnWriteDone goes on
  finished_ = true;
  Finish(end_status_);
}

void SessionStream::OnCancel() {
  CloseSession();
  End(grpc::Status::CANCELLED);
}

void SessionStream::CloseSession() {
  context_.loop->Post("ifrt close",
                      [self = shared_from_this()] { self->context_.door->Close(self->id_); });
}

void SessionStream::OnDone() {
  CloseSession();
  // What large messages and buffers took stays with the allocator otherwise.
  context_.loop->Post("ifrt closed", [pool = context_.pool] { pool->Run([] { malloc_trim(0); }); });
  context_.on_end(id_);
  self_.reset();
}

void SessionStream::RunOffLoop(std::function<void()> work, std::function<void()> then) {
  context_.pool->Run([loop = context_.loop, work = std::move(work), then = std::move(then)] {
    work();
    loop->Post("ifrt copied", then);
  });
}

}  // namespace fairway
