// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/model.h"

#include <algorithm>
#include <utility>

#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "fairway/v1/native.pb.h"
#include "fairway/v1/program.pb.h"
#include "transport/frame.h"

namespace fairway::scale {
namespace {

constexpr size_t kFramesPerTurn = 128;  // frames that one wait of the controller's loop yields
constexpr int kRepeats = 5;             // of the controller's turns
constexpr uint64_t kStep = 1;           // the computation's handle
constexpr uint64_t kProgram = 2;
constexpr uint64_t kFirstArray = 10;
constexpr uint64_t kSetUp = uint64_t{1} << 40;  // ids of requests that are not calls

ExecutorSpec SpecOf(const Options& options, int host) {
  ExecutorSpec spec;
  spec.worker = fmt::format("host{:04}", host);
  spec.island = "island0";
  spec.incarnation = Incarnation(1000 + host);
  spec.runtime = "sim";
  spec.platform_name = "sim";
  spec.device_kind = "sim";
  spec.memory_kinds = {"device"};
  spec.island_workers = options.hosts;
  spec.gang_inputs = options.in_order ? ArrivalRule::kExternal : ArrivalRule::kReady;
  spec.num_devices = options.devices_per_host;
  spec.device_memory = int64_t{1} << 34;
  spec.data_endpoint = fmt::format("host{:04}:1", host);
  spec.data_key = {static_cast<uint64_t>(host), 1};
  return spec;
}

v1::NativeProgram Step(int devices) {
  v1::NativeProgram step;
  step.set_name("step");
  v1::NativeParameter* parameter = step.add_parameters();
  parameter->set_dtype(static_cast<int32_t>(DType::kF32));
  parameter->add_global_dims(devices);
  parameter->add_tiles(devices);
  v1::NativeStep* reduce = step.add_steps();
  reduce->set_kernel("all_reduce");
  reduce->add_operands(0);
  v1::NativeStep* scale = step.add_steps();
  scale->set_kernel("scale");
  scale->add_operands(1);
  scale->set_factor(1.0 / devices);
  v1::NativeResult* result = step.add_results();
  result->set_value(2);
  result->add_tiles(devices);
  return step;
}

void SetType(int devices, v1::ArrayType* type) {
  type->set_dtype(static_cast<int32_t>(DType::kF32));
  type->add_dims(devices);
  type->add_tiles(devices);
}

}  // namespace

Model::Model(const Options& options)
    : options_(options), controller_(options.hosts, options.relay_fanout) {
  for (int host = 0; host < options_.hosts; ++host) {
    hosts_.push_back(
        std::make_unique<Host>(host, SpecOf(options_, host), options_.link, &timeline_, this));
    if (options_.relay_fanout == 0) continue;
    relays_.push_back(std::make_unique<Relay>(host, SpecOf(options_, host).worker,
                                              fmt::format("relay:{}", host + 1), options_.link,
                                              &timeline_, this));
  }
}

Model::~Model() = default;

// ---- Requests ----

v1::Request Model::CompileRequest() const {
  const int devices = options_.hosts * options_.devices_per_host;
  v1::Request request;
  v1::Compile* compile = request.mutable_compile();
  compile->set_executable(kStep);
  *compile->mutable_native() = Step(devices);
  for (int d = 0; d < devices; ++d) compile->add_devices(d);
  return request;
}

v1::Request Model::ProgramRequest() const {
  const int devices = options_.hosts * options_.devices_per_host;
  v1::Request request;
  request.mutable_bind_program()->set_executable(kProgram);
  v1::BoundProgram* bound = request.mutable_bind_program()->mutable_program();
  v1::Program* program = bound->mutable_program();
  program->set_name("chain");
  v1::ProgramSlice* slice = program->add_slices();
  slice->set_name("all");
  slice->set_devices(devices);
  v1::Computation* step = program->add_computations();
  step->set_name("step");
  step->set_native(Step(devices).SerializeAsString());
  step->set_devices(devices);
  SetType(devices, step->add_parameters());
  SetType(devices, step->add_results());
  v1::Graph* graph = program->add_graphs();
  SetType(devices, graph->add_nodes()->mutable_argument()->mutable_type()->mutable_array());
  for (int i = 0; i < options_.chain; ++i)
    graph->add_nodes()->mutable_compute()->add_inputs()->set_node(i);
  graph->add_results()->set_node(options_.chain);
  v1::BoundProgram::Devices* on = bound->add_slices();
  for (int d = 0; d < devices; ++d) on->add_devices(d);
  return request;
}

v1::Request Model::PutRequest(uint64_t handle) const {
  const int devices = options_.hosts * options_.devices_per_host;
  v1::Request request;
  v1::Put* put = request.mutable_put();
  put->set_array(handle);
  put->mutable_spec()->set_dtype(static_cast<int32_t>(DType::kF32));
  put->mutable_spec()->add_dims(devices);
  put->mutable_spec()->mutable_sharding()->add_tiles(devices);
  for (int d = 0; d < devices; ++d) {
    put->mutable_spec()->mutable_sharding()->add_devices(d);
    put->add_bytes_of_shard(0);
  }
  put->add_bytes()->set_data(std::string(4, '\0'));
  return request;
}

v1::Request Model::CallRequest(uint64_t number) const {
  v1::Request request;
  v1::Call* call = request.mutable_call();
  call->set_executable(options_.chain > 1 ? kProgram : kStep);
  call->add_arguments(kFirstArray + number - 1);
  call->add_results(kFirstArray + number);
  return request;
}

// ---- The client ----

void Model::SendToController(std::vector<v1::Request> requests) {
  v1::ClientMessage message;
  for (v1::Request& request : requests) *message.add_requests() = std::move(request);
  Controller::Incoming incoming;
  incoming.message = message.SerializeAsString();
  traffic_.client_bytes += incoming.message.size();
  timeline_.At(timeline_.now() + options_.network,
               [this, incoming = std::move(incoming)]() mutable { Arrive(std::move(incoming)); });
}

void Model::SendCall(uint64_t number) {
  v1::Request call = CallRequest(number);
  call.set_id(number);
  v1::Request release;
  release.mutable_release()->add_arrays(kFirstArray + number - 1);
  SendToController({std::move(call), std::move(release)});
}

void Model::Answered(const std::string& bytes) {
  traffic_.client_bytes += bytes.size();
  v1::ServerMessage message;
  if (!message.ParseFromString(bytes)) failure_ = absl::InternalError("answers that do not parse");
  for (const v1::Answer& answer : message.answers()) {
    if (answer.has_error() && failure_.ok())
      failure_ =
          Error(absl::StatusCode::kInternal, "request {}: {}", answer.id(), answer.error().text());
    ++answers_;
    if (answer.id() >= kSetUp) continue;
    ++calls_done_;
    if (calls_ < calls_wanted_) SendCall(++calls_);
  }
}

absl::Status Model::RunUntil(const std::function<bool()>& done) {
  while (failure_.ok() && !done() && timeline_.Step()) {
  }
  for (const auto& host : hosts_) {
    if (failure_.ok() && !host->failure().ok()) failure_ = host->failure();
  }
  for (const auto& relay : relays_) {
    if (failure_.ok() && !relay->failure().ok()) failure_ = relay->failure();
  }
  if (failure_.ok() && !done())
    failure_ = Error(absl::StatusCode::kInternal, "the model stands still after {} gangs: {}",
                     ended_.size(),
                     controller_.cluster().inspection().Unfinished().empty()
                         ? "nothing is unfinished"
                         : controller_.cluster().inspection().Unfinished().front());
  return failure_;
}

absl::Status Model::Ask(std::vector<v1::Request> requests) {
  const uint64_t wanted = answers_ + requests.size();
  uint64_t id = kSetUp;
  for (v1::Request& request : requests) request.set_id(id++);
  SendToController(std::move(requests));
  return RunUntil([&] { return answers_ >= wanted; });
}

void Model::Tell(std::vector<v1::Request> requests) { SendToController(std::move(requests)); }

absl::Status Model::Put(uint64_t handle) {
  v1::Request watch;
  watch.mutable_watch()->add_arrays(handle);
  return Ask({PutRequest(handle), watch});
}

absl::Status Model::Register() {
  if (std::exchange(registered_, true)) return absl::OkStatus();
  for (const auto& relay : relays_) relay->Start();
  for (const auto& host : hosts_) host->Start();
  size_t registered = 0;
  return RunUntil([&] {
    while (registered < hosts_.size() && hosts_[registered]->registered()) ++registered;
    return registered == hosts_.size();
  });
}

absl::Status Model::Compile() {
  compiled_ = true;
  FAIRWAY_RETURN_IF_ERROR(Register());
  v1::Request hello;
  hello.mutable_hello()->set_min_version(1);
  hello.mutable_hello()->set_max_version(1);
  FAIRWAY_RETURN_IF_ERROR(Ask({hello}));
  FAIRWAY_RETURN_IF_ERROR(Ask({CompileRequest()}));
  if (options_.chain > 1) FAIRWAY_RETURN_IF_ERROR(Ask({ProgramRequest()}));
  return absl::OkStatus();
}

absl::Status Model::Start() {
  if (!compiled_) FAIRWAY_RETURN_IF_ERROR(Compile());
  FAIRWAY_RETURN_IF_ERROR(Put(kFirstArray - 1));
  v1::Request call = CallRequest(0);
  call.set_id(kSetUp);
  SendToController({std::move(call)});
  return RunUntil([this] { return gangs_begun_ > 0; });
}

Result Model::Run() {
  Result result;
  const auto fail = [&](const absl::Status& status) {
    result.error = Text(status);
    return result;
  };
  const auto ahead = static_cast<size_t>(options_.ahead);
  const auto measured = static_cast<size_t>(options_.gangs);
  const auto chain = static_cast<size_t>(options_.chain);
  if (absl::Status s = RunUntil([&] { return ended_.size() >= chain; }); !s.ok()) return fail(s);
  ended_.clear();  // of the first call
  // The rate is steady from the client's first wait for an end until its last call.
  calls_wanted_ = ahead + measured + ahead;
  while (calls_ < ahead) SendCall(++calls_);
  if (absl::Status s = RunUntil([&] { return ended_.size() >= ahead * chain; }); !s.ok())
    return fail(s);
  const Traffic before = traffic();
  std::vector<std::pair<Nanos, Nanos>> relays_before;
  for (const auto& relay : relays_) relays_before.emplace_back(relay->cpu(), relay->busy());
  const Nanos begin = ended_.back();
  const size_t first_turn = turns_.size();
  const size_t first = ended_.size();
  if (absl::Status s = RunUntil([&] { return ended_.size() >= (ahead + measured) * chain; });
      !s.ok())
    return fail(s);
  const Traffic after = traffic();
  const size_t end_turn = turns_.size();
  const auto gangs = static_cast<double>(ended_.size() - first);
  for (size_t i = 0; i < relays_.size(); ++i) {
    const double all =
        static_cast<double>(relays_[i]->busy() - relays_before[i].second) / gangs / 1000;
    if (all <= result.relay_all_us) continue;
    result.relay_all_us = all;
    result.relay_us =
        static_cast<double>(relays_[i]->cpu() - relays_before[i].first) / gangs / 1000;
  }
  result.relays = static_cast<int>(controller_.relays().count);
  result.depth = controller_.relays().depth;
  const Nanos end = ended_.back();
  if (absl::Status s = RunUntil([&] { return calls_done_ >= calls_wanted_; }); !s.ok())
    return fail(s);
  result.period = static_cast<Nanos>(static_cast<double>(end - begin) / gangs);
  const absl::StatusOr<std::vector<Nanos>> repeats = RepeatTurns(first_turn, end_turn);
  if (!repeats.ok()) return fail(repeats.status());
  for (const Nanos cpu : *repeats)
    result.repeats_us.push_back(static_cast<double>(cpu) / gangs / 1000);
  result.code_us = result.repeats_us[kRepeats / 2];
  result.cold_us = static_cast<double>(after.code - before.code) / gangs / 1000;
  result.sockets_us = static_cast<double>(after.sockets - before.sockets) / gangs / 1000;
  result.frames_out = static_cast<double>(after.frames_out - before.frames_out) / gangs;
  result.frames_in = static_cast<double>(after.frames_in - before.frames_in) / gangs;
  result.bytes_out = static_cast<double>(after.bytes_out - before.bytes_out) / gangs;
  result.bytes_in = static_cast<double>(after.bytes_in - before.bytes_in) / gangs;
  result.host_us = static_cast<double>(after.hosts - before.hosts) / gangs / options_.hosts / 1000;
  result.max_turn_frames = after.max_turn_frames;
  return result;
}

absl::StatusOr<std::vector<Nanos>> Model::RepeatTurns(size_t begin, size_t end) const {
  std::vector<Nanos> cpu;
  for (int i = 0; i < kRepeats; ++i) {
    Controller again(options_.hosts, options_.relay_fanout);
    FAIRWAY_ASSIGN_OR_RETURN(cpu.emplace_back(), again.Repeat(std::span(turns_).first(end), begin));
  }
  std::ranges::sort(cpu);
  return cpu;
}

Model::Traffic Model::traffic() const {
  Traffic out = traffic_;
  for (const auto& host : hosts_) out.hosts += host->cpu();
  return out;
}

// ---- The network and the controller's turns ----

void Model::FromHost(int host, Nanos at, Frame frame) { ToController(host, at, std::move(frame)); }

void Model::FromRelay(int relay, Nanos at, Frame frame) {
  ToController(options_.hosts + relay, at, std::move(frame));
}

Relay& Model::RelayAt(const std::string& endpoint) {
  return *relays_.at(std::stoul(endpoint.substr(endpoint.find(':') + 1)) - 1);
}

void Model::FromController(int link, const Frame& frame) {
  if (link < options_.hosts) return hosts_[static_cast<size_t>(link)]->OnFrame(frame);
  relays_[static_cast<size_t>(link - options_.hosts)]->OnFrame(frame);
}

void Model::ToController(int link, Nanos at, Frame frame) {
  timeline_.At(at + options_.network, [this, link, frame = std::move(frame)]() mutable {
    const size_t bytes = kFrameHeaderBytes + frame.payload.size();
    ++traffic_.frames_in;
    traffic_.bytes_in += bytes;
    port_in_ = std::max(port_in_, timeline_.now()) +
               static_cast<Nanos>(static_cast<double>(bytes) * 8 / options_.gigabits);
    timeline_.At(port_in_, [this, link, frame = std::move(frame)]() mutable {
      Arrive({link, std::move(frame), {}});
    });
  });
}

void Model::Arrive(Controller::Incoming incoming) {
  inbox_.push_back(std::move(incoming));
  if (std::exchange(turn_scheduled_, true)) return;
  timeline_.At(std::max(timeline_.now(), controller_busy_), [this] { Turn(); });
}

void Model::Turn() {
  std::vector<Controller::Incoming> in;
  Nanos sockets = 0;
  while (!inbox_.empty() && in.size() < kFramesPerTurn) {
    if (inbox_.front().link >= 0) sockets += options_.link.receive;
    in.push_back(std::move(inbox_.front()));
    inbox_.pop_front();
  }
  traffic_.max_turn_frames = std::max(traffic_.max_turn_frames, static_cast<int>(in.size()));
  Controller::Turn turn = controller_.Run(in);
  turns_.push_back({timeline_.now(), std::move(in), turn.sent()});
  sockets += options_.link.send * static_cast<Nanos>(turn.frames.size());
  traffic_.code += turn.cpu;
  traffic_.sockets += sockets;
  controller_busy_ = timeline_.now() + turn.cpu + sockets;
  for (auto& [link, frame] : turn.frames) {
    const size_t bytes = kFrameHeaderBytes + frame.payload.size();
    ++traffic_.frames_out;
    traffic_.bytes_out += bytes;
    port_out_ = std::max(port_out_, controller_busy_) +
                static_cast<Nanos>(static_cast<double>(bytes) * 8 / options_.gigabits);
    timeline_.At(port_out_ + options_.network,
                 [this, link, frame = std::move(frame)] { FromController(link, frame); });
  }
  if (!turn.answers.empty()) {
    timeline_.At(controller_busy_ + options_.network,
                 [this, answers = std::move(turn.answers)] { Answered(answers); });
  }
  turn_scheduled_ = !inbox_.empty();
  if (turn_scheduled_) timeline_.At(controller_busy_, [this] { Turn(); });
}

// ---- The devices ----

void Model::Launched(int host, Nanos at, const Launch& launch) {
  Gang& gang = gangs_[launch.launch_id];
  gang.nodes.resize(hosts_.size());
  gang.nodes[static_cast<size_t>(host)] = launch.node;
  gang.last = std::max(gang.last, at);
  if (++gang.begun < hosts_.size()) return;
  ++gangs_begun_;
  // An all-reduce: it ends everywhere once the devices of the last host have begun and computed.
  const Nanos end = std::max(gang.last, devices_busy_) + options_.computation;
  devices_busy_ = end;
  timeline_.At(end, [this, nodes = std::move(gang.nodes)] {
    ended_.push_back(timeline_.now());
    for (size_t h = 0; h < hosts_.size(); ++h) hosts_[h]->OnLaunchEnd(nodes[h]);
  });
  gangs_.erase(launch.launch_id);
}

}  // namespace fairway::scale
