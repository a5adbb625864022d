// SPDX-License-Identifier: Apache-2.0
// ControllerShell's part in callbacks: it stands between the executors and the router.
#include <algorithm>
#include <numeric>
#include <utility>

#include "controller/cluster/fleet.h"
#include "controller/daemon/controller_shell.h"

namespace fairway {

void ControllerShell::OnCallback(ExecutorId executor, CallbackCall call) {
  if (callbacks_ == nullptr)
    return hub_->Answer(executor,
                        {call.call, absl::UnimplementedError("no callbacks here"), {}, {}});
  auto caller = cluster_->fleet().CallerOf(executor, call.launch, call.device);
  callbacks_->Called(NowMs(), executor, std::move(call), std::move(caller));
}

void ControllerShell::OnCallbackGivenUp(ExecutorId executor, uint64_t call) {
  std::erase_if(results_, [&](const auto& entry) {
    return entry.second.executor == executor && entry.second.call == call;
  });
  if (callbacks_ != nullptr) callbacks_->GivenUp(executor, call);
}

void ControllerShell::FetchArguments(ExecutorId executor, const CallbackCall& call) {
  const ExecutorSpec* const spec = hub_->Spec(executor);
  if (spec == nullptr) return;  // the executor's loss will be told
  struct Gathering {
    absl::Status status;
    std::vector<BytesRef> bytes;
    size_t open = 1;
  };
  auto gathering = std::make_shared<Gathering>();
  gathering->bytes.resize(call.arguments.size());
  const auto arrive = [this, gathering, executor, incarnation = spec->incarnation,
                       number = call.call] {
    if (--gathering->open > 0) return;
    // A later registration of the executor numbers its calls anew.
    const ExecutorSpec* const now = hub_->Spec(executor);
    if (now == nullptr || now->incarnation != incarnation) return;
    if (!gathering->status.ok())
      return callbacks_->ArgumentsCame(executor, number, gathering->status);
    callbacks_->ArgumentsCame(executor, number, std::move(gathering->bytes));
  };
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const CallbackArray& argument = call.arguments[i];
    if (argument.bytes != nullptr) continue;
    ++gathering->open;
    Pull(*spec, CallbackTransfer(call.call), static_cast<int32_t>(i),
         ByteSize(argument.dtype, argument.shape).value_or(0),
         [alive = alive_, gathering, arrive, i](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
           if (!*alive) return;
           if (bytes.ok()) {
             gathering->bytes[i] = *std::move(bytes);
           } else if (gathering->status.ok()) {
             gathering->status = Annotate(bytes.status(), "the arguments of a callback");
           }
           arrive();
         });
  }
  // Posted, because the router must not be called from within its own call.
  loop_.Post("callback arguments", [alive = alive_, arrive] {
    if (*alive) arrive();
  });
}

void ControllerShell::AnswerCallback(ExecutorId executor, CallbackAnswer answer) {
  const int64_t bytes = std::accumulate(answer.results.begin(), answer.results.end(), int64_t{0},
                                        [](int64_t sum, const BytesRef& result) {
                                          return sum + static_cast<int64_t>(result->size());
                                        });
  const ExecutorSpec* const spec = hub_->Spec(executor);
  if (bytes > kInlineCallbackBytes && spec != nullptr && hub_->Connected(executor)) {
    answer.transfer = CallbackTransfer(next_results_++);
    answer.ticket = TicketFor(options_.cluster.data_key, answer.transfer, spec->incarnation);
    results_[answer.transfer] = {executor, answer.call, std::exchange(answer.results, {})};
  }
  hub_->Answer(executor, answer);
}

void ControllerShell::ServeResult(PullRequest request, DataPlane::Answer answer) {
  const auto it = results_.find(request.transfer);
  if (it == results_.end() || request.index < 0 ||
      static_cast<size_t>(request.index) >= it->second.results.size() ||
      it->second.results[request.index] == nullptr)
    return answer(Error(absl::StatusCode::kNotFound, "there is no result {} of callback {:x}",
                        request.index, request.transfer));
  BytesRef bytes = std::exchange(it->second.results[request.index], nullptr);
  const std::string_view view = bytes->view();
  answer(DataView{view, std::move(bytes)});
  const auto& rest = it->second.results;
  if (std::all_of(rest.begin(), rest.end(),
                  [](const BytesRef& b) { return b == nullptr || b->size() == 0; }))
    results_.erase(it);
}

}  // namespace fairway
