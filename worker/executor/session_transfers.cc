// SPDX-License-Identifier: Apache-2.0
// ExecutorSession: receives shards and serves them.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <spdlog/spdlog.h>

#include "worker/executor/cut_out.h"
#include "worker/executor/executor_session.h"

namespace fairway {
namespace {

// The loop makes buffers of smaller blocks, unless that may wait for memory; a pool makes larger
// ones.
constexpr int64_t kCopyInLoop = 256 << 10;

template <typename Answerer, typename Served>
void Answer(const absl::StatusOr<HostView>& view, Answerer& answer, Served& served) {
  if (view.ok()) {
    answer(DataView{view->bytes, view->owner});
  } else {
    answer(view.status());
  }
  served(view.ok());
}

}  // namespace

// ---- Receiving ----

ExecutorSession::Receiving ExecutorSession::ReceivingOf(const PrepareReceive& node,
                                                        size_t position) const {
  const size_t out = node.pieces.empty() ? position : node.pieces[position].out;
  const LocalShard& shard = node.out.shards[out];
  Receiving receiving{node.node,   position,     {node.out.group, shard.shard}, node.out.dtype,
                      shard.shape, shard.device, node.out.memory_kind,          0};
  receiving.bytes = ByteSize(receiving.dtype, receiving.shape).value_or(0);
  return receiving;
}

void ExecutorSession::StartReceive(const PrepareReceive& node, size_t position) {
  const ShardSource& source = node.sources[position];
  // Bytes that come in one piece need no Assembly.
  const bool alone = source.kind == ShardSource::Kind::kInline ||
                     (source.kind == ShardSource::Kind::kPeer && !node.pieces.empty() &&
                      node.pieces[position].to.whole());
  if (!node.pieces.empty() && !alone) return StartPiece(node, position);
  Receiving receiving = ReceivingOf(node, position);
  buffers_.Expect(receiving.ref, receiving.device, receiving.bytes);
  const auto fail = [&](absl::Status why) {
    PostHere("receive failed",
             [this, receiving, why = std::move(why)] { TellReceiveDone(receiving, nullptr, why); });
  };
  switch (source.kind) {
    case ShardSource::Kind::kLocal: {
      auto from = buffers_.Find(source.shard);
      if (from == nullptr) {
        return fail(Error(absl::StatusCode::kInternal, "no buffer for shard {} of group {}",
                          source.shard.shard, source.shard.group));
      }
      auto made = Poster("local copy",
                         [this, receiving](absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer) {
                           BufferMade(receiving, std::move(buffer));
                         });
      MakerPool(receiving.device)
          .Run([runtime = context_.runtime, from, device = receiving.device,
                kind = receiving.memory_kind, made = std::move(made)]() mutable {
            auto copy = runtime->CopyToDevice(*from, device, kind);
            made(copy.ok() ? absl::StatusOr<std::shared_ptr<DeviceBuffer>>(*std::move(copy))
                           : copy.status());
          });
      return;
    }
    case ShardSource::Kind::kPeer:
    case ShardSource::Kind::kController:
      Pull(node, source, receiving.bytes,
           [this, alive = std::weak_ptr<bool>(alive_),
            receiving](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
             if (alive.lock() == nullptr || ended_) return;
             if (!bytes.ok()) return TellReceiveDone(receiving, nullptr, bytes.status());
             MakeBuffer(receiving, *std::move(bytes));
           });
      return;
    case ShardSource::Kind::kInline: {
      auto copy = source.bytes == nullptr ? nullptr : Blob::Copy(source.bytes->view());
      if (copy == nullptr)
        return fail(absl::ResourceExhaustedError("no host memory for an inline shard"));
      PostHere("inline upload", [this, receiving, copy = std::move(copy)]() mutable {
        MakeBuffer(receiving, std::move(copy));
      });
      return;
    }
  }
}

void ExecutorSession::Pull(const PrepareReceive& node, const ShardSource& source, int64_t bytes,
                           DataPlane::PullDone done) {
  const bool peer = source.kind == ShardSource::Kind::kPeer;
  plane_->Pull(
      peer ? source.endpoint : controller_endpoint_, peer ? source.incarnation : controller_,
      {node.transfer, source.index, Incarnation(), 0, source.ticket}, bytes, std::move(done));
}

void ExecutorSession::TakeBackPulls(const PrepareReceive& node) {
  std::set<std::string_view> endpoints;
  for (const ShardSource& source : node.sources) {
    if (source.kind == ShardSource::Kind::kPeer) endpoints.insert(source.endpoint);
    if (source.kind == ShardSource::Kind::kController) endpoints.insert(controller_endpoint_);
  }
  for (const std::string_view endpoint : endpoints)
    plane_->TakeBack(std::string(endpoint), node.transfer);
}

void ExecutorSession::StartPiece(const PrepareReceive& node, size_t position) {
  const Receiving receiving = ReceivingOf(node, position);
  const ShardSource& source = node.sources[position];
  const Piece& piece = node.pieces[position];
  const auto [made, first] = assemblies_.Of(receiving.ref, node, position);
  const Shards::Ref assembly = made;
  if (first) {
    assembly->bytes = Blob::Make(static_cast<size_t>(receiving.bytes));
    buffers_.Expect(receiving.ref, receiving.device, receiving.bytes);
  }
  const auto fail = [&](absl::Status why) {
    PostHere("piece failed", [this, receiving, assembly, why = std::move(why)] {
      PieceEnded(receiving, assembly, why);
    });
  };
  if (assembly->bytes == nullptr) {
    return fail(Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes",
                      receiving.bytes));
  }
  if (source.kind == ShardSource::Kind::kLocal) {
    auto from = buffers_.Find(source.shard);
    if (from == nullptr) {
      return fail(Error(absl::StatusCode::kInternal, "no buffer for shard {} of group {}",
                        source.shard.shard, source.shard.group));
    }
    auto read = Poster("piece read", [this, receiving, assembly, from, box = piece.from,
                                      to = piece.to](absl::StatusOr<HostView> view) {
      CopyPiece(receiving, assembly, box, to, std::move(view));
    });
    return context_.runtime->Read(*from, std::move(read));
  }
  Pull(node, source, piece.from.bytes(),
       [this, alive = std::weak_ptr<bool>(alive_), receiving, assembly, box = piece.from.Alone(),
        to = piece.to](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
         if (alive.lock() == nullptr || ended_) return;
         if (!bytes.ok()) return PieceEnded(receiving, assembly, bytes.status());
         CopyPiece(receiving, assembly, box, to, HostView{(*bytes)->view(), *bytes});
       });
}

