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

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/grpcpp.h>

#include "controller/access/gated_methods.h"
#include "controller/ifrt/session_stream.h"
#include "controller/ifrt/version.h"
#include "controller/sessions/open_streams.h"
#include "controller/sessions/upload_buffer.h"
#include "ifrt/service.pb.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

namespace proxy = xla::ifrt::proxy;

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr char kSessionKey[] = "ifrt-proxy-grpc-ifrt-session-metadata-bin";
constexpr std::string_view kService = "xla.ifrt.proxy.GrpcIfrtService";
// As in client/cli/fetches_ahead.h: `fairway gateway` looks a result up right behind the request
// that fetches it, so the look-up may come first.
constexpr char kEarlyKey[] = "fairway-early";
constexpr char kStoreKey[] = "ifrt-proxy-grpc-host-buffer-store-metadata-bin";

template <typename Proto>
std::optional<Proto> FromMetadata(const grpc::ServerContextBase& context, const char* key) {
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
class StoreCall final : public RpcCall {
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
  void OnReadDone(bool ok) override {
    if (!ok) {
      deliver_(buffer_->Finish());
      return StartWriteAndFinish(response_, absl::OkStatus());
    }
    // A slow disk must not hold up gRPC's threads.
    if (buffer_->GoesToFile(chunk_.data())) return disk_->Run([this] { TakeChunk(); }, session_);
    TakeChunk();
  }
  void OnDone() override {
    held_->Done();
    delete this;
  }

 private:
  void TakeChunk() {
    buffer_->Append(chunk_.data());
    held_->Took(chunk_.ByteSizeLong());
    if (!buffer_->overrun()) return StartRead(&chunk_);
    const auto failed = buffer_->Finish();
    deliver_(failed);
    Finish(failed.status());
  }

  std::unique_ptr<UploadBuffer> buffer_;
  std::shared_ptr<BlockingPool> disk_;
  uint64_t session_ = 0;
  std::shared_ptr<HeldCall> held_;
  Deliver deliver_;
  proxy::GrpcHostBufferStoreRequest chunk_;
  const proxy::GrpcHostBufferStoreResponse response_;
};

// A GrpcHostBufferLookupResponse whose data are these bytes of `blob`. They are copied only where
// that is cheaper than to keep the blob.
grpc::ByteBuffer ChunkOf(const std::shared_ptr<const Blob>& blob, std::string_view bytes) {
  constexpr size_t kCopied = 4096;
  std::string head;
  {
    google::protobuf::io::StringOutputStream to(&head);
    google::protobuf::io::CodedOutputStream out(&to);
    using google::protobuf::internal::WireFormatLite;
    out.WriteTag(WireFormatLite::MakeTag(proxy::GrpcHostBufferLookupResponse::kDataFieldNumber,
                                         WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint32(static_cast<uint32_t>(bytes.size()));
  }
  if (bytes.size() <= kCopied) {
    const grpc::Slice slice(head.append(bytes));
    return {&slice, 1};
  }
  using Kept = std::shared_ptr<const Blob>;
  const grpc::Slice slices[] = {
      grpc::Slice(head), grpc::Slice(
                             const_cast<char*>(bytes.data()), bytes.size(),
                             [](void* kept) { delete static_cast<Kept*>(kept); }, new Kept(blob))};
  return {slices, 2};
}

// Sends one host buffer. Lives until OnDone, and while the store refers to it.
class LookupCall final : public OneMessageCall<proxy::GrpcHostBufferLookupRequest> {
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
    if (!bytes.ok()) return Finish(bytes.status());
    bytes_ = *std::move(bytes);
    WriteNext();  // one message at least, even for an empty buffer
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(absl::CancelledError());
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
    const std::string_view next = bytes_->view().substr(offset_, kChunkBytes);
    offset_ += next.size();
    const grpc::ByteBuffer chunk = ChunkOf(bytes_, next);
    if (offset_ < bytes_->size()) return StartWrite(chunk);
    // The client waits for the end of the call, so it goes in one packet with the last bytes.
    StartWriteAndFinish(chunk, absl::OkStatus());
  }

  const Look look_;
  std::shared_ptr<LookupCall> self_;
  std::mutex mu_;
  bool decided_ = false;  // guarded by mu_: bytes, error or end
  std::shared_ptr<const Blob> bytes_;
  size_t offset_ = 0;
};

}  // namespace

class IfrtGrpcService::Impl {
 public:
  Impl(EventLoop* loop, IfrtDoor* door, IfrtGrpcOptions options)
      : methods_(options.access),
        loop_(loop),
        door_(door),
        options_(std::move(options)),
        pool_(std::make_shared<BlockingPool>("ifrt-copy", options_.copy_threads)),
        disk_(std::make_shared<BlockingPool>("ifrt-spool", 2)),
        streams_(std::make_shared<OpenStreams>()) {
    const std::string service = fmt::format("{}.", kService);
    methods_.Add(service + "IfrtSession",
                 [this](const AdmittedCall& admitted) { return Session(admitted); });
    methods_.Add(service + "HostBufferStore",
                 [this](const AdmittedCall& admitted) { return Store(admitted); });
    AddOthers(service);
  }

  const RpcMethods& methods() const { return methods_.all(); }
  void Shutdown(std::chrono::milliseconds grace) { streams_->EndAll(ShuttingDown(), grace); }
  size_t num_streams() const { return streams_->size(); }

 private:
  RpcCall* Session(const AdmittedCall& admitted) {
    const std::string& tenant = admitted.caller.tenant;  // empty: what the client says counts
    const std::shared_ptr<HeldCall>& held = admitted.held;
    uint64_t id = 0;
    while (id == 0) {
      if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
    }
    const auto metadata =
        FromMetadata<proxy::GrpcIfrtSessionMetadata>(*admitted.context, kSessionKey);
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
    const bool open = streams_->Add(id, admitted.owner, stream, options_.spool.Share());
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

  RpcCall* Store(const AdmittedCall& admitted) {
    const auto metadata =
        FromMetadata<proxy::GrpcHostBufferStoreMetadata>(*admitted.context, kStoreKey);
    if (!metadata.has_value())
      return admitted.Refuse(InvalidArgument("the call carries no readable store metadata"));
    const uint64_t id = metadata->session_id(), handle = metadata->handle();
    std::optional<Spool> spool = streams_->SpoolOf(id, admitted.owner);
    if (!spool.has_value()) return admitted.Refuse(NoSuchSession());
    return new StoreCall(std::make_unique<UploadBuffer>(metadata->buffer_size(), *std::move(spool)),
                         disk_, id, admitted.held,
                         [loop = loop_, door = door_, id,
                          handle](absl::StatusOr<std::shared_ptr<const Blob>> bytes) {
                           loop->Post("ifrt stored", [door, id, handle, bytes = std::move(bytes)] {
                             fairway::IfrtSession* session = door->Find(id);
                             if (session != nullptr) session->host_buffers().Store(handle, bytes);
                           });
                         });
  }

  void AddOthers(const std::string& service) {
    methods_.AddUnary<proxy::GrpcGetVersionRequest, proxy::GrpcGetVersionResponse>(
        service + "GetVersion", [this](auto* call) {
          const auto version =
              ChooseVersion(call->request().min_version(), call->request().max_version());
          if (!version.ok()) return call->Answer(version.status());
          *call->response().mutable_version() = *version;
          // jaxlib opens a session next, and would not tell its user why that was refused.
          loop_->Post("ifrt version", [door = door_, call] { call->Answer(door->MayOpen()); });
        });
    methods_.AddOneMessage<LookupCall>(service + "HostBufferLookup", [this](AdmittedCall admitted) {
      const bool early = admitted.context->client_metadata().contains(kEarlyKey);
      return LookupCall::Make(std::move(admitted),
                              [this, early](const auto& call) { Look(call, early); });
    });
    methods_.AddUnary<proxy::GrpcHostBufferDeleteRequest, proxy::GrpcHostBufferDeleteResponse>(
        service + "HostBufferDelete", [this](auto* call) {
          const uint64_t id = call->request().session_id(), handle = call->request().handle();
          const bool owned = streams_->Owns(id, call->owner());
          loop_->Post("ifrt delete", [door = door_, id, handle, owned, call] {
            fairway::IfrtSession* session = owned ? door->Find(id) : nullptr;
            call->Answer(session == nullptr ? NoSuchSession()
                                            : session->host_buffers().Delete(handle));
          });
        });
    methods_.AddUnary<proxy::GrpcHostBufferReadFromDiskRequest,
                      proxy::GrpcHostBufferReadFromDiskResponse>(
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

  GatedMethods methods_;
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

const RpcMethods& IfrtGrpcService::methods() const { return impl_->methods(); }

void IfrtGrpcService::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }
size_t IfrtGrpcService::num_streams() const { return impl_->num_streams(); }

}  // namespace fairway
