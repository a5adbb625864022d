// SPDX-License-Identifier: Apache-2.0
// A machine's receives and sends.
#include <algorithm>

#include "tests/sim/controller.h"
#include "tests/sim/intruder.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace fairway::sim {

Machine::Shards::Ref Machine::AssemblyFor(const PrepareReceive& node, size_t position,
                                          ShardRef ref) {
  const auto [made, first] = assemblies_.Of(ref, node, position);
  if (!first) return made;
  const LocalShard& shard = node.out.shards[node.pieces[position].out];
  made->bytes.device = shard.device;
  made->bytes.bytes = Units(ByteSize(node.out.dtype, shard.shape).value());
  Charge(shard.device, made->bytes.bytes);
  return made;
}

void Machine::StartReceive(const PrepareReceive& node, size_t position) {
  const size_t out = node.pieces.empty() ? position : node.pieces[position].out;
  const LocalShard& shard = node.out.shards[out];
  const ShardSource& source = node.sources[position];
  const int64_t size = ByteSize(node.out.dtype, shard.shape).value();
  const uint64_t id = next_receive_++;
  Receive& receive = receives_[id];
  receive = {node.node,    position,    {node.out.group, shard.shard},
             shard.device, Units(size), source.shard,
             false,        false,       nullptr,
             {},           {}};
  if (buffers_.contains(receive.ref))
    world_.Broken("B1", "{}: shard {}:{} is received while it exists", worker_, receive.ref.group,
                  receive.ref.shard);
  if (!node.pieces.empty() && source.kind != ShardSource::Kind::kInline) {
    receive.assembly = AssemblyFor(node, position, receive.ref);
    receive.from = node.pieces[position].from;
    receive.to = node.pieces[position].to;
    world_.Count("receive piece");
  } else {
    Charge(shard.device, Units(size));
  }
  const auto done = [this, life = life_, id](absl::StatusOr<uint64_t> value) {
    EndReceive(life, id, std::move(value));
  };
  if (world_.config.full_percent > 0 && world_.random.Percent(world_.config.full_percent)) {
    world_.Count("receive runs out of memory");
    world_.full |= bit();
    After(world_.random.Between(1, 200),
          [done] { done(absl::ResourceExhaustedError("the runtime has no memory left")); });
    return;
  }
  switch (source.kind) {
    case ShardSource::Kind::kInline: {
      world_.Count("receive inline");
      const uint64_t value = ValueOf(*source.bytes);
      After(world_.random.Between(1, 200), [done, value] { done(value); });
      return;
    }
    case ShardSource::Kind::kLocal: {
      world_.Count("receive local");
      Buffer* buffer = Readable(source.shard, "a local copy");
      if (buffer == nullptr) return;
      ++buffer->readers;
      receive.local = true;
      const uint64_t value =
          receive.assembly == nullptr ? buffer->value : BoxedValue(buffer->value, receive.from);
      After(world_.random.Between(1, 2000), [done, value] { done(value); });
      return;
    }
    case ShardSource::Kind::kPeer: {
      world_.Count("receive from peer");
      Machine* peer = world_.FindMachine(source.endpoint);
      const uint64_t bits = bit() | uint64_t{1} << world_.IndexOf(peer);
      const PullRequest request{node.transfer, source.index, incarnation_, 0, source.ticket};
      world_.queue.After(world_.DataDelay(),
                         [peer, to = source.incarnation, request,
                          done = world_.MayBeCut(done, bits)] { peer->Pull(to, request, done); });
      return;
    }
    case ShardSource::Kind::kController:
      world_.Count("receive from controller");
      world_.queue.After(world_.DataDelay(), [this, epoch = world_.epoch,
                                              request = PullRequest{node.transfer, source.index,
                                                                    incarnation_, 0, source.ticket},
                                              done = world_.MayBeCut(done, bit())] {
        if (world_.controller == nullptr || world_.epoch != epoch) {
          done(absl::UnavailableError("the controller is gone"));
        } else {
          world_.controller->PullUpload(request, done);
        }
      });
      return;
  }
}

