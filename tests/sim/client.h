// SPDX-License-Identifier: Apache-2.0
// A client that acts like a JAX process, in one session after another, with a reference
// interpreter. Every answer is compared with what the interpreter makes of the operations before it
// (rules G3, T1, F1).
#ifndef FAIRWAY_TESTS_SIM_CLIENT_H_
#define FAIRWAY_TESTS_SIM_CLIENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "controller/cluster/executable_spec.h"
#include "controller/cluster/virtual_device.h"
#include "core/reshard.h"
#include "graph/lowering.h"
#include "tests/sim/code.h"
#include "tests/sim/model.h"
#include "tests/sim/session_owner.h"

namespace fairway::sim {

class Machine;
class World;

inline constexpr CopySemantics kSemantics[] = {
    CopySemantics::kAlwaysCopy, CopySemantics::kReuseInput, CopySemantics::kDonateInput};

inline Shape Vector(int64_t elements) { return Shape{{elements}}; }

// What the interpreter needs of a bound program.
struct SimProgram {
  Program program;
  ProgramBinding binding;
  ArraySpec type;                             // of all values except scalars, over positions
  std::vector<std::vector<DeviceId>> slices;  // all of one length
  std::vector<IslandId> islands;              // of the slices
  bool on_drained = false;                    // one of these was drained when it was to be bound
  int64_t drains = 0;                         // World::drains then
};

class Client final : public SessionOwner {
 public:
  Client(World& world, int number);

  void Begin() override;
  SessionId session() const override { return session_; }
  bool done() const override { return done_; }
  bool waiting() const override { return !requests_.empty() || !unanswered_.empty(); }

  void OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) override;
  void OnBound(uint64_t key, const absl::StatusOr<uint64_t>& program) override;
  // Called before the core learns of it.
  void ExecutorLost(const Machine& machine);
  void IslandGivenUp(const std::string& island);
  void ControllerLost();

  // Fetches every array once more.
  void ReadAll();
  // Gives up all arrays, or just closes the session.
  void End() override;
  void ReportWaiting() override;

 private:
  // What an answer may be, fixed when the request is made.
  struct Request {
    bool fetch = false;
    struct Item {
      std::string never;  // always this text: unknown, deleted or an error array
      bool gone = false;  // surely fails for lack of machines or memory
      std::vector<std::shared_ptr<ModelGroup>> groups;
    };
    std::vector<Item> items;
    uint64_t value = 0;  // fetch
    std::string what;
  };

  void Step();
  void StepIn(int64_t time);
  void Next();
  void Open();
  void Close();

  // Operations
  void DoPut();
  void DoExecute();
  void DoProgram();
  void DoCopy();
  void DoAssemble();
  void DoDisassemble();
  void DoReplicatedShard();
  void DoRemap();
  void DoReshard();
  void DoBitcast();
  void DoMakeError();
  void DoDelete();
  void DoDestruct();
  void DoLook();
  void DoWatch();
  void DoFetch();
  void DoWrong();
  void TwoResultsOfOneHandle();
  void DoReadAll();

  // Parts of them
  void Provide(SessionId session, NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes,
               int64_t delay);
  ArraySpec RandomSpec();
  std::vector<int32_t> RandomDevices(size_t count, bool one_island);
  // Arrays with the same devices as `like`.
  std::vector<uint64_t> Alike(const ModelArray& like);
  uint64_t AnyHandle();  // a live one; 0: none
  uint64_t OutHandle() { return next_handle_++; }
  Code* FindCode(const std::vector<const ModelArray*>& args, const std::vector<int32_t>& devices);
  Code* MakeCode(const std::vector<const ModelArray*>& args, const std::vector<int32_t>& devices);
  uint64_t Bind(const Code& code, const std::vector<int32_t>& devices);
  void ForgetUnusedCode();
  void Executed(const Code& code, const std::vector<uint64_t>& args, const ExecuteOptions& options,
                const ExecuteResult& result);

