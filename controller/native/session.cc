// SPDX-License-Identifier: Apache-2.0
// The dispatch of requests, answers, the beginning and the end.
#include "controller/native/session.h"

#include <utility>

#include "base/utf8.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/sessions.h"
#include "controller/sessions/handle_lists.h"
#include "wire/client_values.h"

namespace fairway {
namespace {

// Describes slices and devices in the order of `devices`, which is that of the slices.
void Describe(const std::vector<VirtualDevice>& devices, v1::Welcome* welcome) {
  for (const VirtualDevice& device : devices) {
    if (device.slice_index >= welcome->slices_size()) {
      v1::Slice* slice = welcome->add_slices();
      slice->set_name(ValidUtf8(device.island));
      slice->set_runtime(ValidUtf8(device.runtime));
      slice->set_platform_name(ValidUtf8(device.platform_name));
      slice->set_platform_version(ValidUtf8(device.platform_version));
      slice->set_device_kind(ValidUtf8(device.device_kind));
      for (const std::string& kind : device.memory_kinds) slice->add_memory_kinds(ValidUtf8(kind));
    }
    v1::VirtualDevice* out = welcome->add_devices();
    out->set_slice(device.slice_index);
    out->set_local_ordinal(device.local_ordinal);
    out->set_worker(ValidUtf8(device.worker));
  }
}

}  // namespace

NativeSession::NativeSession(SessionId session, Cluster* cluster, CompileService* compiler,
                             NativeShell* shell, const NativeSessionOptions& options)
    : session_(session),
      cluster_(cluster),
      compiler_(compiler),
      programs_(
          cluster, compiler, session,
          [shell](auto work, auto then) { shell->RunOffLoop(std::move(work), std::move(then)); }),
      shell_(shell),
      options_(options),
      errors_(cluster, session),
      compiling_(options_.caps.compiling),
      alive_(std::make_shared<bool>(true)) {
  cluster_->sessions().SetSink(session_, this);
}

NativeSession::~NativeSession() {
  *alive_ = false;
  cluster_->sessions().SetSink(session_, nullptr);
}

void NativeSession::Answer(uint64_t id, const absl::Status& status) {
  if (id == 0) return;
  v1::Answer answer;
  answer.set_id(id);
  if (!status.ok()) ErrorFromStatus(status, answer.mutable_error());
  shell_->Send(std::move(answer));
}

void NativeSession::Closes() {
  struct Rest {
    std::shared_ptr<void> uploads;
    std::map<uint64_t, Callable> callables;
    std::map<uint64_t, uint64_t> watches;
    std::map<uint64_t, Fetching> fetches;
  };
  const size_t parts = uploads_.size() + callables_.size() + watches_.size() + fetches_.size();
  auto rest = std::make_shared<Rest>(
      Rest{uploads_.End(), std::move(callables_), std::move(watches_), std::move(fetches_)});
  GiveUp(*shell_, std::move(rest), parts);
}

void NativeSession::Handle(v1::Request& request) {
  if (!refusal_.ok()) return Answer(request.id(), refusal_);
  bool answered = false;
  const absl::Status status = Dispatch(request, &answered);
  if (!status.ok() || !answered) Answer(request.id(), status);
}

// Sets *answered if, on success, the request was answered or will be.
absl::Status NativeSession::Dispatch(v1::Request& request, bool* answered) {
  FAIRWAY_RETURN_IF_ERROR(CheckHandleLists(request));
  switch (request.request_case()) {
    case v1::Request::kHello:
      *answered = true;
      return SayHello(request.id(), request.hello());
    case v1::Request::kPing:
      return absl::OkStatus();
    case v1::Request::kPut:
      return Put(*request.mutable_put());
    case v1::Request::kChunk:  // its bytes come through Uploaded
      *answered = true;
      return absl::OkStatus();
    case v1::Request::kMakeError:
      return MakeError(request.make_error());
    case v1::Request::kCompile:
      *answered = true;
      Compile(request.id(), *request.mutable_compile());
      return absl::OkStatus();
    case v1::Request::kBindProgram:
      *answered = true;
      BindProgram(request.id(), *request.mutable_bind_program());
      return absl::OkStatus();
    case v1::Request::kCall:
      *answered = true;
      Call(request.id(), request.call());
      return absl::OkStatus();
    case v1::Request::kCopy:
      *answered = true;
      Copy(request.id(), request.copy());
      return absl::OkStatus();
    case v1::Request::kReshard:
      *answered = true;
      Reshard(request.id(), *request.mutable_reshard());
      return absl::OkStatus();
    case v1::Request::kAssemble:
      return Assemble(request.assemble());
    case v1::Request::kDisassemble:
      return Disassemble(request.disassemble());
    case v1::Request::kRelease:
      *answered = true;
      Release(request.id(), request.release());
      return absl::OkStatus();
    case v1::Request::kDelete:
      *answered = true;
      cluster_->arrays().Delete(session_, ToVector(request.delete_().arrays()),
                                Ended(request.id()));
      return absl::OkStatus();
    case v1::Request::kWatch:
      *answered = true;
      Watch(request.id(), ToVector(request.watch().arrays()));
      return absl::OkStatus();
    case v1::Request::kFetch:
      *answered = true;
      return Fetch(request.id(), request.fetch());
    case v1::Request::REQUEST_NOT_SET:
      break;
  }
  return Error(absl::StatusCode::kUnimplemented, "a request of a kind that Fairway does not know");
}

absl::Status NativeSession::SayHello(uint64_t id, const v1::Hello& hello) {
  if (greeted_) return InvalidArgument("hello was said before");
  if (hello.min_version() > kMaxClientProtocol || hello.max_version() < kMinClientProtocol)
    return Error(absl::StatusCode::kFailedPrecondition,
                 "this client speaks versions {} to {} of fairway.v1.Client, {} speaks {} to {}",
                 hello.min_version(), hello.max_version(), options_.server, kMinClientProtocol,
                 kMaxClientProtocol);
  greeted_ = true;
  v1::Answer answer;
  answer.set_id(id);
  v1::Welcome* welcome = answer.mutable_welcome();
  welcome->set_version(std::min(hello.max_version(), kMaxClientProtocol));
  welcome->set_server(options_.server);
  Describe(devices(), welcome);
  if (id != 0) shell_->Send(std::move(answer));
  return absl::OkStatus();
}

void NativeSession::Release(uint64_t id, const v1::Release& release) {
  std::vector<uint64_t> arrays = ToVector(release.arrays());
  std::vector<uint64_t> executables = ToVector(release.executables());
  const auto rest = [this, id, executables = std::move(executables)](const absl::Status& arrays) {
    if (executables.empty()) return Answer(id, arrays);
    cluster_->executables().Release(
        session_, executables,
        [this, id, arrays](const absl::Status& released) {
          Answer(id, arrays.ok() ? released : arrays);
        },
        [this](uint64_t handle) { callables_.erase(handle); });
  };
  if (arrays.empty()) return rest(absl::OkStatus());
  cluster_->arrays().Destruct(session_, std::move(arrays), rest);
}

void NativeSession::Uploaded(uint64_t upload, absl::StatusOr<BytesRef> bytes) {
  uploads_.Store(upload, std::move(bytes));
}

void NativeSession::Refuse(const absl::Status& status) {
  refusal_ = status;
  while (!watches_.empty()) OnWatched(session_, watches_.rbegin()->first, status);
  while (!fetches_.empty()) OnFetched(session_, fetches_.rbegin()->first, status);
}

bool NativeSession::MayRead() const {
  return options_.caps.MayRead(cluster_->sessions().BacklogOf(session_), compiling_);
}

void NativeSession::OnWatched(SessionId, uint64_t token, absl::Status status) {
  const auto watch = watches_.extract(token);
  if (!watch.empty()) Answer(watch.mapped(), status);
}

void NativeSession::OnFetched(SessionId, uint64_t token, absl::StatusOr<BytesRef> bytes) {
  const auto fetch = fetches_.extract(token);
  if (fetch.empty()) return;
  const Fetching& fetching = fetch.mapped();
  if (*fetching.failed) return;
  if (bytes.ok()) return shell_->SendBytes(fetching.id, fetching.index, *std::move(bytes));
  *fetching.failed = true;
  Answer(fetching.id, bytes.status());
}

}  // namespace fairway
