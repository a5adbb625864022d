// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/relays.h"

#include <algorithm>

#include "tests/sim/host.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"
#include "wire/link_codec.h"

namespace fairway::sim {

class PipeEnd final : public Link {
 public:
  PipeEnd(std::shared_ptr<Pipe> pipe, int side) : pipe_(std::move(pipe)), side_(side) {
    pipe_->ends_[side_] = this;
  }
  ~PipeEnd() override { pipe_->Gone(side_); }
  void Send(Frame frame) override { pipe_->Send(side_, std::move(frame)); }
  size_t queued_bytes() const override { return pipe_->queued(side_); }
  void Close() override { pipe_->Close(side_); }
  std::string peer() const override { return pipe_->hosts_[1 - side_]->worker(); }

 private:
  const std::shared_ptr<Pipe> pipe_;
  const int side_;
};

Pipe::Pipe(World& world, Host& dialer, Host& other) : world_(world), hosts_{&dialer, &other} {}

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> Pipe::Ends() {
  return {std::make_unique<PipeEnd>(shared_from_this(), 0),
          std::make_unique<PipeEnd>(shared_from_this(), 1)};
}

void Pipe::WhenHeard(Event run) {
  for (Host* const host : hosts_) {
    if (!host->silent()) continue;
    return host->Hold([self = shared_from_this(), run = std::move(run)]() mutable {
      self->WhenHeard(std::move(run));
    });
  }
  run();
}

void Pipe::Send(int from, Frame frame) {
  if (cut_ || ends_[from] == nullptr) return;
  const int to = 1 - from;
  arrives_[to] = std::max(arrives_[to], world_.queue.now() + world_.LinkDelay());
  queued_[from] += frame.payload.size();
  world_.InBackground(arrives_[to] - world_.queue.now(),
                      [self = shared_from_this(), from, to, frame = std::move(frame)]() mutable {
                        self->WhenHeard([self, from, to, frame = std::move(frame)] {
                          self->queued_[from] -= frame.payload.size();
                          self->Deliver(to, frame);
                        });
                      });
}

void Pipe::Deliver(int to, const Frame& frame) {
  const bool of_the_log = frame.type != kControlFrame;
  const bool twice = of_the_log && world_.random.Percent(world_.config.double_percent);
  if (twice) world_.Count("frame doubled");
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    if (cut_ || ends_[to] == nullptr || ends_[to]->on_frame == nullptr) return;
    auto f = ends_[to]->on_frame;
    f(frame);
  }
}

void Pipe::EndAt(int side, int64_t delay, absl::Status status) {
  arrives_[side] = std::max(arrives_[side], world_.queue.now() + delay);
  world_.InBackground(arrives_[side] - world_.queue.now(),
                      [self = shared_from_this(), side, status = std::move(status)] {
                        self->WhenHeard([self, side, status] {
                          PipeEnd* const end = self->ends_[side];
                          if (end == nullptr || end->on_closed == nullptr) return;
                          auto f = std::exchange(end->on_closed, nullptr);
                          end->on_frame = nullptr;
                          f(status);
                        });
                      });
}

void Pipe::Close(int from) {
  EndAt(1 - from, world_.LinkDelay(), absl::OkStatus());
  EndAt(from, 2 * world_.config.link_delay, absl::OkStatus());
}

void Pipe::Gone(int side) {
  ends_[side] = nullptr;
  if (!cut_) EndAt(1 - side, world_.LinkDelay(), absl::OkStatus());
}

void Pipe::Cut() {
  if (std::exchange(cut_, true)) return;
  for (const int side : {0, 1}) {
    arrives_[side] = 0;
    EndAt(side, world_.random.Between(0, kSecond / 2), absl::UnavailableError("reset"));
  }
}

void Pipe::Silence() {
  if (std::exchange(cut_, true)) return;
  for (const int side : {0, 1}) {
    arrives_[side] = 0;
    EndAt(side, kMillisecond * kHostSilence.count(), absl::DeadlineExceededError("timed out"));
  }
}

bool Pipes::Blocked(const Host& a, const Host& b) const {
  const auto it = blocked_.find(std::minmax(&a, &b));
  return it != blocked_.end() && world_.queue.now() < it->second;
}

void Pipes::Block(const Host& a, const Host& b, int64_t time) {
  blocked_[std::minmax(&a, &b)] = world_.queue.now() + time;
  for (const auto& pipe : pipes_) {
    const auto live = pipe.lock();
    if (live == nullptr || !live->Joins(a) || !live->Joins(b)) continue;
    time % 2 == 0 ? live->Cut() : live->Silence();
  }
}

void Pipes::CutAll(const Host& host) {
  for (const auto& pipe : pipes_) {
    if (const auto live = pipe.lock(); live != nullptr && live->Joins(host)) live->Cut();
  }
}

std::unique_ptr<Link> Pipes::Dial(Host& from, const std::string& endpoint) {
  const std::string worker = endpoint.substr(0, endpoint.find(':'));
  Machine* const machine = world_.FindMachine(worker);
  if (machine == nullptr) {
    world_.Broken("link", "{} dials {}, which is no worker", from.worker(), worker);
    return nullptr;
  }
  Host& to = machine->host();
  if (from.silent() || to.silent() || !to.relay().alive() || Blocked(from, to)) return nullptr;
  std::erase_if(pipes_, [](const auto& pipe) { return pipe.expired(); });
  const auto pipe = std::make_shared<Pipe>(world_, from, to);
  pipes_.push_back(pipe);
  auto [here, there] = pipe->Ends();
  to.relay().Accept(std::move(there));
  return std::move(here);
}

}  // namespace fairway::sim
