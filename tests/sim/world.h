// SPDX-License-Identifier: Apache-2.0
// A whole cluster in one thread and virtual time: one controller, machines, clients, links with
// random delays, faults. The seed determines everything.
#ifndef FAIRWAY_TESTS_SIM_WORLD_H_
#define FAIRWAY_TESTS_SIM_WORLD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/device.h"
#include "tests/sim/basics.h"
#include "tests/sim/code.h"
#include "transport/data_plane.h"
#include "worker/executor/executor_core.h"

namespace fairway::sim {

class Client;
class Controller;
class Intruder;
class SessionOwner;
class Machine;
class Pipes;
struct Gang;
// Takes the answer to a PullRequest.
using Pulled = std::function<void(absl::StatusOr<uint64_t>)>;

// What is given, beside the seed.
struct WorldKind {
  ArrivalRule gang_inputs = ArrivalRule::kReady;
  bool small = false;   // few machines, sessions and operations: many seeds in little time
  bool relays = false;  // the log of the first island goes through relays in any case
};

// What the seed determines about a world before it starts.
struct Config {
  int islands = 1;
  int sessions = 1;
  int operations = 50;        // of each session
  int64_t memory = 0;         // bytes per device, 0: no limit
  int64_t link_delay = 1000;  // at most, microseconds; control links
  int64_t data_delay = 1000;
  int64_t think = 2000;     // between two operations of a session
  int64_t duration = 2000;  // of a computation, at most
  int losses = 0;           // executors lost
  int cuts = 0;             // connections that break and come back in time
  int64_t link_grace = 0;   // microseconds
  int controller_losses = 0;
  int stops = 0;                // of the controller's loop, for a while
  int cut_percent = 0;          // of pulls: they fail though both ends live
  int lone_percent = 0;         // of launches on an executor: they fail there alone
  int full_percent = 0;         // of launches and receives: the runtime runs out of memory
  int64_t deadline = 0;         // for silent executors, microseconds
  int hostile = 0;              // sessions that ask for as much as they can, beside a neighbour
  std::string reserved;         // the neighbour's island
  bool scarce_records = false;  // so little memory for records that hostile sessions are refused
  int failing_percent = 0;      // of computations
  // Relays of the islands' logs; 0: none.
  size_t fanout = 0;
  int large_island = 0;  // executors of the first island, if it has relays
  std::chrono::milliseconds relay_patience{2000};
  size_t relay_link_bytes = 1 << 20;
  size_t relay_child_bytes = 32 << 20;
  int relay_faults = 0;      // relays that stop, and links between hosts that break
  bool late_relay = false;   // one relay is late again and again for a while
  int double_percent = 0;    // of frames of the log between hosts: they come twice
  int behind_percent = 0;    // of executors that come back: they say that they lack entries
  int64_t turn_delay = 200;  // at most, before a turn that the core wants
  int64_t fetched_for = 0;   // at most, before a client takes what it has fetched
  uint64_t executor_units = ExecutorCore::kTurnUnits;    // of a turn of an executor
  size_t executor_shards = ExecutorCore::kShardsAtOnce;  // of a launch that it does at once
  int64_t unit_time = 1;                          // microseconds that the core takes for a unit
  bool blocks = false;                            // executors link steps that follow each other
  int gangs_at_work = kGangsAtWork;               // started at once by one executor, at most
  ArrivalRule gang_inputs = ArrivalRule::kReady;  // of WorldKind
  ClusterOptions cluster;
};

class World {
 public:
  World(uint64_t seed, bool verbose, WorldKind kind);
  ~World();

  // The time, as what ships takes it.
  std::chrono::nanoseconds Time() const { return std::chrono::microseconds(queue.now()); }
  // Runs to the end, or to the first broken rule.
  void Run();

  Random random;
  EventQueue queue;
  Verdict verdict;
  Config config;
  std::map<std::string, uint64_t> counts;  // coverage
  std::unique_ptr<Pipes> pipes;
  std::vector<std::unique_ptr<Machine>> machines;
  std::unique_ptr<Controller> controller;  // nullptr: it is down
  std::unique_ptr<Intruder> intruder;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<SessionOwner>> others;  // hostile ones and their neighbour
  std::vector<SessionOwner*> owners;                  // of all sessions
  std::map<ExecutableId, Code> codes;
  uint64_t next_code = 1;
  uint64_t next_incarnation = 1;
  int64_t next_pid = 1000;
  uint64_t epoch = 0;  // of the controller
  uint64_t steps = 0;  // calls of the core

