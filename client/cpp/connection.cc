// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/connection.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/status.h"
#include "base/utf8.h"
#include "client/cpp/access.h"
#include "client/cpp/credentials.h"
#include "identity/tls_probe.h"

namespace fairway::client {
namespace {

constexpr uint32_t kMinProtocol = 1;
constexpr uint32_t kMaxProtocol = 1;

// A controller that is silent for a minute is pinged; the session ends if it does not answer for
// two minutes. Otherwise a call would wait for ever for an answer from a host that is gone. The
// times are long, so that a controller whose process is stopped for a minute, or gets no processor,
// only seems slow.
constexpr int kPingAfterMs = 60 * 1000;
constexpr int kPingTimeoutMs = 120 * 1000;

// True while this thread runs one of our callbacks; then it must not wait for another callback.
thread_local int callbacks_running = 0;
struct InCallback {
  InCallback() { ++callbacks_running; }
  ~InCallback() { --callbacks_running; }
};

v1::Answer ErrorAnswer(const Status& status) {
  v1::Answer answer;
  answer.mutable_error()->set_code(static_cast<int>(status.code()));
  answer.mutable_error()->set_text(status.message());
  return answer;
}

// The controller refuses a request that names more handles.
constexpr size_t kMostHandles = size_t{1} << 20;

void TakeFirst(std::vector<uint64_t>* from, google::protobuf::RepeatedField<uint64_t>* to) {
  const auto end = from->begin() + static_cast<ptrdiff_t>(std::min(from->size(), kMostHandles));
  to->Assign(from->begin(), end);
  from->erase(from->begin(), end);
}

// gRPC's callback threads end with the last channel of the process; if one of them drops it, the
// process aborts. So the last connection that they drop is kept until there is another one.
void KeepInsteadOfAnother(std::shared_ptr<Connection> ended) {
  static std::mutex mu;
  // never destroyed, not even with static objects
  static auto* const kept = new std::shared_ptr<Connection>;
  const std::lock_guard lock(mu);
  kept->swap(ended);
}

Status ClosedStatus() { return {StatusCode::kCancelled, "the session was closed"}; }

}  // namespace

Result<std::shared_ptr<Connection>> Connection::Open(const std::string& address,
                                                     const ConnectOptions& options) {
  const auto texts = ReadClientTexts(options.tls_ca, options.token_file, /*flags=*/false);
  if (!texts.ok()) return FromAbsl(texts.status());
  auto connection = std::make_shared<Connection>();
  connection->Start(address, *texts);
  Promise<Status> promise;
  const Future<Status> welcomed = promise.future();
  connection->Ask(
      [connection = connection.get(), promise, address](const v1::Answer& answer) {
        if (answer.has_welcome()) connection->Welcomed(address, answer.welcome());
        promise.Set(answer.has_error() ? Status(static_cast<StatusCode>(answer.error().code()),
                                                answer.error().text())
                                       : Status());
        return true;
      },
      [&](v1::Request& request) {
        v1::Hello* hello = request.mutable_hello();
        hello->set_min_version(kMinProtocol);
        hello->set_max_version(kMaxProtocol);
        hello->set_tenant(ValidUtf8(options.tenant));
        hello->set_client("fairway-cpp " FAIRWAY_VERSION);
      });
  const bool in_time = welcomed.WaitFor(options.timeout);
  if (in_time && welcomed.Get().ok()) return connection;
  Status status = in_time ? welcomed.Get() : Status(StatusCode::kUnavailable, "no answer in time");
  connection->Close();
  if (status.code() == StatusCode::kUnavailable) {
    const absl::Status tls = ProbeController(address, texts->authorities, options.timeout);
    if (!tls.ok()) status = FromAbsl(tls);
  }
  if (status.code() == StatusCode::kUnimplemented)
    return Status(
        status.code(),
        fmt::format("the server at {} does not know the service fairway.v1.Client", address));
  return Status(status.code(), fmt::format("connecting to {}: {}", address, status.message()));
}

void Connection::Start(const std::string& address, const ClientTexts& texts) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection per session
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingAfterMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  stub_ = v1::Client::NewStub(grpc::CreateCustomChannel(
      address, ControllerCredentials(texts.authorities, texts.token), arguments));
  self_ = shared_from_this();
  stub_->async()->Session(&context_, this);
  AddHold();  // writes are started outside callbacks
  StartRead(&reading_);
  StartCall();
}

