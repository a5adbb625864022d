// SPDX-License-Identifier: Apache-2.0
// PjrtRuntime::Launch: checks, donation, Execute, completion.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "pjrt_c_api.h"
#include "worker/executor/runtime/launch_checks.h"
#include "worker/executor/runtime/pjrt/buffer.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/completions.h"
#include "worker/executor/runtime/pjrt/device_threads.h"
#include "worker/executor/runtime/pjrt/executable.h"
#include "worker/executor/runtime/pjrt/health.h"
#include "worker/executor/runtime/pjrt/launch_id.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/relayout.h"
#include "worker/executor/runtime/pjrt/slots.h"
#include "worker/ffi/host_calls.h"

namespace fairway {
namespace {

using pjrt::Buffer;
using pjrt::Executable;
using pjrt::Padded;
using pjrt::RawBuffer;

// The state of one execution within Launch.
struct Attempt {
  const LaunchRequest& request;
  const Executable& executable;
  // [device][argument]; each entry keeps the bytes in place.
  std::vector<std::vector<std::shared_ptr<RawBuffer>>> pins;
  // Arguments that PJRT must not write into: those of the caller, and those with another reader.
  std::vector<int64_t> non_donatable;
  struct Taken {
    Buffer* buffer;
    size_t d, a;
  };
  std::vector<Taken> consumed;  // inputs that this launch took over
  // Inputs that were copied into the order of dimensions that the program takes. The copies are
  // passed in their places.
  std::vector<Taken> relaid;
  std::vector<std::shared_ptr<RawBuffer>> copies;  // one for each of relaid

