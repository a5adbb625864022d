# SPDX-License-Identifier: Apache-2.0
add_executable(fairway-worker main.cc)
target_link_libraries(fairway-worker PRIVATE
  fairway_config fairway_supervisor fairway_executor fairway_runtime_fake fairway_runtime_host fairway_runtime_pjrt fairway_runtime_sim
  fairway_compiler_native
  fairway_compiler_pjrt fairway_life)
fairway_allocator(fairway-worker)
fairway_shipped(fairway-worker)
