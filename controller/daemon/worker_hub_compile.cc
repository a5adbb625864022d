// SPDX-License-Identifier: Apache-2.0
// The hub's compilations, and large messages, which are those with compiled code.
#include <memory>
#include <utility>

#include "base/crc32c.h"
#include "controller/daemon/worker_hub.h"
#include "controller/daemon/worker_hub_peers.h"
#include "wire/link_codec.h"

namespace fairway {

void WorkerHub::Compile(const std::string& island, Frame request,
                        std::function<void(absl::StatusOr<CompiledCode>)> done) {
  std::map<std::string, int> load;
  for (const auto& [id, compilation] : compilations_) ++load[compilation.worker];
  std::string best;
  for (const auto& [worker, supervisor] : supervisors_) {
    if (supervisor->island != island || !supervisor->has_compiler || !supervisor->belongs) continue;
    if (best.empty() || load[worker] < load[best]) best = worker;
  }
  if (best.empty()) {
    loop_.Post("no compiler", [island, done = std::move(done)] {
      done(Error(absl::StatusCode::kUnavailable,
                 "no worker of {0} with a compiler is connected and has had its executor up: try "
                 "again when `fairway status` shows {0} up",
                 island));
    });
    return;
  }
  if (const size_t bytes = request.payload.size(); bytes > options_.command_bytes) {
    loop_.Post("program too long", [bytes, most = options_.command_bytes, done = std::move(done)] {
      done(Error(absl::StatusCode::kResourceExhausted,
                 "a program that takes {} bytes cannot be sent to a compiler: a message has room "
                 "for {}",
                 bytes, most));
    });
    return;
  }
  const uint64_t id = next_compilation_++;
  SetCompileId(id, request);
  compilations_[id] = {best, std::move(done)};
  peers_[supervisors_[best]->peer]->link->Send(std::move(request));
}

void WorkerHub::OnCompileResponse(Peer& peer, v1::LinkCompileResponse response,
                                  std::optional<uint32_t> code_crc) {
  const auto it = compilations_.find(response.id());
  if (it == compilations_.end() || it->second.worker != peer.worker) return;
  auto done = std::move(it->second.done);
  compilations_.erase(it);
  if (absl::Status status = StatusFromProto(response.status()); !status.ok())
    return done(std::move(status));
  CompiledCode code;
  code.code = std::move(*response.mutable_code());
  code.checksum = std::move(*response.mutable_checksum());
  code.metadata = std::move(*response.mutable_metadata());
  code.crc = code_crc;
  done(std::move(code));
}

void WorkerHub::TakeLarge(const Peer& peer, Frame frame) {
  struct Large {
    Frame frame;
    v1::ToController message;
    absl::Status status;
    uint32_t code_crc = 0;
  };
  auto large = std::make_shared<Large>();
  large->frame = std::move(frame);
  const auto parse = [large] {
    large->status = UnpackFrame(large->frame, &large->message);
    large->frame = Frame();
    large->code_crc = Crc32c(large->message.compile_response().code());
  };
  options_.off_loop(parse, [this, alive = alive_, number = peer.number, large] {
    if (!*alive) return;
    const auto it = peers_.find(number);
    if (it == peers_.end() || it->second->role != Role::kSupervisor) return;
    if (!large->status.ok()) return Malformed(*it->second, large->status);
    OnMessage(*it->second, large->message, Frame(), large->code_crc);
  });
}

}  // namespace fairway