  Buffer& input(size_t d, size_t a) const { return static_cast<Buffer&>(*request.inputs[d][a]); }
};

absl::Status PinInputs(Attempt& attempt) {
  for (size_t d = 0; d < attempt.request.inputs.size(); ++d) {
    auto& pins = attempt.pins.emplace_back();
    for (size_t a = 0; a < attempt.request.inputs[d].size(); ++a) {
      auto pin = attempt.input(d, a).Pin();
      if (!pin.ok()) return InvalidArgument("argument {}: {}", a, Text(pin.status()));
      pins.push_back(*std::move(pin));
    }
  }
  return absl::OkStatus();
}

// Returns the first known failure of an input, in argument order; OK: none is known.
absl::Status KnownFailure(const Attempt& attempt) {
  for (size_t d = 0; d < attempt.request.inputs.size(); ++d) {
    for (size_t a = 0; a < attempt.request.inputs[d].size(); ++a) {
      const auto known = attempt.input(d, a).outcome()->Peek();
      if (known.has_value() && !known->ok()) return *known;
    }
  }
  return absl::OkStatus();
}

// Refuses a gang whose inputs are not all ready: one that waits for an input would hold up all
// later gangs, and one with a failed input would abort the process.
absl::Status CheckGangReady(const Attempt& attempt) {
  for (size_t d = 0; d < attempt.request.inputs.size(); ++d) {
    for (size_t a = 0; a < attempt.request.inputs[d].size(); ++a) {
      const auto known = attempt.input(d, a).outcome()->Peek();
      if (known.has_value() && known->ok()) continue;
      return Error(absl::StatusCode::kFailedPrecondition,
                   "gang {} of {}: argument {} on device {} {}", attempt.request.launch_id,
                   attempt.executable.name(), a, attempt.request.devices[d],
                   known.has_value() ? "has failed: " + Describe(*known) : "is not ready");
    }
  }
  return absl::OkStatus();
}

// Whether it ends within Execute if nothing is under way on its devices.
bool EndsAtOnce(const Attempt& attempt) {
  return attempt.executable.brief() && CheckGangReady(attempt).ok();
}

bool OtherOrder(const Attempt& attempt, size_t d, size_t a) {
  return attempt.input(d, a).spec().order != attempt.executable.passing()[a].order;
}

// Waits for arguments that must be computed before Launch goes on. An argument that will be copied
// may still be computed by an earlier program on the same device. And a program that calls its
// client must not pass it values from a failed call: the plugin does not know of that failure.
void AwaitArguments(const Attempt& attempt) {
  for (size_t d = 0; d < attempt.request.inputs.size(); ++d) {
    for (size_t a = 0; a < attempt.request.inputs[d].size(); ++a) {
      if (!attempt.executable.calls_back() && !OtherOrder(attempt, d, a)) continue;
      auto ended = std::make_shared<std::promise<void>>();
      attempt.input(d, a).outcome()->OnDone([ended](const absl::Status&) { ended->set_value(); });
      ended->get_future().wait();
    }
  }
}

// Copies arguments whose dimensions have another order in memory than the program was compiled for.
// Arguments that were computed here usually have the right order.
absl::Status Relayout(Attempt& attempt) {
  for (size_t d = 0; d < attempt.request.inputs.size(); ++d) {
    for (size_t a = 0; a < attempt.request.inputs[d].size(); ++a) {
      if (!OtherOrder(attempt, d, a)) continue;
      Buffer& input = attempt.input(d, a);
      auto copy =
          pjrt::CopyInOrder(input, attempt.pins[d][a], attempt.executable.passing()[a].order);
      if (!copy.ok()) return Annotate(std::move(copy).status(), fmt::format("argument {}", a));
      attempt.relaid.push_back({&input, d, a});
      attempt.copies.push_back(*std::move(copy));
    }
  }
  return absl::OkStatus();
}

// Takes the donated inputs over. If an input has another reader (a host view, or a second argument
// that is the same buffer), its bytes stay: the index is passed as non-donatable.
void TakeDonated(Attempt& attempt) {
  attempt.non_donatable.assign(attempt.request.non_donatable.begin(),
                               attempt.request.non_donatable.end());
  const auto& passing = attempt.executable.passing();
  const auto& kept = attempt.request.non_donatable;
  for (size_t a = 0; a < passing.size(); ++a) {
    if (!passing[a].donated) continue;
    if (std::find(kept.begin(), kept.end(), static_cast<int>(a)) != kept.end()) continue;
    bool shared = false;
    for (size_t d = 0; d < attempt.request.inputs.size(); ++d) {
      attempt.input(d, a).Consume();
      shared |= attempt.pins[d][a].use_count() > 1;
      attempt.consumed.push_back({&attempt.input(d, a), d, a});
    }
    if (shared) attempt.non_donatable.push_back(static_cast<int64_t>(a));
  }
}

struct Started {
  std::vector<std::vector<PJRT_Buffer*>> outputs;  // [device][output]
  std::vector<PJRT_Event*> events;                 // [device]; nullptr: it did not start
  absl::Status failure;                            // why some devices did not start
};

// Runs `count` devices from `first` on. All devices: one call, in which XLA gives each device a
// thread, since they may wait for each other. One device: on this thread if the program is cheap.
absl::Status ExecuteOn(const pjrt::Client& client, const Attempt& attempt, size_t first,
                       size_t count, Started& started) {
  std::vector<std::vector<PJRT_Buffer*>> arguments(count);
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t d = 0; d < count; ++d) {
    for (const auto& pin : attempt.pins[first + d]) arguments[d].push_back(pin->raw());
    for (size_t r = 0; r < attempt.relaid.size(); ++r) {
      const Attempt::Taken& place = attempt.relaid[r];
      if (place.d == first + d) arguments[d][place.a] = attempt.copies[r]->raw();
    }
    argument_lists.push_back(arguments[d].data());
    output_lists.push_back(started.outputs[first + d].data());
  }
  Padded<PJRT_ExecuteOptions> options;
  options->launch_id = pjrt::LaunchIdForPjrt(attempt.request.launch_id);
  options->non_donatable_input_indices = attempt.non_donatable.data();
  options->num_non_donatable_input_indices = attempt.non_donatable.size();
  Padded<PJRT_LoadedExecutable_Execute_Args> args;
  args->executable = attempt.executable.program().raw();
  args->options = &options.args;
  args->argument_lists = argument_lists.data();
  args->num_devices = count;
  args->num_args = attempt.executable.parameters().size();
  args->output_lists = output_lists.data();
  args->device_complete_events = started.events.data() + first;
  if (attempt.executable.devices().empty() || count < attempt.request.devices.size())
    args->execute_device = client.device(attempt.request.devices[first]);
  return pjrt::Call(client.api(), client.api()->PJRT_LoadedExecutable_Execute, args);
}

Started NoneYet(const Attempt& attempt) {
  const size_t devices = attempt.request.devices.size();
  Started started;
  started.outputs.assign(devices, std::vector<PJRT_Buffer*>(attempt.executable.outputs().size()));
  started.events.assign(devices, nullptr);
  return started;
}

// On an error nothing has started.
absl::StatusOr<Started> Execute(const pjrt::Client& client, const Attempt& attempt,
                                std::mutex& gang_calls) {
  const size_t devices = attempt.request.devices.size();
  Started started = NoneYet(attempt);
  // XLA's CPU client runs one gang at a time: each begins when the one before it has ended. Two
  // calls at once could take the same one for the one before them.
  std::unique_lock one_call(gang_calls, std::defer_lock);
  if (devices > 1 && client.is_cpu() && !attempt.executable.separable()) one_call.lock();
  // On CPU a gang of small programs is ten times cheaper without a thread for each device.
  const size_t step = attempt.executable.separable() && client.is_cpu() ? 1 : devices;
  for (size_t d = 0; d < devices && started.failure.ok(); d += step) {
    started.failure = ExecuteOn(client, attempt, d, step, started);
    if (d == 0 && !started.failure.ok()) return started.failure;
  }
  return started;
}

// The same for a gang that meets briefly and has its devices for itself. A call for all devices
// wakes a thread of XLA's pool for each device twice, and these look for more work for as long as
// several such gangs take.
absl::StatusOr<Started> ExecuteAtOnce(const pjrt::Client& client, const Attempt& attempt,
                                      pjrt::DeviceThreads& threads) {
  Started started = NoneYet(attempt);
  std::vector<absl::Status> failures(attempt.request.devices.size());
  threads.Run(attempt.request.devices,
              [&](size_t d) { failures[d] = ExecuteOn(client, attempt, d, 1, started); });
  for (absl::Status& failure : failures) started.failure.Update(std::move(failure));
  if (std::ranges::count(started.events, nullptr) == std::ssize(started.events))
    return started.failure;
  return started;
}

// Returns whether a gang whose Execute failed with `why` may have begun on some of its devices. The
// plugin does not say so, but it checks arguments before it begins.
bool LeavesOthersWaiting(const pjrt::Client& client, const Executable& executable, size_t devices,
                         const absl::Status& why) {
  return !client.is_cpu() && devices > 1 && !executable.separable() &&
         why.code() != absl::StatusCode::kInvalidArgument;
}

// Waits for the inputs one after the other. Sets `outcome` to the first failure among them, in
// argument order, or to `own` if there is none. Posts each step, so that long chains of failing
// programs do not deepen the stack.
void SetFirstCause(std::shared_ptr<pjrt::Completions> completions,
                   std::vector<std::shared_ptr<Outcome>> inputs, size_t next,
                   std::shared_ptr<Outcome> outcome, absl::Status own) {
  if (next == inputs.size()) return outcome->Set(std::move(own));
  Outcome* input = inputs[next].get();
  input->OnDone([=](absl::Status status) mutable {
    completions->Begin();
    completions->Post([=]() mutable {
      if (status.ok()) {
        SetFirstCause(completions, std::move(inputs), next + 1, std::move(outcome), std::move(own));
      } else {
        outcome->Set(std::move(status));
      }
      completions->End();
    });
  });
}

// Sets `outcome` when device `d` has ended, with the status of `event` (taken over). Keeps the
// donated inputs until then: if a program still waits for a donated PJRT buffer, destroying that
// buffer blocks for ever.
void FollowDevice(const std::shared_ptr<pjrt::Completions>& completions,
                  const std::shared_ptr<pjrt::Health>& health, const PJRT_Api* api,
                  const Attempt& attempt, size_t d, PJRT_Event* event,
                  std::shared_ptr<ffi::CallingLaunch> calling, std::shared_ptr<Outcome> outcome) {
  std::vector<std::shared_ptr<Outcome>> origins;
  for (size_t a = 0; a < attempt.request.inputs[d].size(); ++a) {
    origins.push_back(attempt.input(d, a).outcome());
  }
  std::vector<std::shared_ptr<RawBuffer>> taken;
  for (const Attempt::Taken& t : attempt.consumed) {
    if (t.d == d) taken.push_back(attempt.pins[d][t.a]);
  }
  for (size_t r = 0; r < attempt.relaid.size(); ++r) {
    if (attempt.relaid[r].d == d) taken.push_back(attempt.copies[r]);
  }
  pjrt::HandOver(
      completions, api, event,
      [completions, health, device = attempt.request.devices[d], origins = std::move(origins),
       taken = std::move(taken), calling = std::move(calling),
       outcome = std::move(outcome)](absl::Status status) mutable {
        taken.clear();
        if (!status.ok()) health->Suspect(device, status);
        if (calling != nullptr && !calling->failure().ok()) {
          return outcome->Set(calling->failure());
        }
        // The plugin does not know of failed calls to clients.
        if (status.ok() && !ffi::AnyCallHasFailed()) return outcome->Set(std::move(status));
        SetFirstCause(std::move(completions), std::move(origins), 0, std::move(outcome),
                      std::move(status));
      });
}

// Calls `done` when all devices have ended, with the first failure in their order.
struct GangEnd {
  std::mutex mutex;
  std::condition_variable all_ended;
  size_t left;                         // guarded by mutex
  std::vector<absl::Status> statuses;  // guarded by mutex
  // Set: a device may wait for the others; then `health` is told if it waits for ever.
  const std::shared_ptr<pjrt::Health> health;
  absl::AnyInvocable<void(absl::Status)> done;

