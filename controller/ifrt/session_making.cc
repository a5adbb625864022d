// SPDX-License-Identifier: Apache-2.0
// MakeArraysFromHostBufferShards and MakeErrorArrays.
#include "controller/ifrt/making.h"

#include <deque>
#include <utility>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/ifrt/host_bytes.h"
#include "controller/sessions/handle_lists.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

struct CheckedBuffer {
  uint64_t handle = 0;
  StridedLayout layout;
};

// A checked array of a MakeArraysFromHostBufferShards request.
struct CheckedShards {
  ArraySpec spec;
  std::vector<CheckedBuffer> buffers;
  std::vector<int32_t> buffer_of_shard;
};

using ShardsSpec =
    xla::ifrt::proxy::MakeArraysFromHostBufferShardsRequest::MakeArraysFromHostBufferShardsSpec;

absl::StatusOr<CheckedShards> CheckShards(const ShardsSpec& proto) {
  CheckedShards out;
  FAIRWAY_ASSIGN_OR_RETURN(out.spec, ArraySpecFromProto(proto.array_spec()));
  FAIRWAY_RETURN_IF_ERROR(CheckHasBytes(out.spec.dtype));
  if (proto.addressable_shard_indices_size() != proto.host_buffers_size())
    return InvalidArgument("{} lists of shards for {} host buffers",
                           proto.addressable_shard_indices_size(), proto.host_buffers_size());
  const int num_shards = out.spec.sharding.num_shards();
  out.buffer_of_shard.assign(num_shards, -1);
  for (int b = 0; b < proto.host_buffers_size(); ++b) {
    const auto& buffer = proto.host_buffers(b);
    FAIRWAY_ASSIGN_OR_RETURN(const DType dtype, DTypeFromProto(buffer.dtype()));
    FAIRWAY_ASSIGN_OR_RETURN(const Shape shape, ShapeFromProto(buffer.shape()));
    if (dtype != out.spec.dtype)
      return InvalidArgument("host buffer {} is {}, the array {}", b, Name(dtype),
                             Name(out.spec.dtype));
    for (const int64_t shard : proto.addressable_shard_indices(b).indices()) {
      if (shard < 0 || shard >= num_shards)
        return InvalidArgument("host buffer for shard {} of {}", shard, num_shards);
      if (out.buffer_of_shard[shard] >= 0)
        return InvalidArgument("two host buffers for shard {}", shard);
      FAIRWAY_ASSIGN_OR_RETURN(const Shape expected, out.spec.sharding.ShardShape(
                                                         out.spec.shape, static_cast<int>(shard)));
      if (shape != expected)
        return InvalidArgument("host buffer {} is {}, shard {} is {}", b, ToString(dtype, shape),
                               shard, ToString(dtype, expected));
      out.buffer_of_shard[shard] = b;
    }
    FAIRWAY_ASSIGN_OR_RETURN(
        StridedLayout layout,
        CheckStrides(dtype, shape, StridesOf(buffer.has_byte_strides(), buffer.byte_strides())));
    out.buffers.push_back({buffer.host_buffer_handle(), std::move(layout)});
  }
  for (int i = 0; i < num_shards; ++i) {
    if (out.buffer_of_shard[i] < 0)
      return InvalidArgument("no host buffer for shard {} of {}", i, num_shards);
  }
  return out;
}

}  // namespace

// ---- how they go on

IfrtSession::Making::Making(IfrtSession& session, Call call, size_t arrays, const HandleList& asked)
    : s(session),
      call_(std::move(call)),
      arrays_(arrays),
      asked_(ToVector(asked)),
      response_(std::make_unique<Response>()) {
  if (!asked_.empty() && asked_.size() != arrays)
    status_ = InvalidArgument("{} handles for {} arrays", asked_.size(), arrays);
}

bool IfrtSession::Making::GoOn() {
  if (results_ == nullptr) {
    results_ = Results(*response_);
    results_->Reserve(static_cast<int>(arrays_));
  }
  size_t parts = 0;
  for (size_t i = 0; i < kArraysOfATurn && parts < kPartsOfATurn; ++i) {
    NextPhase();
    if (phase_ == Phase::kDone) break;
    parts += Parts(next_);
    Do(next_++);
  }
  NextPhase();
  if (phase_ == Phase::kDone) End();
  return phase_ == Phase::kDone;
}

void IfrtSession::Making::NextPhase() {
  const auto begin = [this](Phase phase) {
    phase_ = phase;
    next_ = 0;
  };
  while (true) {
    switch (phase_) {
      case Phase::kCheck:
      case Phase::kMake:
        if (!status_.ok()) {
          begin(Phase::kUndo);
          break;
        }
        if (next_ < arrays_) return;
        begin(phase_ == Phase::kCheck ? Phase::kMake : Phase::kFinish);
        break;
      case Phase::kUndo:
        if (next_ < made_) return;
        begin(Phase::kDrop);
        break;
      case Phase::kFinish:
      case Phase::kDrop:
        if (next_ < arrays_) return;
        begin(Phase::kDone);
        break;
      case Phase::kDone:
        return;
    }
  }
}

