// SPDX-License-Identifier: Apache-2.0
#include "worker/ffi/custom_calls.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "worker/ffi/host_calls.h"
#include "xla/ffi/api/c_api.h"

namespace fairway::ffi {
namespace {

using Dims = std::vector<int64_t>;

// A value with its own memory.
class Array {
 public:
  template <typename T>
  static Array Of(Dims dims, std::vector<T> values, DType dtype = kDTypeOf<T>) {
    Array out(std::move(dims), dtype);
    std::copy(values.begin(), values.end(), out.as<T>());
    return out;
  }
  static Array Ints(Dims dims, std::vector<int32_t> values = {}) {
    Array out(std::move(dims), DType::kS32);
    std::copy(values.begin(), values.end(), out.as<int32_t>());
    return out;
  }
  Array(Dims dims, DType dtype) : dims_(std::move(dims)), dtype_(dtype), bytes_(Count() * 16 + 1) {}

  int64_t Count() const {
    int64_t count = 1;
    for (int64_t d : dims_) count *= d;
    return count;
  }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  template <typename T>
  std::vector<T> Values() {
    return {as<T>(), as<T>() + Count()};
  }
  Value value() { return {dtype_, dims_, bytes_.data()}; }
  XLA_FFI_Buffer buffer() {
    XLA_FFI_Buffer out{};
    out.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    out.dtype = static_cast<XLA_FFI_DataType>(dtype_);
    out.data = bytes_.data();
    out.rank = static_cast<int64_t>(dims_.size());
    out.dims = dims_.data();
    return out;
  }