void ExecutorSession::CopyPiece(Receiving receiving, const Shards::Ref& assembly, const Box& from,
                                const Box& to, absl::StatusOr<HostView> view) {
  if (ended_) return;
  if (!view.ok()) return PieceEnded(std::move(receiving), assembly, view.status());
  if (from.array_bytes() != static_cast<int64_t>(view->bytes.size()) ||
      to.array_bytes() != receiving.bytes) {
    return PieceEnded(std::move(receiving), assembly,
                      Error(absl::StatusCode::kInternal, "a piece of {} bytes in a shard of {}",
                            from.array_bytes(), view->bytes.size()));
  }
  if (from.bytes() <= kCopyInLoop) {
    CopyBox(from, view->bytes.data(), to, assembly->bytes->data());
    return PieceEnded(std::move(receiving), assembly, absl::OkStatus());
  }
  auto copied = Poster("piece copied", [this, receiving, assembly] {
    PieceEnded(receiving, assembly, absl::OkStatus());
  });
  // The boxes of one shard do not overlap, so several may be copied at once.
  context_.blocking->Run(
      [from, to, assembly, view = *std::move(view), copied = std::move(copied)]() mutable {
        CopyBox(from, view.bytes.data(), to, assembly->bytes->data());
        copied();
      });
}

void ExecutorSession::PieceEnded(Receiving receiving, const Shards::Ref& assembly,
                                 absl::Status status) {
  if (ended_) return;
  const Shards::End end = assemblies_.PieceEnded(receiving.ref, assembly, status.ok());
  if (end == Shards::End::kMake) return MakeBuffer(std::move(receiving), assembly->bytes);
  if (end == Shards::End::kFail) buffers_.Drop(receiving.ref);
  core_.ReceiveDone(receiving.node, receiving.position, std::move(status));
}

BlockingPool& ExecutorSession::MakerPool(int device) const {
  const auto& pools = context_.buffer_makers;
  const bool has = device >= 0 && static_cast<size_t>(device) < pools.size();
  return has ? *pools[device] : *context_.blocking;
}

