// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/rewrite.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "worker/compiler/mlir_bytecode.h"
#include "worker/compiler/program_attributes.h"

namespace fairway {
namespace {

using mlir::Axes;
using mlir::CallNumbers;
using mlir::Cursor;
using mlir::Declared;
using mlir::Mesh;

constexpr std::string_view kPlacement = "annotate_device_placement";
constexpr std::string_view kUnpinned = "unpinned_host";
// The indexes of a function's properties: the arguments' attributes, the type, the results'
// attributes, name, visibility.
constexpr size_t kArguments = 0, kResults = 2, kName = 3;
constexpr int kDeepest = 200;  // nested regions or calls

// The bits of an operation's mask: which parts follow.
constexpr uint8_t kHasAttributes = 1, kHasResults = 2, kHasOperands = 4, kHasSuccessors = 8,
                  kHasRegions = 16, kHasUseOrders = 32, kHasProperties = 64;

absl::Status Unserved(std::string_view why) {
  return Error(absl::StatusCode::kUnimplemented,
               "a program with unreduced shardings is not served: {}", why);
}

Axes Union(const Axes& a, const Axes& b) {
  Axes out{a.known && b.known, a.names};
  if (!out.known) return {};
  out.names.insert(b.names.begin(), b.names.end());
  return out;
}

// The known facts about a function of the program.
struct Function {
  std::string name;
  std::vector<Axes> arguments, results;
  std::vector<Declared> wanted;  // of its results
  std::set<size_t> owed;         // results that are whole and must become unreduced
  std::vector<Axes> passed;      // by the calls seen in this walk; `called` counts them
  int called = 0;
};

// One operation, without its regions.
struct Operation {
  uint64_t name = 0, location = 0, attributes = 0, properties = 0;
  uint8_t mask = 0;
  std::string_view dialect, kind;
  std::vector<uint64_t> results, operands, successors;  // results: types
  std::string orders;                                   // orders of uses, unchanged
  bool numbered = false;                                // operands have their final numbers
};

// Reads the operations and writes them again, some of them as custom calls. Not thread-safe.
class Rewriter {
 public:
  // `placed`: placements become barriers. `replicated`: results, by their ranks.
  Rewriter(mlir::Module& module, const v1::CompileOptions& options, bool placed,
           std::map<size_t, size_t> replicated)
      : module_(module),
        attributes_(module),
        options_(options),
        placed_(placed),
        replicated_(std::move(replicated)) {}

  bool AnyUnreduced() const { return attributes_.AnyUnreduced(); }

  absl::StatusOr<std::string> Rewrite() {
    // After the first walk the arguments of functions are known; after the next, those of functions
    // that they call.
    std::map<std::string, Function> before;
    for (int walk = 0; walk < kDeepest; ++walk) {
      before = functions_;
      for (auto& [name, function] : functions_) function.called = 0;
      out_.clear();
      changed_ = 0;
      Cursor cursor(module_.ir());
      values_.clear();
      next_ = 0;
      Block(cursor, {}, 0, 0);
      if (!cursor.ok() || !cursor.at_end()) Fail("its operations are unreadable");
      if (!status_.ok()) return status_;
      for (auto& [name, function] : functions_) {
        if (function.called > 0) function.arguments = function.passed;
      }
      if (walk > 0 && Same(before)) break;
    }
    return changed_ > 0 ? module_.Write(out_) : std::string();
  }

  // The program's results that must be in that kind of memory. After Rewrite.
  std::set<size_t> ResultsIn(std::string_view memory_kind) const {
    std::set<size_t> out;
    const auto main = functions_.find("main");
    if (main == functions_.end()) return out;
    for (size_t i = 0; i < main->second.wanted.size(); ++i) {
      if (main->second.wanted[i].memory_kind == memory_kind) out.insert(i);
    }
    return out;
  }

 private:
  bool Same(const std::map<std::string, Function>& before) const {
    return std::ranges::equal(before, functions_, [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.arguments == b.second.arguments &&
             a.second.results == b.second.results && a.second.owed == b.second.owed;
    });
  }

  void Fail(std::string_view why) {
    if (status_.ok()) status_ = Unserved(why);
  }

  Axes Of(uint64_t value) const { return value < values_.size() ? values_[value].axes : Axes(); }