 private:
  Dims dims_;
  DType dtype_;
  std::vector<char> bytes_;
};

// Calls the handler as XLA does. Attributes are bytes: letters and bools.
void Invoke(const std::string& name, std::vector<Array*> args, std::vector<Array*> rets,
            std::map<std::string, uint8_t> attributes = {}) {
  const CustomCall* target = FindCustomCall(name);
  ASSERT_NE(target, nullptr) << name;
  std::vector<XLA_FFI_Buffer> buffers;
  for (Array* array : args) buffers.push_back(array->buffer());
  for (Array* array : rets) buffers.push_back(array->buffer());
  std::vector<void*> pointers;
  for (XLA_FFI_Buffer& buffer : buffers) pointers.push_back(&buffer);
  std::vector<XLA_FFI_ArgType> arg_types(args.size(), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(rets.size(), XLA_FFI_RetType_BUFFER);
  std::vector<XLA_FFI_ByteSpan> names;
  std::vector<XLA_FFI_Scalar> scalars;
  for (auto& [key, value] : attributes) {
    names.push_back({key.data(), key.size()});
    scalars.push_back({XLA_FFI_DataType_U8, &value});
  }
  std::vector<XLA_FFI_ByteSpan*> name_pointers;
  std::vector<void*> scalar_pointers;
  for (auto& span : names) name_pointers.push_back(&span);
  for (auto& scalar : scalars) scalar_pointers.push_back(&scalar);
  std::vector<XLA_FFI_AttrType> types(names.size(), XLA_FFI_AttrType_SCALAR);

  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(args.size()),
                arg_types.data(), pointers.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(rets.size()),
                ret_types.data(), pointers.data() + args.size()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE,
                 nullptr,
                 static_cast<int64_t>(names.size()),
                 types.data(),
                 name_pointers.data(),
                 scalar_pointers.data()};
  EXPECT_EQ(reinterpret_cast<XLA_FFI_Handler*>(target->handler)(&frame), nullptr) << name;
}

bool AllNan(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

// A positive definite matrix of order n, the same for the same seed.
std::vector<double> Definite(int64_t n, int seed) {
  std::vector<double> a(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      a[i * n + j] = std::cos(0.1 * static_cast<double>((i + 1) * (j + 1) + seed));
      if (i > j) a[i * n + j] = a[j * n + i];
    }
    a[i * n + i] += static_cast<double>(n) + 1;
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
  }
  return a;
}

TEST(CustomCallsTest, HasEveryTypeOfEveryRoutine) {
  std::set<std::string> names;
  for (const CustomCall& call : CustomCalls()) {
    EXPECT_TRUE(names.insert(std::string(call.name)).second) << call.name;
  }
  EXPECT_EQ(names.size(), 67u);
  for (const char* name :
       {"lapack_sorgqr_ffi", "lapack_zungqr_ffi", "lapack_cunmqr_ffi", "lapack_zheevd_ffi",
        "lapack_chetrd_ffi", "lapack_dgesvd_ffi", "tridiagonal_solve_perturbed_ffi",
        "cpu_csr_sparse_dense_ffi", "dce_sink", "fairway_own_part", "fairway_callback",
        "xla_ffi_python_cpu_callback", "fairway_go_on"}) {
    EXPECT_TRUE(names.count(name)) << name;
  }
  EXPECT_EQ(FindCustomCall("lapack_sgetrf"), nullptr);
}

TEST(CustomCallsTest, HandlersSayWhichHeadersTheyWereBuiltWith) {
  EXPECT_EQ(FfiVersion(), "0.2");
  for (const CustomCall& call : CustomCalls()) {
    XLA_FFI_Metadata metadata{};
    metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
    metadata.traits = 7;
    XLA_FFI_Metadata_Extension extension{
        {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr}, &metadata};
    XLA_FFI_CallFrame frame{};
    frame.extension_start = &extension.extension_base;
    EXPECT_EQ(reinterpret_cast<XLA_FFI_Handler*>(call.handler)(&frame), nullptr);
    EXPECT_EQ(metadata.api_version.major_version, 0);
    EXPECT_EQ(metadata.api_version.minor_version, 2);
    EXPECT_EQ(metadata.traits, 0u);
  }
}

TEST(CustomCallsTest, ACallbackHasAtMostSoManyArraysAsTheLinkCarries) {
  const CustomCall* target = FindCustomCall(kCallbackTarget);
  Array x = Array::Ints({1}, {5});
  const std::vector<Value> values(4097, x.value());
  const std::span<const Value> all(values), most = all.first(4096);
  const Attribute attributes[] = {{"function", 7}};
  EXPECT_TRUE(target->check({most, most, attributes}).ok());
  EXPECT_EQ(target->check({all, most, attributes}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(target->check({most, all, attributes}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CustomCallsTest, ACallbackThatFindsNoMemoryFailsItsLaunch) {
  class NoMemory final : public HostCalls {
    absl::Status Run(uint64_t, const Call&) override { throw std::bad_alloc(); }
  };
  Array x = Array::Ints({1}, {5});
  const Value rets[] = {x.value()};
  CallingLaunch launch(1, 2, std::make_shared<NoMemory>(), true);
  EXPECT_NO_THROW(launch.Run({{}, rets, {}}));
  EXPECT_EQ(launch.failure().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(x.as<int32_t>()[0], 0);
}

TEST(CustomCallsTest, ElementsOfLessThanAByteComeAsBytesAndGoAsTheyCame) {
  struct Case {
    DType dtype;
    std::vector<int64_t> dims;
    std::vector<uint8_t> packed;
    std::vector<int8_t> elements;
  };
  const Case cases[] = {
      {DType::kS4, {3}, {0x97, 0x08}, {7, 9, 8}},
      {DType::kU4, {3}, {0x97, 0x08}, {7, 9, 8}},
      {DType::kF4E2M1FN, {2}, {0xf1}, {1, 15}},
      {DType::kS2, {5}, {0xb4, 0x02}, {0, 1, 3, 2, 2}},
      {DType::kU2, {1, 5}, {0xb4, 0x02}, {0, 1, 3, 2, 2}},
      {DType::kS4, {}, {0x0f}, {15}},
      {DType::kS4, {2, 0}, {}, {}},
      {DType::kToken, {}, {}, {}},
      {DType::kS16, {2}, {1, 2, 3, 4}, {1, 2, 3, 4}},
  };
  for (const Case& one : cases) {
    std::vector<uint8_t> memory = one.packed;
    memory.push_back(0xaa);  // a byte beyond its memory
    const Value value{one.dtype, one.dims, memory.data()};
    EXPECT_EQ(MemoryBytes(value), static_cast<int64_t>(one.packed.size())) << Name(one.dtype);
    std::vector<int8_t> elements(one.elements.size() + 1, 0x55);
    ReadElements(value, reinterpret_cast<char*>(elements.data()));
    EXPECT_EQ(elements.back(), 0x55) << Name(one.dtype);
    elements.pop_back();
    EXPECT_EQ(elements, one.elements) << Name(one.dtype);
    std::fill(memory.begin(), memory.end() - 1, 0xff);
    if (PackedBits(one.dtype) > 0) {  // only the low bits count
      for (int8_t& element : elements) element = static_cast<int8_t>(element | 0xf0);
    }
    WriteElements(reinterpret_cast<const char*>(elements.data()), value);
    EXPECT_EQ(memory.back(), 0xaa) << Name(one.dtype);
    memory.pop_back();
    EXPECT_EQ(memory, one.packed) << Name(one.dtype);
  }
}

TEST(CustomCallsTest, ACallbackHasAnyTypeThatHostsHaveAndNoneOfOneBit) {
  const CustomCall* target = FindCustomCall(kCallbackTarget);
  const Dims dims = {3};
  const Attribute attributes[] = {{"function", 7}};
  for (DType dtype : {DType::kS4, DType::kU4, DType::kS2, DType::kU2, DType::kF4E2M1FN,
                      DType::kPred, DType::kC128, DType::kToken}) {
    const Value values[] = {{dtype, dims, nullptr}};
    EXPECT_TRUE(target->check({values, values, attributes}).ok()) << Name(dtype);
  }
  for (DType dtype : {DType::kS1, DType::kU1, DType::kOpaque, DType::kString, DType::kInvalid}) {
    const Value values[] = {{dtype, dims, nullptr}};
    EXPECT_FALSE(target->check({values, {}, attributes}).ok()) << Name(dtype);
    EXPECT_FALSE(target->check({{}, values, attributes}).ok()) << Name(dtype);
  }
}

class CallsThatFail final : public HostCalls {
  absl::Status Run(uint64_t, const Call&) override { return absl::AbortedError("no"); }
};

TEST(CustomCallsTest, AFailedCallbackFillsNoMoreThanItsResultsHave) {
  std::vector<uint8_t> memory(4, 0xff);
  const Dims dims = {3};
  const Value rets[] = {{DType::kU4, dims, memory.data()}};
  CallingLaunch launch(1, 2, std::make_shared<CallsThatFail>(), true);
  launch.Run({{}, rets, {}});
  EXPECT_EQ(memory, (std::vector<uint8_t>{0, 0, 0xff, 0xff}));
  Poison({{}, rets, {}});
  EXPECT_EQ(memory, (std::vector<uint8_t>{0xff, 0xff, 0xff, 0xff}));
  memory[2] = 0;
  Poison({{}, rets, {}});
  EXPECT_EQ(memory[2], 0);
}

TEST(CustomCallsTest, AllDevicesLeaveALoopBeforeTheSameRoundWhenACallbackHasFailed) {
  CallingLaunch launch(1, 2, std::make_shared<CallsThatFail>(), false);
  const auto rounds = [&](int64_t loop, int64_t device) {
    int count = 0;
    while (count < 100 && launch.GoesOn(loop, device)) ++count;
    return count;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(launch.GoesOn(0, 0));
  EXPECT_TRUE(launch.GoesOn(0, 1));
  launch.Run({});
  EXPECT_EQ(rounds(0, 1), 2);  // three together, as many as device 0 has gone through
  EXPECT_EQ(rounds(0, 0), 0);
  EXPECT_EQ(rounds(0, 2), 3);
  EXPECT_FALSE(launch.GoesOn(0, 1));  // the same loop inside another loop, once more
  EXPECT_EQ(rounds(1, 2), 0);         // nobody has begun this round
  EXPECT_EQ(rounds(1, 0), 0);
}

TEST(CustomCallsTest, AConditionIsKeptWhereNoCallbackHasFailed) {
  const CustomCall* target = FindCustomCall("fairway_go_on");
  ASSERT_NE(target, nullptr);
  bool condition = true, goes_on = false;
  const Value args[] = {{DType::kPred, {}, &condition}}, rets[] = {{DType::kPred, {}, &goes_on}};
  const Attribute loop[] = {{"loop", 3}}, wrong[] = {{"loop", -3}};
  const Call of_no_launch{args, rets, loop, 0, 12345};
  ASSERT_TRUE(target->check(of_no_launch).ok());
  target->run(of_no_launch);
  EXPECT_TRUE(goes_on);
  const auto launch = BeginCalling(54321, 2, std::make_shared<CallsThatFail>(), false);
  const Call call{args, rets, loop, 0, 54321};
  target->run(call);
  EXPECT_TRUE(goes_on);
  condition = false;
  target->run(call);
  EXPECT_FALSE(goes_on);
  launch->Run({});
  condition = true;
  target->run(call);
  EXPECT_FALSE(goes_on);
  EXPECT_FALSE(target->check({args, rets, wrong}).ok());
  EXPECT_FALSE(target->check({args, rets, {}}).ok());
  EXPECT_FALSE(target->check({{}, rets, loop}).ok());
  EXPECT_FALSE(target->check({args, {}, loop}).ok());
  const Dims dims = {1};
  const Value many[] = {{DType::kPred, dims, &goes_on}}, number[] = {{DType::kU8, {}, &goes_on}};
  EXPECT_FALSE(target->check({args, many, loop}).ok());
  EXPECT_FALSE(target->check({number, rets, loop}).ok());
}

TEST(CustomCallsTest, TheOwnPartIsEverythingOnTheDevicesThatAreNamedAndZerosElsewhere) {
  const CustomCall* target = FindCustomCall("fairway_own_part");
  ASSERT_NE(target, nullptr);
  Array x = Array::Ints({3}, {5, 6, 7}), part = Array::Ints({3}), small = Array::Ints({2});
  const Value args[] = {x.value()}, rets[] = {part.value()}, wrong[] = {small.value()};
  const Attribute attributes[] = {{"devices0", 0b101}, {"devices1", 0b10}};
  for (int64_t device : {0, 2, 65}) {
    part.as<int32_t>()[0] = -1;
    target->run({args, rets, attributes, device});
    EXPECT_EQ(part.Values<int32_t>(), (std::vector<int32_t>{5, 6, 7})) << device;
  }
  for (int64_t device : {-1, 1, 64, 129}) {
    part.as<int32_t>()[0] = -1;
    target->run({args, rets, attributes, device});
    EXPECT_EQ(part.Values<int32_t>(), (std::vector<int32_t>{0, 0, 0})) << device;
  }
  EXPECT_TRUE(target->check({args, rets, attributes}).ok());
  EXPECT_FALSE(target->check({args, wrong, attributes}).ok());
  EXPECT_FALSE(target->check({args, {}, attributes}).ok());
}

TEST(CustomCallsTest, TheOwnPartOfWhatIsCutIsTheDevicesSlice) {
  const CustomCall* target = FindCustomCall("fairway_own_part");
  Array x = Array::Ints({3, 4}, {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23});
  Array part = Array::Ints({3, 4});
  const Value args[] = {x.value()}, rets[] = {part.value()};
  const auto of = [&](std::vector<Attribute> attributes, int64_t device) {
    attributes.push_back({"devices0", 0b1111});
    target->run({args, rets, attributes, device});
    return part.Values<int32_t>();
  };
  const std::vector<int32_t> nothing(12);
  const std::vector<Attribute> columns = {{"slices1", 2}, {"slice1_0", 0}, {"slice1_3", 1}};
  EXPECT_EQ(of(columns, 0), (std::vector<int32_t>{0, 1, 0, 0, 10, 11, 0, 0, 20, 21, 0, 0}));
  EXPECT_EQ(of(columns, 3), (std::vector<int32_t>{0, 0, 2, 3, 0, 0, 12, 13, 0, 0, 22, 23}));
  EXPECT_EQ(of(columns, 4), nothing);
  // Rows that do not divide evenly.
  const std::vector<Attribute> both = {
      {"slices0", 2}, {"slice0_1", 1}, {"slices1", 4}, {"slice1_1", 2}};
  EXPECT_EQ(of(both, 1), (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22, 0}));
  EXPECT_EQ(of({{"slices0", 7}, {"slice0_2", 6}}, 2), nothing);
  // Numbers of a program that we did not write.
  for (int64_t slice : {int64_t{-1}, int64_t{2}, int64_t{1} << 62}) {
    EXPECT_EQ(of({{"slices0", 2}, {"slice0_0", slice}}, 0), nothing) << slice;
  }
}

TEST(CustomCallsTest, CholeskyOfABatchTellsWhichMatrixIsNotDefinite) {
  Array a = Array::Of<double>({2, 2, 2}, {4, 2, 2, 5, 1, 2, 2, 1});
  Array factor({2, 2, 2}, DType::kF64), info = Array::Ints({2});
  Invoke("lapack_dpotrf_ffi", {&a}, {&factor, &info}, {{"uplo", 'L'}});
  EXPECT_EQ(info.Values<int32_t>(), (std::vector<int32_t>{0, 2}));
  const auto l = factor.Values<double>();
  EXPECT_DOUBLE_EQ(l[0], 2);
  EXPECT_DOUBLE_EQ(l[1], 1);
  EXPECT_DOUBLE_EQ(l[3], 2);
}

TEST(CustomCallsTest, WorksInPlaceToo) {
  Array a = Array::Of<float>({1, 1}, {9});
  Array info = Array::Ints({});
  Invoke("lapack_spotrf_ffi", {&a}, {&a, &info}, {{"uplo", 'L'}});
  EXPECT_EQ(*a.as<float>(), 3);
}

TEST(CustomCallsTest, PivotsAre32Bit) {
  Array a = Array::Of<float>({2, 3}, {0, 3, 1, 4, 2, 5});  // columns {0,3} {1,4} {2,5}
  Array lu({2, 3}, DType::kF32), pivots = Array::Ints({2}), info = Array::Ints({});
  Invoke("lapack_sgetrf_ffi", {&a}, {&lu, &pivots, &info});
  EXPECT_EQ(pivots.Values<int32_t>(), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(*info.as<int32_t>(), 0);
  EXPECT_EQ(lu.Values<float>(), (std::vector<float>{3, 0, 4, 1, 5, 2}));
}

// Others may read an operand at the same time, and LAPACK sets the diagonal of the reflectors to 1
// while it applies them.
TEST(CustomCallsTest, ReflectorsAreAppliedWithoutAWriteIntoTheOperand) {
  const Dims square = {2, 2};
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  static_cast<double*>(page)[1] = 1;  // below the diagonal: the first reflector is {1, 1}
  ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
  Array tau = Array::Of<double>({2}, {1, 0});
  Array c = Array::Of<double>({2, 2}, {1, 0, 0, 1}), product({2, 2}, DType::kF64);
  const Value args[] = {{DType::kF64, square, page}, tau.value(), c.value()};
  const Value rets[] = {product.value()};
  const Attribute attributes[] = {{"left", 1}, {"transpose", 0}};
  FindCustomCall("lapack_dormqr_ffi")->run({args, rets, attributes});
  EXPECT_EQ(product.Values<double>(), (std::vector<double>{0, -1, -1, 0}));
  EXPECT_EQ(munmap(page, 4096), 0);
}

TEST(CustomCallsTest, RealMatricesHaveComplexEigenvectors) {
  Array a = Array::Of<double>({2, 2}, {0, 1, -1, 0});  // a rotation: i and -i
  Array re({2}, DType::kF64), im({2}, DType::kF64), info = Array::Ints({});
  Array left({2, 2}, DType::kC128), right({2, 2}, DType::kC128);
  Invoke("lapack_dgeev_ffi", {&a}, {&re, &im, &left, &right, &info},
         {{"compute_left", 'N'}, {"compute_right", 'V'}});
  ASSERT_EQ(*info.as<int32_t>(), 0);
  for (int j = 0; j < 2; ++j) {
    using C = std::complex<double>;
    const C w{re.as<double>()[j], im.as<double>()[j]};
    EXPECT_NEAR(std::abs(w), 1, 1e-12);
    const C x = right.as<C>()[2 * j], y = right.as<C>()[2 * j + 1];
    EXPECT_NEAR(std::abs(-y - w * x), 0, 1e-12);
    EXPECT_NEAR(std::abs(x - w * y), 0, 1e-12);
    EXPECT_EQ(left.as<C>()[2 * j], C(0));
  }
}

TEST(CustomCallsTest, WhatIsNotFiniteHasAnInfoInsteadOfAnEndlessLoop) {
  Array a = Array::Of<double>({2, 1, 1}, {std::nan(""), 7});
  Array re({2, 1}, DType::kF64), im({2, 1}, DType::kF64), info = Array::Ints({2});
  Array left({2, 1, 1}, DType::kC128), right({2, 1, 1}, DType::kC128);
  Invoke("lapack_dgeev_ffi", {&a}, {&re, &im, &left, &right, &info},
         {{"compute_left", 'V'}, {"compute_right", 'V'}});
  EXPECT_EQ(info.Values<int32_t>(), (std::vector<int32_t>{-4, 0}));
  EXPECT_EQ(re.as<double>()[1], 7);
}

// The memory of a result held another array, perhaps of another session.
TEST(CustomCallsTest, WhatIsNotFiniteHasNanForItsResultsAndNotWhatTheMemoryHeld) {
  const auto used = [](Dims dims) {
    Array out(std::move(dims), DType::kF64);
    std::fill_n(out.as<double>(), out.Count(), 7);
    return out;
  };
  Array a = Array::Of<double>({2, 1, 1}, {std::nan(""), 3});
  const auto nan_then_not = [](Array& array) {
    return std::isnan(array.as<double>()[0]) && std::isfinite(array.as<double>()[1]);
  };
  for (const char* name : {"lapack_dgesdd_ffi", "lapack_dgesvd_ffi"}) {
    Array out = used({2, 1, 1}), s = used({2, 1}), u = used({2, 1, 1}), vt = used({2, 1, 1});
    Array info = Array::Ints({2});
    Invoke(name, {&a}, {&out, &s, &u, &vt, &info}, {{"mode", 'A'}});
    EXPECT_EQ(info.Values<int32_t>(), (std::vector<int32_t>{-4, 0})) << name;
    EXPECT_TRUE(nan_then_not(s) && nan_then_not(u) && nan_then_not(vt)) << name;
  }
  Array out = used({2, 1, 1}), vs = used({2, 1, 1}), re = used({2, 1}), im = used({2, 1});
  Array selected = Array::Ints({2}), info = Array::Ints({2});
  Invoke("lapack_dgees_ffi", {&a}, {&out, &vs, &re, &im, &selected, &info},
         {{"mode", 'V'}, {"sort", 'N'}});
  EXPECT_EQ(info.Values<int32_t>(), (std::vector<int32_t>{-4, 0}));
  EXPECT_TRUE(nan_then_not(vs) && nan_then_not(re) && nan_then_not(im));
}

// A call may have a hundred thousand matrices.
TEST(CustomCallsTest, WhatIsNotFiniteIsNoLineInTheLog) {
  constexpr int64_t kOrder = 128;
  Array u({kOrder, kOrder}, DType::kF64), vt({kOrder, kOrder}, DType::kF64);
  Array out({kOrder, kOrder}, DType::kF64), w({kOrder}, DType::kF64), info = Array::Ints({});
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Array a = Array::Of<double>({kOrder, kOrder}, Definite(kOrder, 1));
    a.as<double>()[kOrder * kOrder / 2] = bad;
    ::testing::internal::CaptureStdout();  // OpenBLAS writes to standard output
    ::testing::internal::CaptureStderr();
    for (const uint8_t mode : {'A', 'N'}) {
      Invoke("lapack_dgesdd_ffi", {&a}, {&out, &w, &u, &vt, &info}, {{"mode", mode}});
      Invoke("lapack_dgesvd_ffi", {&a}, {&out, &w, &u, &vt, &info}, {{"mode", mode}});
    }
    Invoke("lapack_dsyevd_ffi", {&a}, {&out, &w, &info}, {{"mode", 'V'}, {"uplo", 'L'}});
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << bad;
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << bad;
  }
}

TEST(CustomCallsTest, SingularTridiagonalSystemsHaveFiniteSolutions) {
  for (const std::vector<double>& diagonal :
       {std::vector<double>{0, 0, 0}, std::vector<double>{1, 1, 1}}) {
    Array dl = Array::Of<double>({3}, {0, 1, 1}), d = Array::Of<double>({3}, diagonal);
    Array du = Array::Of<double>({3}, {1, 1, 0});
    Array b = Array::Of<double>({3, 1}, {1, 2, 3}), x({3, 1}, DType::kF64);
    Invoke("tridiagonal_solve_perturbed_ffi", {&dl, &d, &du, &b}, {&x});
    for (double v : x.Values<double>()) EXPECT_TRUE(std::isfinite(v)) << v;
  }
  Array dl = Array::Of<double>({3}, {0, 1, 8}), d = Array::Of<double>({3}, {4, 1, 2});
  Array du = Array::Of<double>({3}, {1, 1, 0});
  Array b = Array::Of<double>({3, 1}, {6, 6, 22}), x({3, 1}, DType::kF64);
  Invoke("tridiagonal_solve_perturbed_ffi", {&dl, &d, &du, &b}, {&x});
  const auto v = x.Values<double>();  // a regular system is solved, with rows exchanged
  EXPECT_NEAR(4 * v[0] + v[1], 6, 1e-12);
  EXPECT_NEAR(v[0] + v[1] + v[2], 6, 1e-12);
  EXPECT_NEAR(8 * v[1] + 2 * v[2], 22, 1e-12);
}

TEST(CustomCallsTest, SparseIndicesOutsideGiveNan) {
  Array values = Array::Of<double>({2}, {2, 3}), dense = Array::Of<double>({2}, {10, 20});
  Array starts = Array::Ints({3}, {0, 1, 2}), columns = Array::Ints({2}, {1, 0});
  Array out({2}, DType::kF64);
  Invoke("cpu_csr_sparse_dense_ffi", {&values, &starts, &columns, &dense}, {&out});
  EXPECT_EQ(out.Values<double>(), (std::vector<double>{40, 30}));
  for (const std::vector<int32_t>& bad : {std::vector<int32_t>{1, 2}, {1, -1}, {1 << 30, 0}}) {
    Array outside = Array::Ints({2}, bad);
    Invoke("cpu_csr_sparse_dense_ffi", {&values, &starts, &outside, &dense}, {&out});
    EXPECT_TRUE(AllNan(out.Values<double>()));
  }
  for (const std::vector<int32_t>& bad : {std::vector<int32_t>{0, 1, 9}, {-5, 1, 2}}) {
    Array outside = Array::Ints({3}, bad);
    Invoke("cpu_csr_sparse_dense_ffi", {&values, &outside, &columns, &dense}, {&out});
    EXPECT_TRUE(AllNan(out.Values<double>()));
  }
}

// Calls that a compile process refuses; at run time they must give data, never an error.
TEST(CustomCallsTest, CallsThatDoNotFitGiveNanAndMinusOne) {
  Array a = Array::Of<double>({2, 2}, {4, 2, 2, 5});
  Array factor({2, 2}, DType::kF64), info = Array::Ints({});
  const auto poisoned = [&] {
    const bool all = AllNan(factor.Values<double>()) && *info.as<int32_t>() == -1;
    std::fill_n(factor.as<double>(), 4, 0);
    *info.as<int32_t>() = 0;
    return all;
  };
  Invoke("lapack_dpotrf_ffi", {&a}, {&factor, &info}, {{"uplo", 'X'}});
  EXPECT_TRUE(poisoned());
  Invoke("lapack_dpotrf_ffi", {&a}, {&factor, &info}, {});
  EXPECT_TRUE(poisoned());
  Invoke("lapack_dpotrf_ffi", {&a, &a}, {&factor, &info}, {{"uplo", 'L'}});
  EXPECT_TRUE(poisoned());
  Invoke("lapack_dpotrf_ffi", {}, {&factor, &info}, {{"uplo", 'L'}});
  EXPECT_TRUE(poisoned());
  Array floats = Array::Of<float>({2, 2}, {4, 2, 2, 5});
  Invoke("lapack_dpotrf_ffi", {&floats}, {&factor, &info}, {{"uplo", 'L'}});
  EXPECT_TRUE(poisoned());
  Array wide = Array::Of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  Invoke("lapack_dpotrf_ffi", {&wide}, {&factor, &info}, {{"uplo", 'L'}});
  EXPECT_TRUE(poisoned());
}

TEST(CustomCallsTest, ChecksNameWhatIsWrong) {
  const auto text = [](const char* name, std::vector<Value> args, std::vector<Value> rets,
                       std::vector<Attribute> attributes) {
    const absl::Status status = FindCustomCall(name)->check({args, rets, attributes});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return fairway::Text(status);
  };
  const Dims square = {5, 3, 3}, tall = {5, 4, 3}, batch = {5}, vector = {5, 3}, two = {2, 3, 3};
  const Dims huge = {int64_t{1} << 31, 1}, one = {1}, none = {};
  const Value a{DType::kF32, square}, info{DType::kS32, batch}, pivots{DType::kS32, vector};
  EXPECT_EQ(text("lapack_sgetrf_ffi", {a}, {a, pivots, {DType::kS64, batch}}, {}),
            "result 2 is s64[5], expected s32[5]");
  EXPECT_EQ(
      text("lapack_sgetrf_ffi", {{DType::kF32, huge}},
           {{DType::kF32, huge}, {DType::kS32, one}, {DType::kS32, none}}, {}),
      "operand 0 is f32[2147483648,1]; matrices may have at most 2147483647 rows and columns");
  EXPECT_EQ(text("lapack_strsm_ffi", {{DType::kF32, two}, a}, {a},
                 {{"diag", 'N'}, {"side", 'L'}, {"trans_x", 'N'}, {"uplo", 'L'}}),
            "operand 0 is f32[2,3,3], expected f32[5,3,3]");
  EXPECT_EQ(text("lapack_spotrf_ffi", {a}, {a, info}, {{"uplo", 'l'}}),
            "attribute \"uplo\" is 108, expected the code of one of the letters LU");
  EXPECT_EQ(text("lapack_spotrf_ffi", {{DType::kF32, tall}}, {a, info}, {{"uplo", 'L'}}),
            "operand 0 is f32[5,4,3], expected square matrices");
  EXPECT_EQ(text("lapack_sorgqr_ffi", {a, {DType::kF32, vector}}, {{DType::kF32, tall}}, {}),
            "result 0 is f32[5,4,3], expected f32[5,3,3]");
}

TEST(CustomCallsTest, ManyThreadsAtOnceGetTheSameBits) {
  constexpr int64_t kOrder = 96;
  const auto solve = [&](int seed) {
    Array a = Array::Of<double>({kOrder, kOrder}, Definite(kOrder, seed));
    Array lu({kOrder, kOrder}, DType::kF64), pivots = Array::Ints({kOrder});
    Array info = Array::Ints({});
    Invoke("lapack_dgetrf_ffi", {&a}, {&lu, &pivots, &info});
    Array v({kOrder, kOrder}, DType::kF64), w({kOrder}, DType::kF64);
    Invoke("lapack_dsyevd_ffi", {&a}, {&v, &w, &info}, {{"mode", 'V'}, {"uplo", 'L'}});
    std::vector<double> out = lu.Values<double>();
    for (double x : v.Values<double>()) out.push_back(x);
    return out;
  };
  constexpr int kThreads = 8, kRounds = 12;
  std::vector<std::vector<double>> expected;
  for (int t = 0; t < kThreads; ++t) expected.push_back(solve(t));
  std::vector<int> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) wrong[t] += solve(t) != expected[t];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
}

}  // namespace
}  // namespace fairway::ffi
