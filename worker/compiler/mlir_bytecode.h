// SPDX-License-Identifier: Apache-2.0
// The container of MLIR bytecode: reads and writes sections and tables without knowing any dialect.
// Layout: mlir.llvm.org/docs/BytecodeFormat (versions 4 to 6, which StableHLO artifacts have).
#ifndef FAIRWAY_WORKER_COMPILER_MLIR_BYTECODE_H_
#define FAIRWAY_WORKER_COMPILER_MLIR_BYTECODE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace fairway::mlir {

// Reads numbers. After a number that does not fit, ok() is false and all reads give 0 or empty.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return position_ >= bytes_.size(); }
  size_t position() const { return position_; }

  uint8_t Byte();
  uint64_t Number();
  int64_t Signed();
  // Reads a number, returns it without its lowest bit, and sets `flag` to that bit.
  uint64_t NumberWithFlag(bool& flag);
  std::string_view Bytes(uint64_t count);
  // Reads a count of things that take at least one byte each.
  uint64_t Count();
  std::vector<uint64_t> Numbers(uint64_t count);

 private:
  bool Have(uint64_t count);

  std::string_view bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

void AppendNumber(std::string& out, uint64_t number);
inline void AppendWithFlag(std::string& out, uint64_t number, bool flag) {
  AppendNumber(out, number << 1 | (flag ? 1 : 0));
}
// Appends a section without alignment.
void AppendSection(std::string& out, uint8_t id, std::string_view data);

constexpr uint8_t kIrSection = 4;

// An attribute or a type: in its dialect's own encoding (custom), or as text that ends with a 0.
struct Entry {
  int dialect = 0;
  bool custom = false;
  std::string bytes;
};

struct OpName {
  int dialect = 0;
  std::string_view name;
};

// The tables of a module, as views of the bytes that were read, which must outlive it. Not
// thread-safe.
class Module {
 public:
  // INVALID_ARGUMENT: not bytecode of a known version.
  static absl::StatusOr<Module> Read(std::string_view bytes);

  // Empty if there is no such string.
  std::string_view String(uint64_t index) const;
  bool HasString(std::string_view text) const;
  const Entry* Attribute(uint64_t index) const;
  // The operand bytes of an operation's properties.
  std::string_view Properties(uint64_t index) const;
  OpName Name(uint64_t index) const;
  // -1: there is none of that name.
  int Dialect(std::string_view name) const;
  std::string_view ir() const { return ir_; }
  std::string_view DialectName(int dialect) const;
  uint64_t num_attributes() const { return attributes_.size(); }
  uint64_t num_operations() const { return operations_.size(); }

  // Each returns the index of the new entry.
  uint64_t AddString(std::string_view text);
  int AddDialect(std::string_view name);
  uint64_t AddOperation(int dialect, std::string_view name);
  uint64_t AddAttribute(Entry entry);
  uint64_t AddType(Entry entry);
  uint64_t AddProperties(std::string bytes);
  std::vector<Entry>& types() { return types_; }
  // Renames an operation within its dialect; `index` < num_operations().
  void RenameOperation(uint64_t index, std::string_view name);

  // Returns the module with the added entries, and with `ir` as its operations.
  std::string Write(std::string_view ir) const;

 private:
  struct Section {
    uint8_t id = 0;
    uint64_t alignment = 1;
    std::string_view data;
  };
  struct Operation {
    int dialect = 0;
    uint64_t name = 0;
    bool registered = false;
  };
  absl::Status ReadStrings(std::string_view data);
  absl::Status ReadDialects(std::string_view data);
  absl::Status ReadEntries(std::string_view offsets, std::string_view data);
  std::string StringSection() const;
  std::string PropertySection() const;
  std::string DialectSection() const;
  std::pair<std::string, std::string> EntrySections() const;

  uint64_t version_ = 0;
  std::string_view header_;
  std::vector<Section> sections_;
  std::string_view ir_;
  std::deque<std::string> strings_;  // views of them must stay valid
  std::vector<uint64_t> dialects_;   // names
  std::string_view dialect_entries_;
  uint64_t old_dialects_ = 0;
  std::vector<Operation> operations_;
  std::vector<Entry> attributes_, types_;
  std::vector<std::string_view> properties_;
  std::deque<std::string> added_properties_;
};

// An operation in written form, without its regions. kNone: no attributes, or no properties.
struct WrittenOperation {
  static constexpr uint64_t kNone = ~uint64_t{0};
  std::string_view dialect, name;
  uint64_t attributes = kNone;  // the index of a dictionary
  uint64_t properties = kNone;
};

// Calls `visit` for each operation of the module, also within regions, until it fails.
// INVALID_ARGUMENT: the operations are unreadable, or nested deeper than 200 regions.
absl::Status ForEachOperation(const Module& module,
                              const std::function<absl::Status(const WrittenOperation&)>& visit);

}  // namespace fairway::mlir

#endif  // FAIRWAY_WORKER_COMPILER_MLIR_BYTECODE_H_
