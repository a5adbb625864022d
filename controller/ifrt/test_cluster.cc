// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/test_cluster.h"

#include <algorithm>
#include <cstring>

#include "controller/cluster/arrays.h"
#include "controller/cluster/fleet.h"

namespace fairway {
namespace {

constexpr Incarnation kIncarnation{7};

ExecutorSpec Worker(const std::string& name, const std::string& island, int64_t device_memory) {
  ExecutorSpec spec;
  spec.worker = name;
  spec.island = island;
  spec.incarnation = kIncarnation;
  spec.runtime = "fake";
  spec.platform_name = "cpu";
  spec.platform_version = "fake 1";
  spec.device_kind = "cpu";
  spec.memory_kinds = {"device", "pinned_host"};
  spec.num_devices = 2;
  spec.device_memory = device_memory;
  spec.data_endpoint = name + ":1";
  return spec;
}

BytesRef Zeros(int64_t bytes) {
  auto blob = Blob::Make(static_cast<size_t>(bytes));
  std::memset(blob->data(), 0, blob->size());
  return blob;
}

}  // namespace

TestCluster::TestCluster(int64_t device_memory, int64_t stored_array_bytes,
                         IfrtSessionOptions sessions, size_t record_memory)
    : cluster_({.stored_array_bytes = stored_array_bytes, .record_memory = record_memory}, this),
      compiler_(&cluster_, this),
      door_(&cluster_, &compiler_, sessions) {
  a = cluster_.fleet().ExecutorUp(Worker("wa", "ia", device_memory)).value();
  b = cluster_.fleet().ExecutorUp(Worker("wb", "ib", device_memory)).value();
}

Report TestCluster::Ended(ExecutorId, uint64_t seq) {
  Report report;
  report.finished = {seq};
  if (!fail_next.ok()) report.failures.push_back({seq, std::exchange(fail_next, absl::OkStatus())});
  return report;
}

void TestCluster::Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget>) {
  const auto install = [&](ExecutableId id) {
    work_.push_back({executor,
                     [id] {
                       Report report;
                       report.installed.push_back({id, absl::OkStatus()});
                       return report;
                     },
                     {},
                     {}});
  };
  if (const auto* c = std::get_if<InstallExecutable>(&command)) {
    log.push_back(fmt::format("e{} install x{}", executor, c->executable));
    install(c->executable);
  } else if (const auto* c = std::get_if<InstallSequence>(&command)) {
    log.push_back(
        fmt::format("e{} install a sequence of {}", executor, c->sequence->instructions.size()));
    install(c->executable);
  } else if (const auto* c = std::get_if<PrepareReceive>(&command)) {
    On(executor, *c);
  } else if (const auto* c = std::get_if<PrepareLaunch>(&command)) {
    log.push_back(
        fmt::format("e{} prepare x{} on {} devices", executor, c->executable, c->devices.size()));
    PrepareLaunch& known = prepared_[{executor, c->node}];
    if (std::exchange(known.more, c->more)) {
      for (size_t p = 0; p < known.inputs.size(); ++p)
        known.inputs[p].insert(known.inputs[p].end(), c->inputs[p].begin(), c->inputs[p].end());
      known.outputs.insert(known.outputs.end(), c->outputs.begin(), c->outputs.end());
    } else {
      known = *c;
    }
    for (const GroupPart& part : c->outputs) poisoned_.erase(part.group);
  } else if (const auto* c = std::get_if<Launch>(&command)) {
    On(executor, *c);
  } else if (const auto* c = std::get_if<CancelNode>(&command)) {
    On(executor, *c);
  } else if (const auto* c = std::get_if<PrepareSend>(&command)) {
    for (const auto& item : c->items) sends_[{c->transfer, item.index}] = item;
  } else if (const auto* c = std::get_if<FreeGroups>(&command)) {
    log.push_back(fmt::format("e{} free {} groups", executor, c->groups.size()));
  }
}

BytesRef TestCluster::Source(const PrepareReceive& command, size_t i) const {
  const ShardSource& source = command.sources[i];
  switch (source.kind) {
    case ShardSource::Kind::kInline:
      return source.bytes;
    case ShardSource::Kind::kLocal:
      return bytes_.at(source.shard);
    case ShardSource::Kind::kPeer:
      return bytes_.at(sends_.at({command.transfer, source.index}).shard);
    case ShardSource::Kind::kController:
      return offered_.at(command.transfer).at(source.index);
  }
  return nullptr;
}

