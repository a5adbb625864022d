// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/grpc_service.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <sys/random.h>

#include <grpcpp/grpcpp.h>

#include "controller/access/one_message.h"
#include "controller/ifrt/session_stream.h"
#include "controller/ifrt/version.h"
#include "controller/sessions/open_streams.h"
#include "controller/sessions/upload_buffer.h"
#include "ifrt/service.grpc.pb.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

namespace proxy = xla::ifrt::proxy;

constexpr int kMaxReceiveBytes = 512 << 20;
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr char kSessionKey[] = "ifrt-proxy-grpc-ifrt-session-metadata-bin";
constexpr std::string_view kService = "xla.ifrt.proxy.GrpcIfrtService";
// As in client/cli/fetches_ahead.h: `fairway gateway` looks a result up right behind the request
// that fetches it, so the look-up may come first.
constexpr char kEarlyKey[] = "fairway-early";
constexpr char kStoreKey[] = "ifrt-proxy-grpc-host-buffer-store-metadata-bin";

template <typename Proto>
std::optional<Proto> FromMetadata(const grpc::CallbackServerContext& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  Proto proto;
  if (it == context.client_metadata().end() ||
      !proto.ParseFromArray(it->second.data(), static_cast<int>(it->second.size())))
    return std::nullopt;
  return proto;
}

// The value of a string attribute.
std::string TextOf(const std::map<std::string, AttributeValue>& attributes, const char* name,
                   std::string_view otherwise) {
  const auto it = attributes.find(name);
  const auto* text = it == attributes.end() ? nullptr : std::get_if<std::string>(&it->second);
  return text != nullptr ? *text : std::string(otherwise);
}

absl::Status ShuttingDown() { return absl::UnavailableError("the controller is shutting down"); }

absl::Status NoSuchSession() { return absl::NotFoundError("there is no such session"); }

// Receives one host buffer. Destroys itself in OnDone.
class StoreCall final : public grpc::ServerReadReactor<proxy::GrpcHostBufferStoreRequest> {
 public:
  using Deliver = std::function<void(absl::StatusOr<std::shared_ptr<const Blob>>)>;

  // `disk` writes the bytes that do not stay in memory, on behalf of `session`.
  StoreCall(std::unique_ptr<UploadBuffer> buffer, std::shared_ptr<BlockingPool> disk,
            uint64_t session, std::shared_ptr<HeldCall> held, Deliver deliver)
      : buffer_(std::move(buffer)),
        disk_(std::move(disk)),
        session_(session),
        held_(std::move(held)),
        deliver_(std::move(deliver)) {
    StartRead(&chunk_);
    held_->Watch();
  }
  explicit StoreCall(const grpc::Status& refusal) { Finish(refusal); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      deliver_(buffer_->Finish());
      return Finish(grpc::Status::OK);
    }
    // A slow disk must not hold up gRPC's threads.
    if (buffer_->GoesToFile(chunk_.data())) return disk_->Run([this] { TakeChunk(); }, session_);
    TakeChunk();
  }
  void OnDone() override {
    if (held_ != nullptr) held_->Done();
    delete this;
  }

 private:
  void TakeChunk() {
    buffer_->Append(chunk_.data());
    held_->Took(chunk_.ByteSizeLong());
    if (!buffer_->overrun()) return StartRead(&chunk_);
    const auto failed = buffer_->Finish();
    deliver_(failed);
    Finish(ToGrpc(failed.status()));
  }

  std::unique_ptr<UploadBuffer> buffer_;
  std::shared_ptr<BlockingPool> disk_;
  uint64_t session_ = 0;
  std::shared_ptr<HeldCall> held_;  // nullptr: it was refused
  Deliver deliver_;
  proxy::GrpcHostBufferStoreRequest chunk_;
};