  void Define(const Axes& axes, uint64_t type) {
    if (next_ >= values_.size()) values_.resize(next_ + 1);
    values_[next_++] = {axes, type};
  }

  std::string ReadOrders(Cursor& cursor, uint64_t values) {
    std::string orders;
    uint64_t lists = 1;
    if (values > 1) mlir::AppendNumber(orders, lists = cursor.Count());
    for (uint64_t i = 0; i < lists && cursor.ok(); ++i) {
      if (values > 1) mlir::AppendNumber(orders, cursor.Number());
      bool pairs = false;
      const uint64_t count = cursor.NumberWithFlag(pairs);
      mlir::AppendWithFlag(orders, count, pairs);
      for (uint64_t k = 0; k < count && cursor.ok(); ++k)
        mlir::AppendNumber(orders, cursor.Number());
    }
    return orders;
  }

  // `arguments`: the known axes of the block's arguments. `added`: the operations that it will get.
  void Block(Cursor& cursor, const std::vector<Axes>& arguments, size_t added, int depth) {
    bool has_arguments = false;
    const uint64_t operations = cursor.NumberWithFlag(has_arguments);
    mlir::AppendWithFlag(out_, operations + added, has_arguments);
    if (has_arguments) {
      const uint64_t count = cursor.Count();
      mlir::AppendNumber(out_, count);
      for (uint64_t i = 0; i < count && cursor.ok(); ++i) {
        bool located = false;
        const uint64_t type = cursor.NumberWithFlag(located);
        mlir::AppendWithFlag(out_, type, located);
        if (located) mlir::AppendNumber(out_, cursor.Number());
        Define(i < arguments.size() ? arguments[i] : Axes(), type);
      }
      const uint8_t ordered = cursor.Byte();
      out_.push_back(static_cast<char>(ordered));
      if (ordered != 0) out_ += ReadOrders(cursor, count);
    }
    for (uint64_t i = 0; i < operations && cursor.ok() && status_.ok(); ++i) {
      ReadOperation(cursor, depth);
    }
  }

  void ReadOperation(Cursor& cursor, int depth) {
    Operation op;
    op.name = cursor.Number();
    const mlir::OpName name = module_.Name(op.name);
    op.dialect = module_.DialectName(name.dialect);
    op.kind = name.name;
    op.mask = cursor.Byte();
    op.location = cursor.Number();
    if (op.mask & kHasAttributes) op.attributes = cursor.Number();
    if (op.mask & kHasProperties) op.properties = cursor.Number();
    if (op.mask & kHasResults) op.results = cursor.Numbers(cursor.Count());
    if (op.mask & kHasOperands) op.operands = cursor.Numbers(cursor.Count());
    if (op.mask & kHasSuccessors) op.successors = cursor.Numbers(cursor.Count());
    if (op.mask & kHasUseOrders) op.orders = ReadOrders(cursor, op.results.size());
    if (!cursor.ok()) return;
    const bool placement = placed_ && IsPlacement(op);
    if (placement) MakeBarrier(op);
    if (!replicated_.empty() && op.kind == "func_v1") ReplicateResults(op);
    // JAX writes no constraint after a placement: the plugin sums up there.
    const std::vector<Axes> results =
        placement ? std::vector<Axes>(op.results.size(), Axes::Whole()) : Understand(op);
    Append(op);
    const size_t first = next_;
    for (size_t i = 0; i < op.results.size(); ++i) {
      Define(i < results.size() ? results[i] : Axes(), op.results[i]);
    }
    if (op.mask & kHasRegions) Regions(op, cursor, first, depth);
  }

  void Append(const Operation& op) {
    mlir::AppendNumber(out_, op.name);
    out_.push_back(static_cast<char>(op.mask));
    mlir::AppendNumber(out_, op.location);
    if (op.mask & kHasAttributes) mlir::AppendNumber(out_, op.attributes);
    if (op.mask & kHasProperties) mlir::AppendNumber(out_, op.properties);
    const std::pair<uint8_t, const std::vector<uint64_t>&> lists[] = {
        {kHasResults, op.results}, {kHasOperands, op.operands}, {kHasSuccessors, op.successors}};
    for (const auto& [bit, list] : lists) {
      if (!(op.mask & bit)) continue;
      mlir::AppendNumber(out_, list.size());
      for (uint64_t one : list) {
        const bool behind = bit == kHasOperands && one >= own_values_ && !op.numbered;
        mlir::AppendNumber(out_, behind ? one + added_values_ : one);
      }
    }
    out_ += op.orders;
  }