void TestCluster::Forget(const GroupPart& part, const absl::Status& cause) {
  poisoned_[part.group] = cause;
  for (const LocalShard& shard : part.shards) bytes_.erase({part.group, shard.shard});
}

void TestCluster::On(ExecutorId executor, const CancelNode& command) {
  const auto key = std::make_pair(executor, command.node);
  Report report;
  if (const auto launch = prepared_.find(key); launch != prepared_.end()) {
    report.finished = {launch->second.seq};
    for (const GroupPart& part : launch->second.outputs) Forget(part, command.cause);
  } else if (const auto receive = received_.find(key); receive != received_.end()) {
    report.finished = {receive->second.seq};
    Forget(receive->second.out, command.cause);
  }
  std::erase_if(work_,
                [&](const Work& w) { return w.executor == executor && w.node == command.node; });
  work_.push_back({executor, [report] { return report; }, {}, {}});
}

std::vector<ShardRef> TestCluster::Needs(const PrepareReceive& command) const {
  std::vector<ShardRef> out;
  for (const ShardSource& source : command.sources) {
    if (source.kind == ShardSource::Kind::kLocal) out.push_back(source.shard);
    if (source.kind != ShardSource::Kind::kPeer) continue;
    const auto send = sends_.find({command.transfer, source.index});
    out.push_back(send == sends_.end() ? ShardRef() : send->second.shard);
  }
  return out;
}

bool TestCluster::Ready(const Work& work) const {
  const auto needs = work.node ? Needs(received_.at({work.executor, work.node})) : work.needs;
  return std::all_of(needs.begin(), needs.end(), [&](const ShardRef& shard) {
    return bytes_.contains(shard) || poisoned_.contains(shard.group);
  });
}

absl::Status TestCluster::PoisonOf(std::span<const ShardRef> shards) const {
  for (const ShardRef& shard : shards) {
    const auto found = poisoned_.find(shard.group);
    if (found != poisoned_.end()) return found->second;
  }
  return absl::OkStatus();
}

void TestCluster::Store(const PrepareReceive& command, size_t i) {
  const BytesRef source = Source(command, i);
  if (command.pieces.empty()) {
    bytes_[{command.out.group, command.out.shards[i].shard}] = source;
    return;
  }
  const Piece& piece = command.pieces[i];
  if (command.sources[i].kind == ShardSource::Kind::kPeer)
    if (sends_.at({command.transfer, command.sources[i].index}).box != piece.from)
      log.push_back("a send of another box than the receiver asks for");
  BytesRef& target = bytes_[{command.out.group, command.out.shards[piece.out].shard}];
  if (target == nullptr) target = Zeros(piece.to.array_bytes());
  // A shared blob must not be written to.
  auto copy = Blob::Copy(target->view());
  CopyBox(piece.from, source->data(), piece.to, copy->data());
  target = std::move(copy);
}

void TestCluster::On(ExecutorId executor, const PrepareReceive& command) {
  log.push_back(fmt::format("e{} receive {} shards", executor, command.out.shards.size()));
  received_[{executor, command.node}] = command;
  poisoned_.erase(command.out.group);
  work_.push_back({executor,
                   [this, executor, command] {
                     const absl::Status poison = PoisonOf(Needs(command));
                     if (!poison.ok()) {
                       poisoned_[command.out.group] = poison;
                       Report report;
                       report.finished = {command.seq};
                       report.failures.push_back({command.seq, poison});
                       return report;
                     }
                     for (size_t i = 0; i < command.sources.size(); ++i) Store(command, i);
                     return Ended(executor, command.seq);
                   },
                   {},
                   command.node});
}

Report TestCluster::Failed(const PrepareLaunch& command, const absl::Status& status) {
  for (const GroupPart& part : command.outputs) Forget(part, status);
  Report report;
  report.finished = {command.seq};
  report.failures.push_back({command.seq, status});
  return report;
}