void ExecutorSession::MakeBuffer(Receiving receiving, std::shared_ptr<Blob> bytes) {
  if (ended_) return;
  const auto make = [runtime = context_.runtime](const Receiving& a, std::shared_ptr<Blob> block)
      -> absl::StatusOr<std::shared_ptr<DeviceBuffer>> {
    auto buffer = runtime->FromHost(std::move(block), a.dtype, a.shape, a.device, a.memory_kind);
    if (!buffer.ok()) return buffer.status();
    return std::shared_ptr<DeviceBuffer>(*std::move(buffer));
  };
  if (context_.buffer_makers.empty() && receiving.bytes <= kCopyInLoop)
    return BufferMade(receiving, make(receiving, std::move(bytes)));
  auto made = Poster("buffer made",
                     [this, receiving](absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer) {
                       BufferMade(receiving, std::move(buffer));
                     });
  MakerPool(receiving.device)
      .Run([make, receiving, bytes = std::move(bytes), made = std::move(made)]() mutable {
        made(make(receiving, std::move(bytes)));
      });
}

void ExecutorSession::BufferMade(Receiving receiving,
                                 absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer) {
  if (ended_) return;
  if (!buffer.ok()) return TellReceiveDone(receiving, nullptr, buffer.status());
  auto& b = **buffer;
  b.OnReady(Poster("received", [this, receiving, buffer = *std::move(buffer)](absl::Status status) {
    TellReceiveDone(receiving, buffer, status);
  }));
}

void ExecutorSession::TellReceiveDone(const Receiving& receiving,
                                      const std::shared_ptr<DeviceBuffer>& buffer,
                                      const absl::Status& status) {
  if (ended_) return;
  if (status.ok()) {
    buffers_.Put(receiving.ref, buffer);
  } else {
    buffers_.Drop(receiving.ref);
  }
  core_.ReceiveDone(receiving.node, receiving.position, status);
}

// ---- Serving ----

void ExecutorSession::OnPull(PullRequest request, DataPlane::Answer answer) {
  if (ended_) return;
  if (IsCallback(request.transfer)) return ServeArgument(request, std::move(answer));
  const uint64_t pull = next_pull_++;
  pulls_.emplace(pull, WaitingPull{std::move(answer), request.from});
  core_.OnPull(pull, request.transfer, request.index);
}

void ExecutorSession::OnTakenBack(PullRequest request) {
  if (!ended_ && !IsCallback(request.transfer)) core_.OnTakenBack(request.transfer);
}

void ExecutorSession::Serve(uint64_t pull, const PrepareSend::Item& item) {
  const ShardRef shard = item.shard;
  auto waiting = pulls_.extract(pull);
  if (waiting.empty()) return;
  auto buffer = buffers_.Find(shard);
  if (buffer == nullptr) {
    waiting.mapped().answer(Error(absl::StatusCode::kInternal, "no buffer for shard {} of group {}",
                                  shard.shard, shard.group));
    return PostHere("serve failed", [this, pull] { core_.ServeDone(pull); });
  }
  const bool fetch = waiting.mapped().from == controller_;
  // The thread that has the bytes answers the pull; the loop only notes it.
  auto served = Poster("served", [this, pull, fetch](bool ok) {
    if (fetch && ok) ++fetches_served_;
    core_.ServeDone(pull);
  });
  context_.runtime->Read(
      *buffer, [buffer, box = item.box, pool = context_.blocking,
                answer = std::move(waiting.mapped().answer),
                served = std::move(served)](absl::StatusOr<HostView> view) mutable {
        if (!view.ok() || !box.has_value()) return Answer(view, answer, served);
        auto cut = [buffer, box = *std::move(box), view = *std::move(view),
                    answer = std::move(answer), served = std::move(served)]() mutable {
          Answer(CutOut(box, view), answer, served);
        };
        if (box->bytes() <= kCopyInLoop) return cut();
        pool->Run(std::move(cut));
      });
}

void ExecutorSession::RefusePull(uint64_t pull, absl::Status why) {
  auto waiting = pulls_.extract(pull);
  if (!waiting.empty()) waiting.mapped().answer(std::move(why));
}

}  // namespace fairway