  void Regions(const Operation& op, Cursor& cursor, size_t first_result, int depth) {
    if (depth > kDeepest) return Fail("regions are nested too deep");
    bool isolated = false;
    const uint64_t count = cursor.NumberWithFlag(isolated);
    mlir::AppendWithFlag(out_, count, isolated);
    const std::vector<Axes> arguments = RegionArguments(op);
    for (uint64_t i = 0; i < count && cursor.ok() && status_.ok(); ++i) {
      if (!isolated) {
        Region(cursor, arguments, depth + 1);
        continue;
      }
      if (cursor.Byte() != mlir::kIrSection) return Fail("a region is unreadable");
      Cursor inner(cursor.Bytes(cursor.Number()));
      std::string outer = std::exchange(out_, {});
      std::vector<Value> values = std::exchange(values_, {});
      const size_t next = std::exchange(next_, 0);
      Function* const function = std::exchange(function_, FunctionOf(op));
      const uint64_t own = own_values_, added = added_values_;
      Region(inner, arguments, depth + 1);
      if (!inner.ok() || !inner.at_end()) Fail("a region is unreadable");
      mlir::AppendSection(outer, mlir::kIrSection, out_);
      out_ = std::move(outer);
      values_ = std::move(values);
      next_ = next;
      function_ = function;
      own_values_ = own;
      added_values_ = added;
    }
    if (op.kind == "while_v1") {
      for (size_t i = 0; i < std::min(op.operands.size(), op.results.size()); ++i)
        values_[first_result + i].axes = Of(op.operands[i]);
    }
  }

  // Numbers values by region: those of an inner region come after all those of the outer one.
  void Region(Cursor& cursor, const std::vector<Axes>& arguments, int depth) {
    const uint64_t blocks = cursor.Count();
    mlir::AppendNumber(out_, blocks);
    if (blocks == 0) return;
    const uint64_t values = cursor.Count();
    const size_t base = values_.size(), next = next_;
    const size_t added = base == 0 && function_ != nullptr ? function_->owed.size() : 0;
    if (added > 0 && blocks != 1) return Fail("the program branches");
    if (base == 0) own_values_ = values;
    if (base == 0) added_values_ = added;
    mlir::AppendNumber(out_, values + added);
    values_.resize(base + values);
    next_ = base;
    const size_t outer = std::exchange(base_, base);
    for (uint64_t i = 0; i < blocks && cursor.ok() && status_.ok(); ++i) {
      Block(cursor, i == 0 ? arguments : std::vector<Axes>(), added, depth);
    }
    values_.resize(base);
    next_ = next;
    base_ = outer;
  }

  std::vector<Axes> RegionArguments(const Operation& op) {
    if (const Function* function = FunctionOf(op)) return function->arguments;
    std::vector<Axes> out;
    if (op.kind == "while_v1") {
      for (uint64_t value : op.operands) out.push_back(Of(value));
    }
    if (op.kind == "manual_computation") {
      out = attributes_.UnreducedPerValue(Property(op, 0));
    }
    return out;
  }

  uint64_t Property(const Operation& op, size_t place) const {
    Cursor cursor(module_.Properties(op.properties));
    uint64_t out = 0;
    for (size_t i = 0; i <= place; ++i) out = cursor.Number();
    return (op.mask & kHasProperties) != 0 && cursor.ok() ? out : ~uint64_t{0};
  }

  bool IsPlacement(const Operation& op) const {
    if (op.kind != "custom_call_v1" && op.kind != "custom_call") return false;
    // The target's name is among the numbers of its properties.
    Cursor cursor(module_.Properties(op.properties));
    while ((op.mask & kHasProperties) != 0 && cursor.ok() && !cursor.at_end()) {
      if (attributes_.VhloText(cursor.Number()) == kPlacement) return true;
    }
    return false;
  }

  // Passes the placed value through.
  void MakeBarrier(Operation& op) {
    if (barrier_ == 0) {
      barrier_ = module_.AddOperation(module_.Dialect("vhlo"), "optimization_barrier_v1");
    }
    op.name = barrier_;
    op.kind = "optimization_barrier_v1";
    op.mask = static_cast<uint8_t>(op.mask & ~(kHasProperties | kHasAttributes));
    ++changed_;
  }

