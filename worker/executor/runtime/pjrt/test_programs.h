// SPDX-License-Identifier: Apache-2.0
// StableHLO text for tests of compilers and runtimes.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TEST_PROGRAMS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TEST_PROGRAMS_H_

#include <string>

#include <fmt/format.h>

#include "fairway/v1/executable.pb.h"

namespace fairway::test {

inline v1::CompileOptions OneDevice(int device = 0) {
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(1);
  options.add_devices(device);
  return options;
}

inline v1::CompileOptions Portable() {
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(1);
  options.set_portable(true);
  return options;
}

inline v1::CompileOptions Spmd(int partitions, bool shardy = false) {
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(partitions);
  options.set_use_spmd_partitioning(true);
  options.set_use_shardy_partitioner(shardy);
  return options;
}

// x + y, of type "4xf32" and so on.
inline std::string Add(const std::string& type) {
  return fmt::format(R"(module @add {{
  func.func public @main(%x: tensor<{0}>, %y: tensor<{0}>) -> tensor<{0}> {{
    %0 = stablehlo.add %x, %y : tensor<{0}>
    return %0 : tensor<{0}>
  }}
}})",
                     type);
}

// x + x; the result takes the first argument over.
inline std::string DonatingDouble(const std::string& type) {
  return fmt::format(R"(module @donating {{
  func.func public @main(%x: tensor<{0}> {{tf.aliasing_output = 0 : i32}}) -> tensor<{0}> {{
    %0 = stablehlo.add %x, %x : tensor<{0}>
    return %0 : tensor<{0}>
  }}
}})",
                     type);
}

// x + y; the result takes x over.
inline std::string DonatingAdd(const std::string& type) {
  return fmt::format(R"(module @donating_add {{
  func.func public @main(%x: tensor<{0}> {{tf.aliasing_output = 0 : i32}}, %y: tensor<{0}>)
      -> tensor<{0}> {{
    %0 = stablehlo.add %x, %y : tensor<{0}>
    return %0 : tensor<{0}>
  }}
}})",
                     type);
}

// x + x of 2 * `devices` floats, cut evenly; the result takes the argument over. Nothing
// collective.
inline std::string ShardedDouble(int devices) {
  return fmt::format(R"(module @sharded_double attributes {{mhlo.num_partitions = {0} : i32}} {{
  func.func public @main(%x: tensor<{1}xf32> {{mhlo.sharding = "{{devices=[{0}]<=[{0}]}}",
                                              tf.aliasing_output = 0 : i32}})
      -> (tensor<{1}xf32> {{mhlo.sharding = "{{devices=[{0}]<=[{0}]}}"}}) {{
    %0 = stablehlo.add %x, %x : tensor<{1}xf32>
    return %0 : tensor<{1}xf32>
  }}
}})",
                     devices, 2 * devices);
}

// The sum over `devices` of one float each; the result lies on all of them. GSPMD shardings.
inline std::string Psum(int devices) {
  return fmt::format(R"(module @psum attributes {{mhlo.num_partitions = {0} : i32}} {{
  func.func public @main(%x: tensor<{0}xf32> {{mhlo.sharding = "{{devices=[{0}]<=[{0}]}}"}})
      -> (tensor<f32> {{mhlo.sharding = "{{replicated}}"}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{0}xf32>, tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }}
}})",
                     devices);
}

// Every device's float becomes the sum of all; the result takes the argument over.
inline std::string DonatingPsum(int devices) {
  return fmt::format(R"(module @donating_psum attributes {{mhlo.num_partitions = {0} : i32}} {{
  func.func public @main(%x: tensor<{0}xf32> {{mhlo.sharding = "{{devices=[{0}]<=[{0}]}}",
                                              tf.aliasing_output = 0 : i32}})
      -> (tensor<{0}xf32> {{mhlo.sharding = "{{devices=[{0}]<=[{0}]}}"}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{0}xf32>, tensor<f32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<{0}xf32>
    return %1 : tensor<{0}xf32>
  }}
}})",
                     devices);
}

// Psum for the Shardy partitioner.
inline std::string ShardyPsum(int devices) {
  return fmt::format(R"(module @shardy_psum attributes {{mhlo.num_partitions = {0} : i32}} {{
  sdy.mesh @mesh = <["x"={0}]>
  func.func public @main(%x: tensor<{0}xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}})
      -> (tensor<f32> {{sdy.sharding = #sdy.sharding<@mesh, []>}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{0}xf32>, tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }}
}})",
                     devices);
}

// Two outputs of different shardings from one input [2n, 4] cut by rows.
inline std::string TwoOutputs(int devices) {
  return fmt::format(R"(module @two attributes {{mhlo.num_partitions = {0} : i32}} {{
  func.func public @main(%x: tensor<{1}x4xf32> {{mhlo.sharding = "{{devices=[{0},1]<=[{0}]}}"}})
      -> (tensor<{1}x4xf32> {{mhlo.sharding = "{{devices=[{0},1]<=[{0}]}}"}},
          tensor<4xf32> {{mhlo.sharding = "{{replicated}}"}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.add %x, %x : tensor<{1}x4xf32>
    %1 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{1}x4xf32>, tensor<f32>) -> tensor<4xf32>
    return %0, %1 : tensor<{1}x4xf32>, tensor<4xf32>
  }}
}})",
                     devices, 2 * devices);
}

// `turns` products of 256 x 256 matrices: too heavy to run inside Execute, long in one thread. x
// comes back multiplied by itself; with x = 0 the result is 0.
inline std::string LongLoop(int turns) {
  return fmt::format(R"(module @long_loop {{
  func.func public @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %n = stablehlo.constant dense<{0}> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<256x256xf32>
    cond {{
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %p = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
          : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %p : tensor<i32>, tensor<256x256xf32>
    }}
    return %r#1 : tensor<256x256xf32>
  }}
}})",
                     turns);
}

}  // namespace fairway::test

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TEST_PROGRAMS_H_