void Machine::EndPiece(const Receive& receive, const absl::StatusOr<uint64_t>& value) {
  if (receive.local && !receive.abandoned) EndRead(receive.source);
  Block& block = receive.assembly->bytes;
  if (value.ok()) block.pieces[receive.to.origin] = *value;
  const Shards::End end = assemblies_.PieceEnded(receive.ref, receive.assembly, value.ok());
  if (end == Shards::End::kFail) Charge(block.device, -block.bytes);
  if (end == Shards::End::kMake)
    Store(receive.ref, block.device, block.bytes, Assembled(block.pieces));
}

void Machine::EndReceive(uint64_t life, uint64_t id, absl::StatusOr<uint64_t> value) {
  if (life != life_) return;
  if (asleep_) {
    waiting_.emplace_back(life, [this, life, id, value = std::move(value)]() mutable {
      EndReceive(life, id, std::move(value));
    });
    return;
  }
  const Receive receive = receives_.at(id);
  receives_.erase(id);
  if (receive.assembly != nullptr) {
    EndPiece(receive, value);
  } else if (!receive.abandoned) {
    if (receive.local) EndRead(receive.source);
    if (value.ok()) {
      Store(receive.ref, receive.device, receive.bytes, *value);
    } else {
      Charge(receive.device, -receive.bytes);
    }
  } else {
    world_.Count("receive abandoned");
  }
  core_->ReceiveDone(receive.node, receive.position, value.status());
}

void Machine::Pull(Incarnation incarnation, const PullRequest& request, Pulled done) {
  const auto refuse = [&](absl::Status why) {
    world_.queue.After(world_.DataDelay(), [done, why] { done(why); });
  };
  if (!alive()) return refuse(absl::UnavailableError("no such peer"));
  if (asleep_) {  // this is answered whatever becomes of the machine
    waiting_.emplace_back(0, [=, this] { Pull(incarnation, request, done); });
    return;
  }
  if (incarnation != incarnation_) {
    world_.Count("pull of another incarnation");
    return refuse(absl::AbortedError("another incarnation"));
  }
  const absl::Status ticket =
      CheckTicket(KeyOf(incarnation_.value), request.transfer, request.from, request.ticket);
  if (!ticket.ok()) return done(ticket);
  const uint64_t number = next_pull_++;
  pulls_[number] = {request.transfer, std::move(done), ShardRef(), false};
  core_->OnPull(number, request.transfer, request.index);
}

void Machine::Serve(uint64_t number, const PrepareSend::Item& item) {
  const ShardRef ref = item.shard;
  WaitingPull& pull = pulls_.at(number);
  Buffer* buffer = Readable(ref, "a send");
  if (buffer == nullptr) return RefusePull(number, absl::InternalError("no buffer to send"));
  ++buffer->readers;
  pull.serving = ref;
  pull.reading = true;
  const uint64_t value = item.box ? BoxedValue(buffer->value, *item.box) : buffer->value;
  After(world_.DataDelay(), [this, number, value] {
    Pulled done = std::exchange(pulls_.at(number).done, nullptr);
    done(value);
    // The sender learns later that its bytes have been taken.
    After(world_.random.Between(0, 100), [this, number] { EndServe(number); });
  });
}

void Machine::EndServe(uint64_t number) {
  const WaitingPull pull = pulls_.at(number);
  pulls_.erase(number);
  if (pull.reading) EndRead(pull.serving);
  core_->ServeDone(number);
}

void Machine::RefusePull(uint64_t number, absl::Status why) {
  world_.Count("pull refused");
  Pulled done = std::move(pulls_.at(number).done);
  pulls_.erase(number);
  world_.queue.After(world_.DataDelay(), [done, why] { done(why); });
}

}  // namespace fairway::sim