  GangEnd(size_t devices, std::shared_ptr<pjrt::Health> h, absl::AnyInvocable<void(absl::Status)> d)
      : left(devices), statuses(devices), health(std::move(h)), done(std::move(d)) {}
  void Ended(size_t d, absl::Status status) {
    absl::Status first;
    {
      const std::lock_guard lock(mutex);
      statuses[d] = std::move(status);
      if (--left > 0) return;
      for (const absl::Status& s : statuses) first.Update(s);
    }
    all_ended.notify_all();
    std::move(done)(std::move(first));
  }
  // Returns whether all devices have ended within `limit`.
  bool AllEndWithin(std::chrono::seconds limit) {
    std::unique_lock lock(mutex);
    return all_ended.wait_for(lock, limit, [this] { return left == 0; });
  }
};

// XLA's pool looks for memory for 10 s before a device fails for lack of it.
constexpr std::chrono::seconds kOthersEnd{15};

// A device of a gang with collectives has failed with `why`. The other devices end by themselves,
// or wait for it for ever, and then only the end of the process ends their wait. A thread finds out
// which.
void FindOutAboutOthers(std::shared_ptr<GangEnd> end, size_t d, const absl::Status& why) {
  std::thread([end = std::move(end), d, why] {
    if (end->AllEndWithin(kOthersEnd)) return;
    end->health->Lost(Error(absl::StatusCode::kInternal,
                            "device {} of a gang failed, and others have not ended {} s later; "
                            "they may wait for it for ever: {}",
                            d, kOthersEnd.count(), Describe(why)));
  }).detach();
}

std::vector<std::unique_ptr<DeviceBuffer>> MakeOutputs(
    const std::shared_ptr<const pjrt::Client>& client, const Executable& executable, int device,
    const std::vector<PJRT_Buffer*>* raw, const std::shared_ptr<Outcome>& outcome) {
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  for (size_t o = 0; o < executable.outputs().size(); ++o) {
    const Executable::Output& output = executable.outputs()[o];
    buffers.push_back(std::make_unique<Buffer>(
        Buffer::Spec{{output.dtype, output.shape, device}, output.memory_kind, output.order},
        raw == nullptr ? nullptr : std::make_shared<RawBuffer>(client, (*raw)[o]), outcome));
  }
  return buffers;
}

// Undoes TakeDonated for inputs that the plugin did not take.
void RestoreDonated(Attempt& attempt) {
  for (auto& [buffer, d, a] : attempt.consumed) {
    auto& pin = attempt.pins[d][a];
    if (pin != nullptr && !pin->IsDeleted()) buffer->Restore(pin);
  }
}

// Tells `health` about a launch that did not start.
void TellHealth(pjrt::Health& health, bool others_wait, const Attempt& attempt,
                const absl::Status& why) {
  if (!others_wait) return health.Suspect(attempt.request.devices[0], why);
  health.Lost(Error(absl::StatusCode::kInternal,
                    "a gang on {} devices was not started on all of them, and those on which it "
                    "was may wait for the others for ever: {}",
                    attempt.request.devices.size(), Describe(why)));
}

// Makes the results of a launch that does not start because an input has failed.
LaunchResult FailedOutputs(const std::shared_ptr<pjrt::Client>& client, const Attempt& attempt,
                           const absl::Status& failed) {
  LaunchResult result;
  for (const int device : attempt.request.devices)
    result.outputs.push_back(
        MakeOutputs(client, attempt.executable, device, nullptr, Outcome::Of(failed)));
  return result;
}

}  // namespace

