// SPDX-License-Identifier: Apache-2.0
// The state behind the handles, and the one way to it. Private to this folder.
#ifndef FAIRWAY_CLIENT_CPP_ACCESS_H_
#define FAIRWAY_CLIENT_CPP_ACCESS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/connection.h"
#include "core/sharding.h"
#include "fairway/array.h"
#include "fairway/executable.h"
#include "fairway/native.h"
#include "fairway/program.h"
#include "fairway/v1/native.pb.h"
#include "fairway/v1/program.pb.h"

namespace fairway::client {

// The state of an Array, shared by its copies. The last copy releases the handle.
struct ArrayState {
  ~ArrayState() {
    if (handle != 0) connection->ReleaseArray(handle);
  }
  std::shared_ptr<Connection> connection;
  uint64_t handle = 0;  // 0: an error that the controller does not know of
  std::shared_ptr<const ArraySpec> spec;
  Status error;
};

// The state of an Executable, shared by its copies. The last copy releases the handle.
struct ExecutableState {
  ~ExecutableState() {
    if (handle != 0) connection->ReleaseExecutable(handle);
  }
  std::shared_ptr<Connection> connection;
  uint64_t handle = 0;
  std::string name;
  std::vector<ArraySpec> parameters, results;
  std::vector<std::shared_ptr<const ArraySpec>> shared_results;  // the same, shared by the arrays
  std::vector<bool> donated;
  ProgramMemory memory;
  std::map<std::string, double> cost;
};

// Makes the public handles, and opens them for this folder.
class Access {
 public:
  static Array Make(std::shared_ptr<ArrayState> state) { return Array(std::move(state)); }
  static Executable Make(std::shared_ptr<ExecutableState> state) {
    return Executable(std::move(state));
  }
  static Session Make(std::shared_ptr<Connection> connection) {
    return Session(std::move(connection));
  }
  static const std::shared_ptr<ArrayState>& Of(const Array& array) { return array.state_; }
  static const v1::NativeProgram& Of(const NativeProgram& program);
  static const v1::Program& Of(const ProgramBuilder& builder);
  // Returns an error that the message cannot express and with which Compile or Bind refuses the
  // program; OK: there is none.
  static const Status& ErrorOf(const NativeProgram& program);
  static const Status& ErrorOf(const ProgramBuilder& builder);
  // Makes a builder to bind; nothing can be added to it.
  static ProgramBuilder Make(v1::Program program);

  // Returns why a request over `connection` cannot name this array; OK: it can.
  static Status CheckUse(const Array& array, const Connection* connection);
};

// Makes an array that `handle` names or, if `sent` is an error, one that holds this error.
Array NewArray(const std::shared_ptr<Connection>& connection, uint64_t handle,
               std::shared_ptr<const ArraySpec> spec, const Status& sent);
Array ErrorArray(std::shared_ptr<const ArraySpec> spec, Status error);

// ---- Conversions (convert.cc) ----

Status FromError(const v1::Error& error);
Status StatusOf(const v1::Answer& answer);
Status FromAbsl(const absl::Status& status);
void ToProto(const Sharding& sharding, v1::Sharding* proto);
void ToProto(const ArraySpec& spec, v1::ArraySpec* proto);
ArraySpec FromProto(const v1::ArraySpec& proto);
// Checks the spec and the shapes of its shards. INVALID_ARGUMENT: there is no such array.
absl::StatusOr<::fairway::ArraySpec> ToCore(const ArraySpec& spec);

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_ACCESS_H_