  void ReplicateResults(Operation& op) {
    Cursor cursor(module_.Properties(op.properties));
    std::vector<uint64_t> numbers;
    while (cursor.ok() && !cursor.at_end()) numbers.push_back(cursor.Number());
    if (numbers.size() <= kName || attributes_.VhloText(numbers[kName]) != "main") return;
    const std::optional<uint64_t> results = attributes_.Replicated(numbers[kResults], replicated_);
    if (!results) return;
    numbers[kResults] = *results;
    std::string bytes;
    for (uint64_t number : numbers) mlir::AppendNumber(bytes, number);
    op.properties = module_.AddProperties(std::move(bytes));
    ++changed_;
  }

  // nullptr: `op` is not a function.
  Function* FunctionOf(const Operation& op) {
    if (op.dialect != "vhlo" || op.kind != "func_v1") return nullptr;
    const std::string name = attributes_.VhloText(Property(op, kName));
    Function& function = functions_[name];
    function.name = name;
    if (name == "main") {  // it is called from outside, with the axes of its declaration
      function.arguments.clear();
      for (const Declared& one : attributes_.UnreducedOfSignature(Property(op, kArguments))) {
        function.arguments.push_back(one.axes);
      }
    }
    function.wanted = attributes_.UnreducedOfSignature(Property(op, kResults));
    return &function;
  }

  // Returns the known axes of the results. May replace `op` by another operation.
  std::vector<Axes> Understand(Operation& op) {
    std::vector<Axes> of;
    Axes all = Axes::Whole();
    for (uint64_t value : op.operands) {
      of.push_back(Of(value));
      all = Union(all, of.back());
    }
    if (op.dialect == "sdy") {
      if (op.kind == "mesh") {
        meshes_[attributes_.Text(Property(op, 1))] = Property(op, 0);
        return {};
      }
      if (op.kind == "manual_computation") return attributes_.UnreducedPerValue(Property(op, 2));
      if (op.kind != "sharding_constraint") return {};
      const Axes wanted = attributes_.Unreduced(Property(op, 0));
      Constrain(op, of.empty() ? Axes() : of[0], wanted);
      return {wanted};
    }
    if (op.kind == "call_v1") return Called(op, of);
    if (op.kind == "return_v1" && function_ != nullptr && base_ == 0) Returned(op, of);
    if (op.kind == "optimization_barrier_v1" || op.kind == "unrealized_conversion_cast") return of;
    // These operations add up: their results may be unreduced although no operand is. The names are
    // then the axes over which the result would be unreduced without the operation's own sum.
    const std::vector<Axes> sums(op.results.size(), Axes{false, all.names});
    for (std::string_view adding : {"dot", "reduce", "scatter", "gather", "conv", "custom"}) {
      if (op.kind.find(adding) != std::string_view::npos && op.kind != "convert_v1") return sums;
    }
    if ((op.mask & kHasRegions) != 0) return {};
    return std::vector<Axes>(op.results.size(), all);
  }

  std::vector<Axes> Called(const Operation& op, const std::vector<Axes>& arguments) {
    const std::string name = attributes_.VhloText(Property(op, 0));
    Function& callee = functions_[name];
    if (callee.called++ == 0) {
      callee.passed = arguments;
    } else {
      for (size_t i = 0; i < callee.passed.size(); ++i) {
        Axes& passed = callee.passed[i];
        if (i >= arguments.size() || arguments[i].known != passed.known ||
            arguments[i].names != passed.names) {
          passed = {};
        } else if (arguments[i].sharding != passed.sharding) {
          passed.sharding = Axes::kNoSharding;
        }
      }
    }
    return callee.results;
  }

  void Returned(Operation& op, const std::vector<Axes>& results) {
    function_->results = results;
    if (function_->name != "main") return;
    // The walk before made room for them.
    uint64_t value = own_values_;
    for (size_t i : function_->owed) {
      if (i >= op.operands.size() || op.operands[i] >= own_values_) return Fail("a bad return");
      const Declared& wanted = function_->wanted[i];
      Operation part;
      part.dialect = "vhlo";  // the dialect of the arguments' and results' types
      part.mask = kHasResults | kHasOperands;
      part.location = op.location;
      part.results = {values_[op.operands[i]].type};
      part.operands = {op.operands[i]};
      TakePart(part, results[i], wanted.sharding, Missing(results[i], wanted.axes));
      Append(part);
      op.operands[i] = value++;
      op.numbered = true;
    }
    for (size_t i = 0; i < results.size() && i < function_->wanted.size(); ++i) {
      if (results[i].known && !Missing(results[i], function_->wanted[i].axes).empty()) {
        function_->owed.insert(i);
      }
    }
  }