void Connection::Welcomed(const std::string& address, const v1::Welcome& welcome) {
  address_ = address;
  server_ = welcome.server();
  for (const v1::Slice& slice : welcome.slices()) {
    slices_.push_back({slice.name(),
                       slice.runtime(),
                       slice.platform_name(),
                       slice.platform_version(),
                       slice.device_kind(),
                       {slice.memory_kinds().begin(), slice.memory_kinds().end()},
                       {}});
  }
  for (const v1::VirtualDevice& device : welcome.devices()) {
    const int id = static_cast<int>(devices_.size());
    devices_.push_back({id, device.slice(), device.local_ordinal(), device.worker()});
    if (device.slice() >= 0 && device.slice() < welcome.slices_size())
      slices_[static_cast<size_t>(device.slice())].devices.push_back(id);
  }
}

Status Connection::WaitForRoom(std::unique_lock<std::mutex>& lock) {
  if (callbacks_running == 0) {
    changed_.wait(lock, [this] {
      const int most = uploads_.empty() ? kMostUnsentRequests : kMostRequestsBesideUploads;
      return !status_.ok() ||
             (building_.requests_size() < most && unsent_bytes_ < kMostUnsentBytes);
    });
  }
  return status_;
}

void Connection::Ask(OnAnswer on_answer, const Fill& fill) {
  std::unique_lock lock(mu_);
  if (const Status status = WaitForRoom(lock); !status.ok()) {
    lock.unlock();
    on_answer(ErrorAnswer(status));
    return;
  }
  const uint64_t id = next_id_++;
  v1::Request* request = building_.add_requests();
  fill(*request);
  request->set_id(id);
  unsent_bytes_ += request->ByteSizeLong();
  waiting_.emplace(id, std::move(on_answer));
  StartNext();
}

void Connection::Send(std::vector<Upload> uploads) {
  std::unique_lock lock(mu_);
  if (callbacks_running == 0)
    changed_.wait(lock, [this] { return ended_ || upload_bytes_ < kMostUploadBytes; });
  if (ended_) return;
  for (Upload& upload : uploads) {
    upload_bytes_ += upload.size;
    uploads_.push_back(std::move(upload));
  }
  StartNext();
}

void Connection::ReleaseArray(uint64_t handle) {
  const std::lock_guard lock(mu_);
  if (ended_) return;
  released_arrays_.push_back(handle);
  StartNext();
}

void Connection::ReleaseExecutable(uint64_t handle) {
  const std::lock_guard lock(mu_);
  if (ended_) return;
  released_executables_.push_back(handle);
  StartNext();
}

void Connection::StartNext() {
  if (writing_ || ended_) return;
  if (building_.requests_size() == 0 && released_arrays_.empty() && released_executables_.empty() &&
      uploads_.empty())
    return;
  message_.Clear();
  // Or a message with bytes only.
  if (announced_ == 0 || sent_beside_uploads_ < kMostRequestsBesideUploads) {
    message_.Swap(&building_);
    unsent_bytes_ = 0;
    if (announced_ == 0) sent_beside_uploads_ = 0;
    sent_beside_uploads_ += message_.requests_size();
    announced_ = uploads_.size();
    // They go after all requests that may still name them.
    if (!released_arrays_.empty() || !released_executables_.empty()) {
      v1::Release* release = message_.add_requests()->mutable_release();
      TakeFirst(&released_arrays_, release->mutable_arrays());
      TakeFirst(&released_executables_, release->mutable_executables());
    }
  }
  if (!uploads_.empty()) {
    Upload upload = std::move(uploads_.front());
    uploads_.pop_front();
    v1::Chunk* chunk = message_.add_requests()->mutable_chunk();
    const size_t length = std::min(kChunkBytes, upload.size - upload.sent);
    chunk->set_upload(upload.number);
    chunk->set_data(upload.data + upload.sent, length);
    upload.sent += length;
    upload_bytes_ -= length;
    if (upload.sent < upload.size) {
      uploads_.push_front(std::move(upload));
    } else {
      --announced_;
      sent_.push_back(std::move(upload.keep_alive));
    }
  }
  writing_ = true;
  StartWrite(&message_);
}