void TestCluster::On(ExecutorId executor, const Launch& launch) {
  log.push_back(fmt::format("e{} launch", executor));
  work_.push_back({executor,
                   [this, executor, launch] {
                     const PrepareLaunch& command = prepared_.at({executor, launch.node});
                     // A launch that was sent ahead does not run if an input then fails.
                     absl::Status poison;
                     for (const auto& inputs : command.inputs)
                       if (poison.ok()) poison = PoisonOf(inputs);
                     if (!poison.ok()) return Failed(command, poison);
                     for (size_t o = 0; o < command.outputs.size(); ++o) {
                       const GroupPart& part = command.outputs[o];
                       for (size_t p = 0; p < part.shards.size(); ++p) {
                         const int64_t size = ByteSize(part.dtype, part.shards[p].shape).value();
                         BytesRef value = o < command.inputs[p].size()
                                              ? bytes_.at(command.inputs[p][o])
                                              : nullptr;
                         if (value == nullptr || static_cast<int64_t>(value->size()) != size)
                           value = Zeros(size);
                         bytes_[{part.group, part.shards[p].shard}] = value;
                       }
                     }
                     Report report = Ended(executor, command.seq);
                     if (!report.failures.empty())
                       return Failed(command, report.failures[0].status);
                     for (const ShardRef& ref : launch.inline_shards)
                       report.inlined.push_back({ref, bytes_.at(ref)});
                     return report;
                   },
                   {},
                   {}});
}

void TestCluster::RunAll() {
  while (true) {
    while (std::exchange(turn_wanted_, false)) cluster_.Turn();
    if (!off_loop_.empty()) {
      const auto [work, then] = std::move(off_loop_.front());
      off_loop_.pop_front();
      work();
      then();
      continue;
    }
    const auto next =
        std::find_if(work_.begin(), work_.end(), [&](const Work& w) { return Ready(w); });
    if (next == work_.end()) return;
    const Work work = std::move(*next);
    work_.erase(next);
    cluster_.fleet().OnReport(work.executor, kIncarnation, work.run());
  }
}

void TestCluster::OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) {
  offered_[transfer] = std::move(blobs);
}
void TestCluster::WithdrawUpload(TransferId transfer) { offered_.erase(transfer); }

void TestCluster::PullToHost(TransferId transfer, ExecutorId executor, int32_t index, int64_t) {
  log.push_back(fmt::format("pull from e{}", executor));
  const ShardRef shard = sends_.at({transfer, index}).shard;
  work_.push_back({executor,
                   [this, transfer, shard] {
                     const absl::Status poison = PoisonOf({&shard, 1});
                     if (!poison.ok()) {
                       cluster_.arrays().FetchArrived(transfer, poison);
                     } else {
                       cluster_.arrays().FetchArrived(transfer, bytes_.at(shard));
                     }
                     return Report();
                   },
                   {shard},
                   {}});
}

void TestCluster::Compile(SessionId session, IslandId island, std::shared_ptr<const std::string>,
                          v1::CompileOptions options,
                          std::function<void(absl::StatusOr<CompiledCode>)> done) {
  last_compiled_for_ = session;
  last_island_ = island;
  last_options_ = std::move(options);
  compilations_.push_back(std::move(done));
}

void TestCluster::AnswerCompile(absl::StatusOr<CompiledCode> result) {
  const auto done = std::move(compilations_.front());
  compilations_.pop_front();
  done(std::move(result));
}

CompiledCode TestCode(int num_arguments, int num_results, int num_devices,
                      std::vector<int> donated) {
  CompiledCode out;
  out.code = "code";
  out.checksum = "sum";
  out.metadata.set_name("jit_f");
  out.metadata.set_num_devices(num_devices);
  out.metadata.set_fingerprint("print");
  const auto fill = [&](v1::ValueSpec* value) {
    value->set_dtype(static_cast<int32_t>(DType::kF32));
    value->add_global_dims(8);
    value->add_shard_dims(8 / num_devices);
    value->add_minor_to_major(0);
    if (num_devices > 1) {
      // OpSharding: type OTHER (field 1), tile_assignment_dimensions (3), iota_reshape_dims (9),
      // both packed.
      value->set_op_sharding(std::string("\x08\x03\x1a\x01", 4) + static_cast<char>(num_devices) +
                             std::string("\x4a\x01", 2) + static_cast<char>(num_devices));
    }
  };
  for (int i = 0; i < num_arguments; ++i) fill(out.metadata.add_parameters());
  for (int i = 0; i < num_results; ++i) fill(out.metadata.add_outputs());
  for (const int i : donated) out.metadata.mutable_parameters(i)->set_donated(true);
  out.metadata.mutable_memory()->set_temp(64);
  out.metadata.mutable_memory()->set_generated_code(4);
  (*out.metadata.mutable_cost())["flops"] = 8;
  out.metadata.set_program_text("HloModule jit_f");
  return out;
}

}  // namespace fairway