  static std::set<std::string> Missing(const Axes& from, const Axes& wanted) {
    std::set<std::string> out;
    std::ranges::set_difference(wanted.names, from.names, std::inserter(out, out.end()));
    return out;
  }

  void Constrain(Operation& op, const Axes& from, const Axes& wanted) {
    if (!wanted.known) return Fail("a sharding is unreadable");
    if (from.known) {
      const std::set<std::string> added = Missing(from, wanted);
      if (!added.empty()) TakePart(op, from, Property(op, 0), added);
      return;
    }
    // Otherwise the plugin's compiler would end the process.
    if (!wanted.names.empty() && !Missing(wanted, from).empty()) {
      Fail(fmt::format("one operation adds up what is unreduced over {} and leaves it so over {}",
                       fmt::join(Missing(wanted, from), ", "), fmt::join(wanted.names, ", ")));
    }
  }

  // Makes `op` the call that leaves each device its part of `from` over the axes `added`.
  void TakePart(Operation& op, const Axes& from, uint64_t sharding,
                const std::set<std::string>& added) {
    const std::optional<CallNumbers> parts =
        Parts(sharding, added, OwnSlices(from.sharding, sharding, added));
    if (!parts.has_value()) {
      return Fail(fmt::format("the devices at the origin of the mesh axes {} are not known",
                              fmt::join(added, ", ")));
    }
    const bool vhlo = op.dialect == "vhlo";
    auto [call, fresh] = calls_.try_emplace(vhlo, 0);
    if (fresh) {
      int dialect = module_.Dialect(vhlo ? "vhlo" : "stablehlo");
      if (dialect < 0) dialect = module_.AddDialect("stablehlo");
      call->second = module_.AddOperation(dialect, vhlo ? "custom_call_v1" : "custom_call");
    }
    op.name = call->second;
    op.mask = static_cast<uint8_t>((op.mask & ~kHasProperties) | kHasAttributes);
    op.attributes = attributes_.CallAttributes(sharding, *parts, vhlo);
    ++changed_;
  }

  // Returns, by dimension, the axes that cut it before and over which it will be summed: each
  // device keeps its slice.
  std::map<size_t, std::vector<std::string>> OwnSlices(uint64_t from, uint64_t to,
                                                       const std::set<std::string>& added) const {
    std::map<size_t, std::vector<std::string>> out;
    const auto before = attributes_.Cuts(from), after = attributes_.Cuts(to);
    if (!before || !after || before->size() != after->size() ||
        attributes_.MeshReference(from) != attributes_.MeshReference(to)) {
      return out;
    }
    for (size_t i = 0; i < before->size(); ++i) {
      const std::vector<std::string>&longer = (*before)[i], &shorter = (*after)[i];
      if (longer.size() <= shorter.size() ||
          !std::equal(shorter.begin(), shorter.end(), longer.begin())) {
        continue;
      }
      std::vector<std::string> own(longer.begin() + static_cast<ptrdiff_t>(shorter.size()),
                                   longer.end());
      if (std::ranges::all_of(own, [&](const auto& axis) { return added.contains(axis); }))
        out[i] = std::move(own);
    }
    return out;
  }

