// SPDX-License-Identifier: Apache-2.0
// Requests about arrays.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/native/session.h"
#include "controller/sessions/handle_lists.h"
#include "wire/client_values.h"

namespace fairway {
namespace {

// A handle of 0 would make the core choose one.
absl::Status CheckHandles(const std::vector<uint64_t>& handles) {
  if (std::find(handles.begin(), handles.end(), uint64_t{0}) == handles.end())
    return absl::OkStatus();
  return InvalidArgument("0 is no handle");
}

absl::Status CheckResults(const std::vector<uint64_t>& in, const std::vector<uint64_t>& out) {
  if (in.size() != out.size())
    return InvalidArgument("{} arrays, but {} results", in.size(), out.size());
  return CheckHandles(out);
}

absl::StatusOr<CopySemantics> SemanticsFromProto(v1::CopySemantics semantics) {
  switch (semantics) {
    case v1::COPY_SEMANTICS_ALWAYS_COPY:
      return CopySemantics::kAlwaysCopy;
    case v1::COPY_SEMANTICS_REUSE:
      return CopySemantics::kReuseInput;
    case v1::COPY_SEMANTICS_DONATE:
      return CopySemantics::kDonateInput;
    default:
      return InvalidArgument("copy semantics number {} are unknown", static_cast<int>(semantics));
  }
}

// Copies few bytes, and takes over many: the loop has no time to copy them. nullptr: there is no
// memory.
BytesRef Taken(std::string& bytes) {
  constexpr size_t kCopied = 4096;
  if (bytes.size() <= kCopied) return Blob::Copy(bytes);
  auto held = std::make_shared<std::string>(std::move(bytes));
  return Blob::Adopt(held->data(), held->size(), [held] {});
}

struct CheckedPut {
  ArraySpec spec;
  std::vector<int32_t> bytes_of_shard;
};

absl::StatusOr<CheckedPut> CheckPut(const v1::Put& put) {
  CheckedPut out;
  FAIRWAY_ASSIGN_OR_RETURN(out.spec, ArraySpecFromProto(put.spec()));
  const int num_shards = out.spec.sharding.num_shards();
  out.bytes_of_shard.assign(put.bytes_of_shard().begin(), put.bytes_of_shard().end());
  for (int i = 0; put.bytes_of_shard().empty() && i < num_shards; ++i)
    out.bytes_of_shard.push_back(put.bytes_size() == 1 ? 0 : i);
  if (static_cast<int>(out.bytes_of_shard.size()) != num_shards)
    return InvalidArgument("put: bytes for {} shards of {}", out.bytes_of_shard.size(), num_shards);
  std::vector<bool> used(put.bytes_size());
  for (int i = 0; i < num_shards; ++i) {
    const int32_t b = out.bytes_of_shard[i];
    if (b < 0 || b >= put.bytes_size())
      return InvalidArgument("put: bytes {} for shard {}, but {} were given", b, i,
                             put.bytes_size());
    used[b] = true;
    FAIRWAY_ASSIGN_OR_RETURN(const Shape shape, out.spec.sharding.ShardShape(out.spec.shape, i));
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(out.spec.dtype, shape));
    const v1::HostBytes& bytes = put.bytes(b);
    const int64_t size =
        bytes.has_upload() ? bytes.size() : static_cast<int64_t>(bytes.data().size());
    if (size != expected)
      return InvalidArgument("put: shard {} is {}, which is {} bytes, but {} were given", i,
                             ToString(out.spec.dtype, shape), expected, size);
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end())
    return InvalidArgument("put: bytes {} are of no shard", unused - used.begin());
  return out;
}

}  // namespace