// Sends one host buffer. Lives until OnDone, and while the store refers to it.
class LookupCall final : public OneMessageCall<proxy::GrpcHostBufferLookupRequest,
                                               proxy::GrpcHostBufferLookupResponse> {
 public:
  using Look = std::function<void(const std::shared_ptr<LookupCall>&)>;

  // `look` has Deliver called.
  static LookupCall* Make(AdmittedCall admitted, Look look) {
    const auto call = std::make_shared<LookupCall>(std::move(admitted), std::move(look));
    call->self_ = call;
    return call.get();
  }
  LookupCall(AdmittedCall admitted, Look look)
      : OneMessageCall(std::move(admitted)), look_(std::move(look)) {}

  void Deliver(absl::StatusOr<std::shared_ptr<const Blob>> bytes) {
    {
      const std::lock_guard lock(mu_);
      if (decided_) return;
      decided_ = true;
    }
    if (!bytes.ok()) return Finish(ToGrpc(bytes.status()));
    bytes_ = *std::move(bytes);
    WriteNext();  // one message at least, even for an empty buffer
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    WriteNext();
  }
  void OnCancel() override { Deliver(absl::CancelledError("the client gave up")); }
  void OnDone() override {
    held().Done();
    self_.reset();
  }

 private:
  void Begin() override { look_(self_); }
  void End(const absl::Status& status) override { Deliver(status); }
  void WriteNext() {
    const std::string_view rest = bytes_->view().substr(offset_, kChunkBytes);
    offset_ += rest.size();
    chunk_.set_data(rest.data(), rest.size());
    if (offset_ < bytes_->size()) return StartWrite(&chunk_);
    // The client waits for the end of the call, so it goes in one packet with the last bytes.
    StartWriteAndFinish(&chunk_, {}, grpc::Status::OK);
  }

  const Look look_;
  std::shared_ptr<LookupCall> self_;
  std::mutex mu_;
  bool decided_ = false;  // guarded by mu_: bytes, error or end
  std::shared_ptr<const Blob> bytes_;
  size_t offset_ = 0;
  proxy::GrpcHostBufferLookupResponse chunk_;
};

}  // namespace

// Streams have gRPC's own handlers; the other methods are OneMessageService's.
using StreamsService = proxy::GrpcIfrtService::WithCallbackMethod_IfrtSession<
    proxy::GrpcIfrtService::WithCallbackMethod_HostBufferStore<proxy::GrpcIfrtService::Service>>;

class IfrtGrpcService::Impl final : public OneMessageService<StreamsService> {
 public:
  Impl(EventLoop* loop, IfrtDoor* door, IfrtGrpcOptions options)
      : OneMessageService(options.access),
        loop_(loop),
        door_(door),
        options_(std::move(options)),
        pool_(std::make_shared<BlockingPool>("ifrt-copy", options_.copy_threads)),
        disk_(std::make_shared<BlockingPool>("ifrt-spool", 2)),
        streams_(std::make_shared<OpenStreams>()) {
    ServeOthers();
  }

  grpc::ServerBidiReactor<proxy::IfrtRequest, proxy::IfrtResponse>* IfrtSession(
      grpc::CallbackServerContext* context) override {
    const Verdict verdict = Judge(*context, "IfrtSession");
    if (!verdict.status.ok()) {
      return options_.access
          .RefuseStream<grpc::ServerBidiReactor<proxy::IfrtRequest, proxy::IfrtResponse>>(verdict);
    }
    const std::string& tenant = verdict.caller.tenant;  // empty: what the client says counts
    const std::shared_ptr<HeldCall> held = options_.access.Hold(verdict.caller, context);
    uint64_t id = 0;
    while (id == 0) {
      if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
    }
    const auto metadata = FromMetadata<proxy::GrpcIfrtSessionMetadata>(*context, kSessionKey);
    std::map<std::string, AttributeValue> data;
    if (metadata.has_value()) data = AttributesFromProto(metadata->initialization_data());
    auto stream = std::make_shared<IfrtStream>(
        id, tenant.empty() ? ValidUtf8(TextOf(data, "tenant", "default")) : tenant,
        CallbackChannel(TextOf(data, kChannelAttribute, ""), tenant), door_,
        IfrtStream::Context{loop_, pool_, id,
                            [streams = streams_, id, held] {
                              held->Done();
                              streams->Remove(id);
                            },
                            "IfrtRequest", garbage_, options_.messages,
                            [held](size_t bytes) { held->Took(bytes); }});
    const bool open = streams_->Add(id, OwnerOf(verdict, *context), stream, options_.spool.Share());
    absl::Status refusal;
    if (!open) refusal = ShuttingDown();
    if (!metadata.has_value()) {
      refusal = InvalidArgument("the call carries no readable {}", kSessionKey);
    } else if (refusal.ok()) {
      refusal = ChooseVersion(metadata->version(), metadata->version()).status();
    }
    if (refusal.ok()) {
      stream->Start();
      held->Watch(stream);
    } else {
      stream->Refuse(refusal);
    }
    return stream.get();
  }