  // Returns the numbers of the call. Of the `axes`, those in `slices` leave each device its slice;
  // the others leave everything to the devices at their origin.
  std::optional<CallNumbers> Parts(uint64_t sharding, const std::set<std::string>& axes,
                                   const std::map<size_t, std::vector<std::string>>& slices) const {
    const uint64_t reference = attributes_.MeshReference(sharding);
    std::optional<Mesh> mesh = attributes_.MeshOf(reference);
    if (!mesh) {
      const auto named = meshes_.find(attributes_.Text(reference));
      if (named != meshes_.end()) mesh = attributes_.MeshOf(named->second);
    }
    const int64_t partitions = options_.num_partitions();
    if (!mesh || options_.num_replicas() != 1 || options_.devices_size() != partitions)
      return std::nullopt;
    std::map<std::string, int64_t> sizes, at;
    for (const auto& [axis, size] : mesh->axes) sizes[axis] = size;
    std::set<std::string> whole = axes;
    for (const auto& [dimension, own] : slices) {
      for (const std::string& axis : own) whole.erase(axis);
    }
    for (const std::string& axis : axes) {
      if (!sizes.contains(axis)) return std::nullopt;
    }
    CallNumbers out;
    for (int64_t place = 0; place < partitions; ++place) {
      int64_t rest = place;
      for (auto axis = mesh->axes.rbegin(); axis != mesh->axes.rend(); ++axis) {
        if (axis->second <= 0) return std::nullopt;
        at[axis->first] = rest % axis->second;
        rest /= axis->second;
      }
      if (rest != 0) return std::nullopt;  // the mesh has fewer devices
      if (std::ranges::any_of(whole, [&](const auto& axis) { return at[axis] != 0; })) continue;
      int64_t partition = place;
      if (!mesh->devices.empty()) {
        if (mesh->devices.size() != static_cast<size_t>(partitions)) return std::nullopt;
        partition = mesh->devices[place];
        if (partition < 0 || partition >= partitions) return std::nullopt;
      }
      const int32_t device = options_.devices(static_cast<int>(partition));
      int64_t& word = out[fmt::format("devices{}", device / 64)];
      word = static_cast<int64_t>(static_cast<uint64_t>(word) | uint64_t{1} << (device % 64));
      for (const auto& [dimension, own] : slices) {
        int64_t slice = 0, count = 1;
        for (const std::string& axis : own) {
          slice = slice * sizes[axis] + at[axis];
          count *= sizes[axis];
        }
        out[fmt::format("slices{}", dimension)] = count;
        out[fmt::format("slice{}_{}", dimension, device)] = slice;
      }
    }
    return out;
  }

  mlir::Module& module_;
  mlir::Attributes attributes_;
  const v1::CompileOptions& options_;
  const bool placed_;
  const std::map<size_t, size_t> replicated_;
  absl::Status status_ = absl::OkStatus();
  std::string out_;
  struct Value {
    Axes axes;
    uint64_t type = 0;
  };
  std::vector<Value> values_;  // of the outer regions, by number
  size_t next_ = 0;            // the number of the next value
  size_t base_ = 0;            // number of this region's first value; 0: the function's own region
  // Of the function's own region: the number of its values, and of those that will be added. Values
  // of inner regions are numbered after them.
  uint64_t own_values_ = ~uint64_t{0}, added_values_ = 0;
  Function* function_ = nullptr;
  std::map<std::string, Function> functions_;
  std::map<std::string, uint64_t> meshes_;
  std::map<bool, uint64_t> calls_;  // operations; true: vhlo's
  uint64_t barrier_ = 0;            // an operation; 0: not added yet
  int changed_ = 0;
};

}  // namespace

absl::StatusOr<std::string> RewriteForPlugin(std::string program, const v1::CompileOptions& options,
                                             bool one_memory,
                                             const std::map<size_t, size_t>& replicated) {
  absl::StatusOr<mlir::Module> module = mlir::Module::Read(program);
  // It is text, or the plugin will say what is wrong with it: each module is an operation of
  // `builtin`.
  if (!module.ok() || module->Dialect("builtin") < 0) return program;
  const bool placed = one_memory && module->HasString(kPlacement);
  Rewriter rewriter(*module, options, placed, replicated);
  const bool unreduced = rewriter.AnyUnreduced();
  if (!unreduced && !placed && replicated.empty()) return program;
  absl::StatusOr<std::string> changed = rewriter.Rewrite();
  if (!changed.ok() && unreduced) return changed.status();
  return !changed.ok() || changed->empty() ? program : *std::move(changed);
}

std::set<size_t> UnpinnedResults(const std::string& program, const v1::CompileOptions& options) {
  absl::StatusOr<mlir::Module> module = mlir::Module::Read(program);
  if (!module.ok() || !module->HasString(kUnpinned)) return {};
  Rewriter rewriter(*module, options, false, {});
  (void)rewriter.Rewrite();
  return rewriter.ResultsIn(kUnpinned);
}

}  // namespace fairway