absl::Status NativeSession::Put(v1::Put& put) {
  const auto make = [&]() -> absl::StatusOr<Cluster::Arrays::PutResult> {
    FAIRWAY_RETURN_IF_ERROR(CheckHandles({put.array()}));
    FAIRWAY_ASSIGN_OR_RETURN(CheckedPut checked, CheckPut(put));
    return cluster_->arrays().Put(session_, put.array(), checked.spec,
                                  std::move(checked.bytes_of_shard));
  };
  const absl::StatusOr<Cluster::Arrays::PutResult> made = make();
  for (int b = 0; b < put.bytes_size(); ++b) {
    v1::HostBytes& bytes = *put.mutable_bytes(b);
    if (bytes.has_upload()) {
      uploads_.Take(bytes.upload(), [this, b, made](HostBufferStore::Bytes uploaded) {
        if (made.ok()) cluster_->arrays().ProvideUpload(made->upload, b, std::move(uploaded));
      });
    } else if (made.ok()) {
      const size_t size = bytes.data().size();
      absl::StatusOr<BytesRef> given = Taken(*bytes.mutable_data());
      if (*given == nullptr)
        given =
            Error(absl::StatusCode::kResourceExhausted, "no memory for {} bytes of a put", size);
      cluster_->arrays().ProvideUpload(made->upload, b, std::move(given));
    }
  }
  return errors_.Poison({put.array()}, made.status());
}

absl::Status NativeSession::MakeError(const v1::MakeError& request) {
  const auto make = [&]() -> absl::Status {
    FAIRWAY_RETURN_IF_ERROR(CheckHandles({request.array()}));
    FAIRWAY_ASSIGN_OR_RETURN(const ArraySpec spec, ArraySpecFromProto(request.spec()));
    return cluster_->arrays()
        .MakeError(session_, request.array(), spec, StatusFromError(request.error()))
        .status();
  };
  return errors_.Poison({request.array()}, make());
}

Cluster::Done NativeSession::Made(uint64_t id, std::vector<uint64_t> out) {
  return [this, id, out = std::move(out)](const absl::StatusOr<std::vector<uint64_t>>& made) {
    Answer(id, errors_.Poison(out, made.status()));
  };
}

Cluster::Ended NativeSession::Ended(uint64_t id) {
  return [this, id](const absl::Status& status) { Answer(id, status); };
}

void NativeSession::Copy(uint64_t id, const v1::Copy& copy) {
  std::vector<uint64_t> in = ToVector(copy.arrays()), out = ToVector(copy.results());
  absl::Status status = CheckResults(in, out);
  const absl::StatusOr<CopySemantics> semantics = SemanticsFromProto(copy.semantics());
  if (status.ok()) status = semantics.status();
  if (!status.ok()) return Answer(id, errors_.Poison(std::move(out), std::move(status)));
  std::optional<std::vector<int32_t>> devices;
  if (!copy.devices().empty()) devices.emplace(copy.devices().begin(), copy.devices().end());
  std::optional<std::string> memory_kind;
  if (!copy.memory_kind().empty()) memory_kind = copy.memory_kind();
  Cluster::Done made = Made(id, out);
  cluster_->arrays().Copy(session_, std::move(in), std::move(devices), std::move(memory_kind),
                          *semantics, std::move(out), std::move(made));
}

void NativeSession::Reshard(uint64_t id, v1::Reshard& request) {
  auto reshard = std::make_shared<v1::Reshard>(std::move(request));
  std::vector<uint64_t> in = ToVector(reshard->arrays()), out = ToVector(reshard->results());
  absl::Status status = CheckResults(in, out);
  const absl::StatusOr<CopySemantics> semantics = SemanticsFromProto(reshard->semantics());
  if (status.ok()) status = semantics.status();
  if (status.ok() && reshard->shardings_size() != static_cast<int>(in.size()))
    status = InvalidArgument("{} arrays, but {} shardings", in.size(), reshard->shardings_size());
  if (!status.ok()) return Answer(id, errors_.Poison(std::move(out), std::move(status)));
  Cluster::Arrays::Targets targets{
      in.size(), [reshard](size_t i, const ArraySpec& source) -> absl::StatusOr<ArraySpec> {
        FAIRWAY_ASSIGN_OR_RETURN(
            Sharding sharding,
            ShardingFromProto(reshard->shardings(static_cast<int>(i)), source.shape.rank()));
        return ArraySpec{source.dtype, source.shape, std::move(sharding)};
      }};
  Cluster::Done made = [this, reshard, made = Made(id, out)](const auto& result) mutable {
    made(result);
    const int parts = reshard->shardings_size();
    GiveUp(*shell_, std::move(reshard), parts);
  };
  cluster_->arrays().Reshard(session_, std::move(in), std::move(targets), *semantics,
                             std::move(out), std::move(made));
}