  // Programs (programs.cc)
  struct ProgramValue;
  // Binds a new program for arrays of that type. Returns its handle; 0: none.
  uint64_t BindProgram(const ModelArray& like);
  // Returns what it makes; none if it was refused.
  std::vector<uint64_t> RunProgram(uint64_t handle, std::vector<uint64_t> args,
                                   const ExecuteOptions& options);
  // The results of a graph. `run`: the last node of the run, or one before it.
  std::vector<ProgramValue> Interpret(const SimProgram& program, size_t graph,
                                      const std::vector<ProgramValue>& arguments, NodeId run);
  ProgramValue Computed(const SimProgram& program, const ComputeNode& compute,
                        const std::vector<ProgramValue>& inputs, NodeId run);
  // Whether the first slice and the type of values are the array's.
  bool MadeFor(const SimProgram& program, const ModelArray& like) const;
  // Whether it has one group and equal replicas, so any source of its parts will do.
  static bool OfOnePiece(const ModelArray& array);
  static std::vector<const ArgumentNode*> Arguments(const SimProgram& program);

  Request::Item ItemOf(uint64_t handle, bool fetch) const;
  void Ask(bool fetch, const std::vector<uint64_t>& handles, std::string_view what);
  // The answer to ExecuteOptions::watch.
  void Await(uint64_t token, NodeId node, std::shared_ptr<ModelGroup> outcome);

  // Runs an operation. Answers wait meanwhile: they may come before their request is known.
  void Operate(void (Client::*run)());

  // Answers
  void Answered(uint64_t token, bool fetch, const absl::StatusOr<BytesRef>& result);
  bool MayBeFine(const Request::Item& item) const;
  bool Explains(const Request::Item& item, const absl::Status& status) const;
  bool Explains(const ModelGroup& group, const absl::Status& status) const;
  uint64_t BitsOf(DeviceId device) const;
  uint64_t On(const std::vector<DeviceId>& devices) const;
  Resharding::Place PlaceOf(DeviceId device) const;
  std::vector<int32_t> ByIsland(const std::vector<int32_t>& devices) const;
  using PiecesOf = std::function<std::vector<ShardPiece>(int32_t shard)>;
  // What a reshard or a bitcast makes, some of it from what it has made before.
  ModelArray Remade(const ModelArray& source, const ArraySpec& spec, bool may_alias,
                    const PiecesOf& pieces_of);
  void Assemble(const ModelArray& source, const ModelArray& array, int32_t shard,
                const std::vector<ShardPiece>& pieces);
  void DonateAll(uint64_t handle);
  DeviceId DeviceOf(int32_t id) const;
  const VirtualDevice& Virtual(int32_t id) const;
  bool Expect(const absl::Status& got, std::string_view want, std::string_view what);
  // For requests that may take several turns: the expected answer.
  Cluster::Done Expects(std::string want, std::string what, size_t results);
  Cluster::Ended Expects(std::string want, std::string what);
  // The same for calls; those that are refused also leave the error in their results.
  Cluster::Done ExpectsCall(const std::string& refusal, const std::string& what,
                            const std::vector<uint64_t>& out);
  void Refused(const std::vector<uint64_t>& out, const absl::Status& error);
  // Call it when such a request has begun.
  void Began();

  World& world_;
  const int number_;
  SessionId session_;
  bool done_ = false;
  int left_ = 0;  // operations
  uint64_t next_handle_ = 0;
  uint64_t next_token_ = 1;
  uint64_t next_value_ = 1;
  uint64_t lost_ = 0;  // bits of machines lost in this session's life
  std::vector<VirtualDevice> devices_;
  std::vector<int32_t> usable_;  // not a neighbour's
  std::map<uint64_t, ModelArray> arrays_;
  std::map<uint64_t, ExecutableId> executables_;
  std::map<uint64_t, SimProgram> programs_;
  std::map<uint64_t, SimProgram> binding_;  // by key: programs that are being bound
  uint64_t last_bound_ = 0;                 // the handle of the latest one that was bound
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, std::string> unanswered_;  // requests that may take several turns
  bool operating_ = false;
  struct Early {
    uint64_t token = 0;
    bool fetch = false;
    absl::StatusOr<BytesRef> result;
  };
  std::deque<Early> early_;  // answers that came while it operated
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_CLIENT_H_