  template <typename... Args>
  void Trace(fmt::format_string<Args...> text, Args&&... args) {
    if (verbose_) Print(fmt::format(text, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Broken(std::string_view rule, fmt::format_string<Args...> text, Args&&... args) {
    verdict.Broken(
        std::string(rule),
        fmt::format("{} (at {} us)", fmt::format(text, std::forward<Args>(args)...), queue.now()));
  }
  void Count(const std::string& what) { ++counts[what]; }
  // Most units of one operation or turn of the core, with work that cannot be interrupted.
  uint64_t MostUnits() const { return config.cluster.turn_units + 6000; }

  // Runs it in the controller's loop, which handles one event after the other in order of arrival.
  // Each takes as long as the core's units of work say.
  void ToController(Event run);

  // For heartbeats, which go on when everything else has ended.
  void InBackground(int64_t delay, Event run);
  size_t background = 0;  // such events
  // The payload of the frame that the hub takes now.
  const std::string* received = nullptr;

  // This registration may be declared lost from now on. It must be, `within` this much of the
  // controller's time; negative: it need not be.
  void MayBeLost(uint64_t session, int64_t within);
  void GivenUpBy(uint64_t session);  // the executor takes the controller for lost
  void WentOn(uint64_t session);     // over a new connection
  // The supervisor gives this cause for the end of this registration.
  void Accounted(uint64_t session, std::string cause) { accounts_[session] = std::move(cause); }
  void Registered(uint64_t session) { registered_.insert(session); }
  void Lost(const Machine& machine, uint64_t session, const absl::Status& cause);

  std::set<std::string> cordoned;  // islands; at this controller
  std::set<std::string> drained;
  int64_t drains = 0;              // how often one was
  std::set<SessionId> sequential;  // sessions that have bound a sequential program

  // The machines, as bits, that each kind of failure has hurt, so it may be reported.
  uint64_t cut = 0;
  uint64_t alone = 0;
  uint64_t full = 0;
  // Wraps the answer to a pull between machines with these bits: the pull may be cut instead.
  Pulled MayBeCut(Pulled done, uint64_t bits);

  // The delay of a message.
  int64_t LinkDelay() { return random.Between(1, config.link_delay); }
  // Within this a relay answers that nothing holds up.
  std::chrono::milliseconds RelaySoon() const {
    return std::max(std::chrono::milliseconds(20),
                    std::chrono::milliseconds(2 * config.link_delay / kMillisecond));
  }
  int64_t DataDelay() { return random.Between(1, config.data_delay); }

  // The gang of a launch; made when the controller launches it.
  std::shared_ptr<Gang>& GangOf(uint64_t controller, NodeId node, LaunchId launch) {
    return gangs_[{controller, node, launch}];
  }
  // A launched sequence. The steps that its members start with its ids meet as gangs do.
  struct SequenceLaunch {
    LaunchId last;
    std::vector<std::pair<Machine*, uint64_t>> members;  // with the session of each
    std::vector<Machine*> places;                        // by position in its device list
    bool broken = false;                                 // a member is gone
    // Steps that a member does not run, by first id: the last id, and why.
    std::multimap<LaunchId, std::pair<LaunchId, absl::Status>> left_out;
  };
  SequenceLaunch& SequenceOf(uint64_t controller, const std::string& island, LaunchId first) {
    return sequences_[{controller, island, first}];
  }
  std::shared_ptr<Gang> GangOfStep(uint64_t controller, const Machine& machine, LaunchId launch,
                                   ExecutableId code);
  // `machine` leaves out these steps: their gangs break.
  void LeftOut(uint64_t controller, const Machine& machine, LaunchId first, LaunchId last,
               const absl::Status& cause);
  // `machine` has ended this session: its gangs break.
  void BreakGangs(Machine* machine, uint64_t session);
  // `cause`: the error that its members get.
  void BreakGang(const std::shared_ptr<Gang>& gang, const absl::Status& cause = absl::OkStatus());
  void FinishGang(const std::shared_ptr<Gang>& gang);

  Machine* FindMachine(const std::string& worker);
  int IndexOf(const Machine* machine) const;

  void HurtExecutor(Machine& machine);
  void LoseController();
  void StartController();
  void StopController();

 private:
  void Print(const std::string& line);
  void WakeLoop();
  void Setup(uint64_t seed, WorldKind kind);
  void SetupSize(bool small);
  void SetupMachines(int most_executors);
  void SetupFaults();
  void SetupHostile();
  // Decides by numbers of its own, so that worlds without relays are what they were.
  void SetupRelays(uint64_t seed, WorldKind kind);
  void HurtRelay();
  void MakeRelayLate();
  // Nobody hurts executors, hosts, links or the controller.
  bool Unhurt() const;
  // Operators, as SetupRelays.
  void SetupCordons(uint64_t seed);
  void CordonOrDrain(Random& r);
  void CheckRelays();
  void MakeSessions();
  void ScheduleFaults();
  void CutLinks(Machine& machine);
  // The executor's connection breaks, and perhaps those of its supervisor. The other end of each
  // hears of it `later`.
  void Cut(Machine& machine, bool hub_first, int64_t later, bool executor, bool supervisor);
  void CutAndBack(Machine& machine);
  void StopExecutor(Machine& machine);
  void SilenceHost(Machine& machine);
  void CheckLosses();
  void Tick();
  bool ClientsDone() const;
  void CheckEmpty();

  enum class Phase : uint8_t { kBusy, kSettling, kReading, kClosing };

  const bool verbose_;
  bool ended_ = false;
  Phase phase_ = Phase::kBusy;
  int64_t phase_since_ = 0;
  std::map<std::string, int64_t> down_since_;  // islands
  std::set<std::string> given_up_;             // told to this controller, not back since
  std::map<std::tuple<uint64_t, NodeId, LaunchId>, std::shared_ptr<Gang>> gangs_;
  using OnIsland = std::tuple<uint64_t, std::string, LaunchId>;  // by controller
  std::map<OnIsland, SequenceLaunch> sequences_;                 // by their first id
  std::map<OnIsland, std::shared_ptr<Gang>> steps_;
  // The sequence of such a step. nullptr: there is none.
  SequenceLaunch* SequenceOfStep(const OnIsland& step);
  int down_ = 0;                   // faults to come
  std::deque<Event> inbox_;        // of the controller's loop
  bool loop_wakes_ = false;        // an event that continues it is queued
  int64_t free_at_ = 0;            // it is busy or stopped until then
  std::set<uint64_t> registered_;  // at the controller that runs now
  struct Excuse {
    // Times of the controller's; negative: none.
    int64_t must_by = -1;  // it is lost by then
    // It is lost by then, unless its connection has gone on: a controller that was stopped may hear
    // of the cut and of the new connection together.
    int64_t back_by = -1;
  };
  std::map<uint64_t, std::string> accounts_;
  std::map<uint64_t, Excuse> excuses_;  // registrations that may be lost
};

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_WORLD_H_