absl::Status NativeSession::Assemble(const v1::Assemble& assemble) {
  const std::vector<uint64_t> in = ToVector(assemble.arrays());
  const auto make = [&]() -> absl::Status {
    FAIRWAY_RETURN_IF_ERROR(CheckHandles({assemble.result()}));
    FAIRWAY_ASSIGN_OR_RETURN(ArraySpec spec, ArraySpecFromProto(assemble.spec()));
    return cluster_->arrays()
        .Assemble(session_, std::move(spec), in, CopySemantics::kReuseInput, assemble.result())
        .status();
  };
  return errors_.Poison({assemble.result()}, make());
}

absl::Status NativeSession::Disassemble(const v1::Disassemble& disassemble) {
  const std::vector<uint64_t> out = ToVector(disassemble.results());
  const auto make = [&]() -> absl::Status {
    FAIRWAY_RETURN_IF_ERROR(CheckHandles(out));
    FAIRWAY_RETURN_IF_ERROR(errors_.Check(disassemble.array()));
    const ArraySpec* spec = cluster_->arrays().Spec(session_, disassemble.array());
    if (out.empty() && spec != nullptr)
      return InvalidArgument("disassemble: no results named for {} shards",
                             spec->sharding.num_shards());
    return cluster_->arrays()
        .Disassemble(session_, disassemble.array(), CopySemantics::kReuseInput, out)
        .status();
  };
  return errors_.Poison(out, make());
}

void NativeSession::Watch(uint64_t id, const std::vector<uint64_t>& arrays) {
  const uint64_t token = next_token_++;
  watches_.emplace(token, id);
  cluster_->arrays().Watch(session_, token, arrays);
}

void NativeSession::StartFetch(const Fetching& fetching, uint64_t array) {
  const uint64_t token = next_token_++;
  fetches_.emplace(token, fetching);
  cluster_->arrays().Fetch(session_, token, array);
}

absl::Status NativeSession::Fetch(uint64_t id, const v1::Fetch& fetch) {
  const uint64_t array = fetch.array();
  if (id == 0) return absl::OkStatus();  // nobody wants the bytes
  FAIRWAY_RETURN_IF_ERROR(errors_.Check(array));
  const auto failed = std::make_shared<bool>(false);
  if (fetch.shards().empty()) {
    StartFetch({id, 0, failed}, array);
    return absl::OkStatus();
  }
  const ArraySpec* spec = cluster_->arrays().Spec(session_, array);
  if (spec == nullptr)
    return Error(absl::StatusCode::kNotFound, "there is no array {} in this session", array);
  const int num_shards = spec->sharding.num_shards();
  std::set<int32_t> asked;
  for (const int32_t shard : fetch.shards()) {
    if (shard < 0 || shard >= num_shards)
      return InvalidArgument("fetch: shard {} of an array of {}", shard, num_shards);
    if (!asked.insert(shard).second) return InvalidArgument("fetch: shard {} twice", shard);
  }
  // Each shard becomes an array of its own until its fetch has begun.
  FAIRWAY_ASSIGN_OR_RETURN(
      const std::vector<uint64_t> shards,
      cluster_->arrays().Disassemble(session_, array, CopySemantics::kReuseInput, {}));
  for (int32_t index = 0; index < fetch.shards_size(); ++index)
    StartFetch({id, index, failed}, shards[fetch.shards(index)]);
  (void)cluster_->arrays().Destruct(session_, shards);
  return absl::OkStatus();
}

}  // namespace fairway