  grpc::ServerReadReactor<proxy::GrpcHostBufferStoreRequest>* HostBufferStore(
      grpc::CallbackServerContext* context, proxy::GrpcHostBufferStoreResponse*) override {
    const Verdict verdict = Judge(*context, "HostBufferStore");
    if (!verdict.status.ok()) {
      return options_.access
          .RefuseStream<grpc::ServerReadReactor<proxy::GrpcHostBufferStoreRequest>>(verdict);
    }
    const auto metadata = FromMetadata<proxy::GrpcHostBufferStoreMetadata>(*context, kStoreKey);
    if (!metadata.has_value())
      return new StoreCall(
          {grpc::StatusCode::INVALID_ARGUMENT, "the call carries no readable store metadata"});
    const uint64_t id = metadata->session_id(), handle = metadata->handle();
    std::optional<Spool> spool = streams_->SpoolOf(id, OwnerOf(verdict, *context));
    if (!spool.has_value()) return new StoreCall(ToGrpc(NoSuchSession()));
    return new StoreCall(std::make_unique<UploadBuffer>(metadata->buffer_size(), *std::move(spool)),
                         disk_, id, options_.access.Hold(verdict.caller, context),
                         [loop = loop_, door = door_, id,
                          handle](absl::StatusOr<std::shared_ptr<const Blob>> bytes) {
                           loop->Post("ifrt stored", [door, id, handle, bytes = std::move(bytes)] {
                             fairway::IfrtSession* session = door->Find(id);
                             if (session != nullptr) session->host_buffers().Store(handle, bytes);
                           });
                         });
  }

  void Shutdown(std::chrono::milliseconds grace) { streams_->EndAll(ShuttingDown(), grace); }
  size_t num_streams() const { return streams_->size(); }

 private:
  void ServeOthers() {
    const std::string service = fmt::format("{}.", kService);
    ServeUnary<proxy::GrpcGetVersionRequest, proxy::GrpcGetVersionResponse>(
        service + "GetVersion", [](auto* call) {
          const auto version =
              ChooseVersion(call->request().min_version(), call->request().max_version());
          if (version.ok()) *call->response().mutable_version() = *version;
          call->Answer(version.status());
        });
    Serve<LookupCall>(service + "HostBufferLookup", [this](AdmittedCall admitted) {
      const bool early = admitted.context->client_metadata().contains(kEarlyKey);
      return LookupCall::Make(std::move(admitted),
                              [this, early](const auto& call) { Look(call, early); });
    });
    ServeUnary<proxy::GrpcHostBufferDeleteRequest, proxy::GrpcHostBufferDeleteResponse>(
        service + "HostBufferDelete", [this](auto* call) {
          const uint64_t id = call->request().session_id(), handle = call->request().handle();
          const bool owned = streams_->Owns(id, call->owner());
          loop_->Post("ifrt delete", [door = door_, id, handle, owned, call] {
            fairway::IfrtSession* session = owned ? door->Find(id) : nullptr;
            call->Answer(session == nullptr ? NoSuchSession()
                                            : session->host_buffers().Delete(handle));
          });
        });
    ServeUnary<proxy::GrpcHostBufferReadFromDiskRequest, proxy::GrpcHostBufferReadFromDiskResponse>(
        service + "HostBufferReadFromDisk", [](auto* call) {
          call->Answer(absl::UnimplementedError("HostBufferReadFromDisk is not served by Fairway"));
        });
  }
  void Look(const std::shared_ptr<LookupCall>& call, bool early) {
    const uint64_t id = call->request().session_id(), handle = call->request().handle();
    const bool owned = streams_->Owns(id, call->owner());
    loop_->Post("ifrt lookup", [door = door_, id, handle, owned, early, call] {
      fairway::IfrtSession* session = owned ? door->Find(id) : nullptr;
      if (session == nullptr) return call->Deliver(NoSuchSession());
      const auto deliver = [call](absl::StatusOr<std::shared_ptr<const Blob>> bytes) {
        call->Deliver(std::move(bytes));
      };
      if (early) {
        session->host_buffers().LookupEarly(handle, deliver);
      } else {
        session->host_buffers().Lookup(handle, deliver);
      }
    });
  }
  Verdict Judge(const grpc::CallbackServerContext& context, std::string_view method) const {
    return options_.access.Judge(context, fmt::format("{}.{}", kService, method));
  }
  std::string OwnerOf(const Verdict& verdict, const grpc::CallbackServerContext& context) const {
    return options_.access.OwnerOf(verdict.caller, context);
  }

  EventLoop* const loop_;
  IfrtDoor* const door_;
  const IfrtGrpcOptions options_;
  const std::shared_ptr<BlockingPool> pool_;
  const std::shared_ptr<BlockingPool> garbage_ = std::make_shared<BlockingPool>("ifrt-garbage", 1);
  const std::shared_ptr<BlockingPool> disk_;
  const std::shared_ptr<OpenStreams> streams_;
};

IfrtGrpcService::IfrtGrpcService(EventLoop* loop, IfrtDoor* door, IfrtGrpcOptions options)
    : impl_(std::make_unique<Impl>(loop, door, std::move(options))) {}
IfrtGrpcService::~IfrtGrpcService() = default;

void IfrtGrpcService::Register(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder->RegisterService(impl_.get());
}

void IfrtGrpcService::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }
size_t IfrtGrpcService::num_streams() const { return impl_->num_streams(); }

}  // namespace fairway