void IfrtSession::Making::Do(size_t i) {
  switch (phase_) {
    case Phase::kCheck:
      status_ = Check(i);
      return;
    case Phase::kMake: {
      const absl::StatusOr<uint64_t> made = Make(i, asked_.empty() ? 0 : asked_[i]);
      status_ = made.status();
      if (!made.ok()) return;
      ++made_;
      results_->Add(*made);
      return;
    }
    case Phase::kFinish:
      Finish(i);
      if (call_.context != nullptr) s.contexts_[results_->Get(static_cast<int>(i))] = call_.context;
      return;
    case Phase::kUndo:
      return Undo(i);
    case Phase::kDrop:
      return Drop(i);
    case Phase::kDone:
      return;
  }
}

void IfrtSession::Making::End() {
  if (!status_.ok()) (void)s.errors_.Poison(asked_, status_);
  s.Answer(std::move(call_), status_, std::move(response_));
}

void IfrtSession::BeginMaking(std::shared_ptr<Making> making) {
  making_ = std::move(making);
  MakeSome();
}

void IfrtSession::GoOn() {
  if (making_ != nullptr && !cluster_->sessions().Busy(session_)) MakeSome();
}

void IfrtSession::MakeSome() {
  if (!making_->GoOn()) return;
  const size_t arrays = making_->arrays();
  GiveUp(*shell_, std::exchange(making_, nullptr), arrays);
}

// ---- arrays of host buffers, by shard

class IfrtSession::MakingShards final : public Making {
 public:
  MakingShards(IfrtSession& session, Call call, ShardsRequest&& request)
      : Making(session, std::move(call), request.specs_size(), request.array_handles()),
        request_(std::move(request)) {}

 private:
  absl::Status Check(size_t i) override {
    FAIRWAY_ASSIGN_OR_RETURN(checked_.emplace_back(), CheckShards(spec(i)));
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Make(size_t i, uint64_t asked) override {
    FAIRWAY_ASSIGN_OR_RETURN(
        puts_.emplace_back(),
        s.cluster_->arrays().Put(s.session_, asked, checked_[i].spec, checked_[i].buffer_of_shard));
    return puts_[i].handle;
  }
  void Finish(size_t i) override {
    for (size_t b = 0; b < checked_[i].buffers.size(); ++b)
      s.TakeUpload(checked_[i].buffers[b].handle, puts_[i].upload, static_cast<int32_t>(b),
                   checked_[i].buffers[b].layout);
  }
  // All arrays are made or none, as upstream.
  void Undo(size_t i) override {
    for (size_t b = 0; b < checked_[i].buffers.size(); ++b)  // nothing else would end its node
      s.cluster_->arrays().ProvideUpload(puts_[i].upload, static_cast<int32_t>(b), status_);
    (void)s.cluster_->arrays().Destruct(s.session_, {puts_[i].handle});
  }
  void Drop(size_t i) override {
    for (const auto& buffer : spec(i).host_buffers())
      s.host_buffers_.Take(buffer.host_buffer_handle(), [](const HostBufferStore::Bytes&) {});
  }
  size_t Parts(size_t i) const override {
    return i < checked_.size() ? checked_[i].buffer_of_shard.size()
                               : static_cast<size_t>(spec(i).host_buffers_size());
  }
  HandleList* Results(Response& response) override {
    return response.mutable_make_arrays_from_host_buffer_shards_response()->mutable_array_handles();
  }
  const ShardsSpec& spec(size_t i) const { return request_.specs(static_cast<int>(i)); }

  const ShardsRequest request_;
  std::deque<CheckedShards> checked_;
  std::deque<Cluster::Arrays::PutResult> puts_;
};

void IfrtSession::MakeShards(Call call, ShardsRequest& request) {
  BeginMaking(std::make_shared<MakingShards>(*this, std::move(call), std::move(request)));
}

// ---- arrays that hold an error

class IfrtSession::MakingErrors final : public Making {
 public:
  MakingErrors(IfrtSession& session, Call call, ErrorsRequest&& request)
      : Making(session, std::move(call), request.array_specs_size(), request.array_handles()),
        request_(std::move(request)),
        error_(StatusFromProto(request_.error())) {
    if (error_.ok() && status_.ok()) status_ = InvalidArgument("error arrays of an OK status");
  }

 private:
  absl::Status Check(size_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Make(size_t i, uint64_t asked) override {
    FAIRWAY_ASSIGN_OR_RETURN(const ArraySpec spec,
                             ArraySpecFromProto(request_.array_specs(static_cast<int>(i))));
    return s.cluster_->arrays().MakeError(s.session_, asked, spec, error_);
  }
  size_t Parts(size_t) const override { return 1; }
  HandleList* Results(Response& response) override {
    return response.mutable_make_error_arrays_response()->mutable_array_handles();
  }

  const ErrorsRequest request_;
  const absl::Status error_;
};

void IfrtSession::MakeErrors(Call call, ErrorsRequest& request) {
  BeginMaking(std::make_shared<MakingErrors>(*this, std::move(call), std::move(request)));
}

}  // namespace fairway