absl::StatusOr<LaunchResult> PjrtRuntime::Launch(const LaunchRequest& request,
                                                 absl::AnyInvocable<void(absl::Status)> done) {
  if (request.executable == nullptr) return InvalidArgument("no executable to launch");
  const auto& executable = static_cast<const Executable&>(*request.executable);
  Attempt attempt{request, executable, {}, {}, {}, {}, {}};
  // The plugin compares only sizes in bytes: it would read an s32 as an f32.
  FAIRWAY_RETURN_IF_ERROR(CheckLaunch(request, info_, executable.devices(), executable.parameters(),
                                      [](DeviceBuffer& buffer) -> const BufferSpec& {
                                        return static_cast<Buffer&>(buffer).spec();
                                      }));
  const size_t devices = request.devices.size();
  const bool gang = devices > 1;
  // The program may wait for its inputs: when a stream comes to this program, it has computed them.
  const bool may_wait =
      !gang || executable.separable() || info_.gang_inputs == ArrivalRule::kExternal;
  if (!may_wait) FAIRWAY_RETURN_IF_ERROR(CheckGangReady(attempt));
  FAIRWAY_RETURN_IF_ERROR(PinInputs(attempt));
  AwaitArguments(attempt);

  if (absl::Status failed = may_wait ? KnownFailure(attempt) : absl::OkStatus(); !failed.ok()) {
    TakeDonated(attempt);
    LaunchResult result = FailedOutputs(client_, attempt, failed);
    std::move(done)(std::move(failed));
    return result;
  }

  FAIRWAY_RETURN_IF_ERROR(Relayout(attempt));
  const bool at_once =
      gang && client_->is_cpu() && executable.meets_briefly() && slots_->TakeAlone(request.devices);
  if (!at_once) slots_->Take(request.devices, EndsAtOnce(attempt));
  TakeDonated(attempt);
  std::shared_ptr<ffi::CallingLaunch> calling;
  if (executable.calls_back()) {
    calling = ffi::BeginCalling(pjrt::LaunchIdForPjrt(request.launch_id), request.launch_id,
                                request.host_calls, !gang);
  }
  auto started = at_once ? ExecuteAtOnce(*client_, attempt, *threads_)
                         : Execute(*client_, attempt, gang_calls_);
  if (at_once) slots_->LetOthersIn(request.devices);
  if (!started.ok()) {
    slots_->Give(request.devices);
    RestoreDonated(attempt);
    if (calling != nullptr && !calling->failure().ok()) return calling->failure();
    absl::Status why = Annotate(std::move(started).status(), executable.name());
    TellHealth(*health_, LeavesOthersWaiting(*client_, executable, devices, why), attempt, why);
    return why;
  }

  const bool meets = gang && !executable.separable() && !client_->is_cpu();
  auto end = std::make_shared<GangEnd>(devices, meets ? health_ : nullptr,
                                       [slots = slots_, on = request.devices, calling,
                                        done = std::move(done)](absl::Status status) mutable {
                                         slots->Give(on);
                                         if (status.ok() && calling != nullptr)
                                           status = calling->failure();
                                         std::move(done)(std::move(status));
                                       });
  LaunchResult result;
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (size_t d = 0; d < devices; ++d) {
    outcomes.push_back(std::make_shared<Outcome>());
    result.outputs.push_back(MakeOutputs(
        client_, executable, request.devices[d],
        started->events[d] == nullptr ? nullptr : &started->outputs[d], outcomes.back()));
  }
  for (size_t d = 0; d < devices; ++d) {
    outcomes[d]->OnDone([end, d](absl::Status status) {
      if (!status.ok() && end->health != nullptr) FindOutAboutOthers(end, d, status);
      end->Ended(d, std::move(status));
    });
    if (started->events[d] == nullptr) {
      outcomes[d]->Set(started->failure);
    } else {
      FollowDevice(completions_, health_, client_->api(), attempt, d, started->events[d], calling,
                   outcomes[d]);
    }
  }
  return result;
}

}  // namespace fairway
