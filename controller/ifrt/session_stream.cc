// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/session_stream.h"

#include <utility>

#include "controller/sessions/handle_lists.h"

namespace fairway {
namespace {

// Answers go out before the end of a longer batch, and other sessions have their turn in between.
constexpr size_t kRequestsPerFlush = 32;
constexpr size_t kRequestsOfATurn = 256;
constexpr uint64_t kUnitsOfATurn = 1000;  // work of the core

// About the memory that an answer takes while its client does not read it. A large answer consists
// of many small messages, which take several times their wire size; to ask for it takes time.
size_t BytesOf(const xla::ifrt::proxy::IfrtResponse& response) {
  constexpr size_t kSmall = 512;
  const size_t bytes = response.ByteSizeLong();
  return bytes <= kSmall ? kSmall + bytes : response.SpaceUsedLong();
}

}  // namespace

absl::StatusOr<IfrtStream::Decoded> IfrtStream::Decode(std::unique_ptr<Request> message) {
  const size_t bytes = message->ByteSizeLong();
  return Decoded{std::move(message), bytes, bytes};
}

IfrtStream::Going IfrtStream::HandleAll(std::vector<std::unique_ptr<Request>> items) {
  IfrtSession* session = door_->Find(id_);
  if (session == nullptr) return Going::kEnded;
  for (auto& item : items) unhandled_.push_back(std::move(item));
  session->GoOn();
  const uint64_t until = session->WorkDone() + kUnitsOfATurn;
  for (size_t handled = 1; !unhandled_.empty(); ++handled) {
    if (LeavesTooMuchUnread() || session->Describing()) return Going::kLater;
    if (session->Busy() || handled > kRequestsOfATurn) return Going::kSoon;
    // Also at the first one: each request may end its turn, as a call of a long program does.
    if (handled == 1 && !session->MayRead()) return Going::kLater;
    if (session->WorkDone() >= until) return session->MayRead() ? Going::kSoon : Going::kLater;
    std::unique_ptr<Request> request = std::move(unhandled_.front());
    unhandled_.pop_front();
    const size_t bytes = KnownSize(*request);  // as decoded; Handle takes parts of it
    session->Handle(*request);
    GiveUp(std::move(request), bytes);
    if (handled % kRequestsPerFlush == 0) Flush(true);
  }
  if (session->HasMore()) return Going::kSoon;
  return session->MayRead() ? Going::kOn : Going::kLater;
}

void IfrtStream::FailSession(const absl::Status& status) {
  IfrtSession* session = door_->Find(id_);
  if (session != nullptr) session->Refuse(status);
}

void IfrtStream::Send(std::unique_ptr<Response> response, bool may_wait) {
  const size_t bytes = BytesOf(*response);
  SessionStream::Send(
      [&] {
        outbox_.push_back(std::move(response));
        return bytes;
      },
      may_wait);
}

IfrtStream::Outgoing IfrtStream::Next() {
  if (outbox_.empty()) return {};
  std::unique_ptr<Response> message = std::move(outbox_.front());
  outbox_.pop_front();
  const size_t bytes = BytesOf(*message);
  return {std::move(message), bytes, !outbox_.empty()};
}

}  // namespace fairway
