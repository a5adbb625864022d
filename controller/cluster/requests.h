// SPDX-License-Identifier: Apache-2.0
// Runs requests of many arrays in turns. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_REQUESTS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/result_handles.h"
#include "controller/cluster/session.h"
#include "controller/cluster/worklist.h"

namespace fairway {

// Begins requests that name many arrays (many.h), goes on with them in later turns, and answers
// them.
//
// Invariant: a session has at most one, in its worklist, and takes no operation until it is over.
class Cluster::Requests {
 public:
  explicit Requests(State& state) : s(state) {}

  // many.h, and the files that make them.
  class ManyRequest;
  class MakeRequest;
  class CopyRequest;
  class RemakeRequest;
  class RemapRequest;
  class DeleteRequest;
  class DestructRequest;
  class ReleaseRequest;
  class WatchRequest;
  class ErrorsRequest;
  class CallRequest;

  // Does the first slice of the request; the session is busy until the rest is done.
  void Begin(Session& session, std::unique_ptr<LongRequest> request, Cluster::Done done,
             Cluster::Each each = nullptr);
  // The same for a request that makes nothing. Does nothing if there is no such session.
  void BeginEnding(SessionId session, std::unique_ptr<LongRequest> request, Cluster::Ended ended,
                   Cluster::Each each);
  // Does the whole request.
  absl::StatusOr<std::vector<uint64_t>> AtOnce(Session& session, LongRequest& request);
  // See Arrays::Watch.
  std::unique_ptr<LongRequest> NewWatch(Session& session, uint64_t token,
                                        std::vector<uint64_t> handles);
  // Checks or makes the handle of the next result. ALREADY_EXISTS: it is in use, or was given
  // twice.
  absl::Status AddHandle(Session& session, ResultHandles& handles) const;
  // See Executables::Execute.
  absl::StatusOr<std::unique_ptr<CallRequest>> NewCall(Session& session, uint64_t executable,
                                                       std::vector<uint64_t> args,
                                                       const ExecuteOptions& options,
                                                       std::vector<uint64_t> out);
  // Hands over the answer to a request that is over, at the end of the operation.
  void AnswerRequest(SessionId session, LongRequest& request);
  // The same for a request that was refused before it began.
  void AnswerAtOnce(SessionId session, Cluster::Done done, absl::Status refusal);
  // Does some more of the session's request.
  void GoOnRequest(SessionId session, Worklist& list);
  // Does the rest of the session's request or run, in this turn.
  void FinishBusy(SessionId session);

 private:
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_REQUESTS_H_
