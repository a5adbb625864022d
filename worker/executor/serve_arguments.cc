// SPDX-License-Identifier: Apache-2.0
// ExecutorSession: serves the arguments of large callbacks, which the controller pulls.
#include <utility>

#include "worker/executor/executor_session.h"

namespace fairway {

void ExecutorSession::ServeArgument(PullRequest request, DataPlane::Answer answer) const {
  const uint64_t call = request.transfer.value & ~kCallbackTransfers;
  // Its ticket has proved who asks.
  auto bytes = request.from == controller_ && context_.client_calls != nullptr
                   ? context_.client_calls->Argument(call, request.index)
                   : nullptr;
  if (bytes == nullptr)
    return answer(Error(absl::StatusCode::kNotFound, "callback {} has no argument {} (any more)",
                        call, request.index));
  const std::string_view view = bytes->view();
  answer(DataView{view, std::move(bytes)});
}

}  // namespace fairway