void Connection::OnWriteDone(bool ok) {
  const InCallback in_callback;
  // destroyed without the lock, because it is foreign code
  std::vector<std::shared_ptr<const void>> sent;
  const std::lock_guard lock(mu_);
  sent.swap(sent_);
  writing_ = false;
  if (!ok) return;  // the stream is broken; OnDone has the reason
  StartNext();
  changed_.notify_all();
}

void Connection::OnReadDone(bool ok) {
  const InCallback in_callback;
  if (!ok) {
    {
      const std::lock_guard lock(mu_);
      ended_ = true;
    }
    return RemoveHold();
  }
  for (const v1::Answer& answer : reading_.answers()) Dispatch(answer);
  reading_.Clear();
  StartRead(&reading_);
}

void Connection::Dispatch(const v1::Answer& answer) {
  OnAnswer on_answer;
  {
    const std::lock_guard lock(mu_);
    const auto it = waiting_.find(answer.id());
    if (it == waiting_.end()) return;  // a late piece of a fetch that has failed
    on_answer = std::move(it->second);
    waiting_.erase(it);
  }
  if (on_answer(answer)) return;
  const std::lock_guard lock(mu_);
  waiting_.emplace(answer.id(), std::move(on_answer));
}

void Connection::OnDone(const grpc::Status& status) {
  const InCallback in_callback;
  std::unordered_map<uint64_t, OnAnswer> waiting;
  std::deque<Upload> uploads;
  {
    const std::lock_guard lock(mu_);
    ended_ = true;
    status_ = closed_ ? ClosedStatus() : WhyItEnded(status);
    waiting.swap(waiting_);
    uploads.swap(uploads_);
  }
  const v1::Answer end = ErrorAnswer(this->status());
  for (const auto& [id, on_answer] : waiting) on_answer(end);
  waiting.clear();
  uploads.clear();  // Foreign code too, and Close returns after it.
  std::shared_ptr<Connection> self;
  {
    const std::lock_guard lock(mu_);
    done_ = true;
    changed_.notify_all();
    if (nobody_waits_) self = std::move(self_);
  }
  if (self != nullptr) KeepInsteadOfAnother(std::move(self));
}

Status Connection::WhyItEnded(const grpc::Status& status) const {
  const StatusCode code =
      status.ok() ? StatusCode::kUnavailable : static_cast<StatusCode>(status.error_code());
  const std::string text =
      status.ok() ? "the controller ended the session" : status.error_message();
  if (address_.empty() || code != StatusCode::kUnavailable) return {code, text};
  return {code, fmt::format("the connection to the controller at {} was lost: {}; a session does "
                            "not come back: when the controller is up (fairway status), start the "
                            "program again",
                            address_, text)};
}

Status Connection::status() {
  const std::lock_guard lock(mu_);
  return status_;
}

void Connection::Close() {
  std::shared_ptr<Connection> self;  // dropped without the lock
  std::unique_lock lock(mu_);
  closed_ = true;
  if (!done_) context_.TryCancel();
  nobody_waits_ = callbacks_running > 0;
  if (!nobody_waits_) changed_.wait(lock, [this] { return done_; });
  if (done_) self = std::move(self_);
}

}  // namespace fairway::client
