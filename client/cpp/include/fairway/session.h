// SPDX-License-Identifier: Apache-2.0
// A connection to a controller.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_SESSION_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_SESSION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fairway/array.h"
#include "fairway/executable.h"
#include "fairway/export.h"
#include "fairway/future.h"
#include "fairway/native.h"
#include "fairway/program.h"
#include "fairway/status.h"
#include "fairway/types.h"

namespace fairway::client {

class Connection;

// An island: devices with one launch order. A program runs on devices of one slice; arrays may lie
// on several.
struct Slice {
  std::string name;
  std::string runtime;  // "pjrt": StableHLO; "host", "sim": native programs
  std::string platform_name;
  std::string platform_version;
  std::string device_kind;
  std::vector<std::string> memory_kinds;  // the first is the default
  std::vector<int> devices;               // their ids
};

// A device that the session may use.
struct Device {
  int id = 0;  // its index in Session::devices()
  int slice = 0;
  int local_ordinal = 0;  // within its executor
  std::string worker;
};

struct ConnectOptions {
  std::string tenant = "default";
  std::chrono::milliseconds timeout{10000};
  // PEM file of the CA that has signed the controller's certificate: the session speaks TLS, and
  // only with a controller. Empty: no TLS.
  std::string tls_ca = {};
  // File that has this client's token (`fairway token create`), or /dev/fd/N; with tls_ca. Then the
  // token says whose the session is, and `tenant` does not count. Empty: no token.
  std::string token_file = {};
};

// Options of the compiler. The defaults fit programs that JAX exports.
struct CompileOptions {
  // Their product is the number of devices. Both 0: as many partitions as devices.
  int64_t num_replicas = 0;
  int64_t num_partitions = 0;
  bool use_spmd_partitioning = true;
  bool use_shardy_partitioner = true;  // programs exported by JAX 0.8 and later need it
  // Options of the compiler itself; those that name files are refused.
  std::vector<std::pair<std::string, std::variant<std::string, bool, int64_t, double>>>
      compiler_options;
};

// Options of Bind.
struct BindOptions {
  // True: a run prepares each sequence and transfer only when its inputs are computed, which costs
  // a round trip to the controller each; a program whose next step depends on data must work like
  // that. False: all are prepared at once, and follow each other without the controller. For
  // comparing the two (docs/benchmarks.md, stages).
  bool sequential = false;
};

// The bytes for a new array.
struct HostBytes {
  const void* data = nullptr;  // dense, major to minor
  DType dtype = DType::kInvalid;
  Shape shape;
  // Set: `data` is read later, while this object lives, and is not copied where its parts lie
  // together. nullptr: `data` is read before Put returns.
  std::shared_ptr<const void> keep_alive = nullptr;
};

// One session. When it ends, everything that it owns on the cluster is freed. Thread-safe, except
// moving and destroying it.
class Session {
 public:
  FAIRWAY_API ~Session();  // calls Close
  FAIRWAY_API Session(Session&&) noexcept;
  FAIRWAY_API Session& operator=(Session&&) noexcept;

  // Fixed while the session lives.
  FAIRWAY_API const std::vector<Slice>& slices() const;
  FAIRWAY_API const std::vector<Device>& devices() const;
  // "fairway-controller 0.1.0"
  FAIRWAY_API const std::string& server() const;
  // OK while the session is open; then the reason why it ended.
  FAIRWAY_API Status status() const;

  FAIRWAY_API Array Put(const HostBytes& bytes, const Sharding& sharding);
  // Copies `values`.
  template <typename T>
  Array Put(const std::vector<T>& values, Shape shape, const Sharding& sharding) {
    static_assert(DTypeOf<T>() != DType::kInvalid && !std::is_same_v<T, bool>);
    const size_t given = values.size();
    size_t wanted = 1;
    for (const int64_t extent : shape) wanted *= static_cast<size_t>(extent);
    if (given != wanted)
      return MakeError({DTypeOf<T>(), std::move(shape), sharding},
                       Status(StatusCode::kInvalidArgument, "put: " + std::to_string(given) +
                                                                " values for an array of " +
                                                                std::to_string(wanted)));
    return Put(HostBytes{values.data(), DTypeOf<T>(), std::move(shape)}, sharding);
  }
  // Makes an array that holds an error.
  FAIRWAY_API Array MakeError(const ArraySpec& spec, const Status& error);
  // Makes one array whose shards are these arrays, of one shard each. Nothing moves.
  FAIRWAY_API Array Assemble(const ArraySpec& spec, std::span<const Array> shards);

  // `program`: MLIR, as text, bytecode or portable artifact (jax.export makes these). `devices`: of
  // one slice, in the order of the device assignment.
  FAIRWAY_API Future<Result<Executable>> CompileStableHlo(std::string_view program,
                                                          const std::vector<int>& devices,
                                                          const CompileOptions& options = {});
  FAIRWAY_API Future<Result<Executable>> Compile(const NativeProgram& program,
                                                 const std::vector<int>& devices);

  // Gives a program devices, so that it can be called. `devices`: for each slice of the program, in
  // order, as many devices as it has, all of one island. Computations that were compiled before are
  // not compiled again. INVALID_ARGUMENT names the wrong node of the program.
  FAIRWAY_API Future<Result<Executable>> Bind(const ProgramBuilder& program,
                                              const std::vector<std::vector<int>>& devices,
                                              const BindOptions& options = {});

  // Becomes OK when all arrays are computed, or holds the error of the first failed one in this
  // order.
  FAIRWAY_API Future<Status> Ready(std::span<const Array> arrays);
  // Becomes OK when the controller has carried out all earlier requests.
  FAIRWAY_API Future<Status> Ping();

  // Ends the session; futures that wait get CANCELLED. Returns when no callback of this session
  // runs any more, unless a callback calls it.
  FAIRWAY_API void Close();

 private:
  friend class Access;
  explicit Session(std::shared_ptr<Connection> connection);
  std::shared_ptr<Connection> connection_;
};

// Connects to a controller. `address`: "host:port", "host" (port 29000) or "[v6]:port", each with
// or without "grpc://". INVALID_ARGUMENT: none of these, or a wrong `tls_ca` or `token_file`.
// UNAUTHENTICATED, PERMISSION_DENIED: the controller wants a token, or another. UNAVAILABLE: nobody
// answers there, one of the two speaks TLS and the other does not, who answers is not believed to
// be the controller, or no island is up. UNIMPLEMENTED: the server there does not know this
// service. FAILED_PRECONDITION: versions do not fit.
FAIRWAY_API Result<Session> Connect(const std::string& address, const ConnectOptions& options = {});

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_SESSION_H_
