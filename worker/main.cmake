# SPDX-License-Identifier: Apache-2.0
fairway_library(fairway_gpus LAYER 5 SRCS gpus.cc DEPS fairway_base LIBS ${CMAKE_DL_LIBS})
add_library(gpus_driver_for_test MODULE gpus_driver_for_test.cc)
set_target_properties(gpus_driver_for_test PROPERTIES PREFIX "" OUTPUT_NAME fairway_gpus_driver
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
fairway_test(gpus_test SRCS gpus_test.cc DEPS fairway_gpus)
target_compile_definitions(gpus_test PRIVATE FAIRWAY_TEST_DRIVER="$<TARGET_FILE:gpus_driver_for_test>")
add_dependencies(gpus_test gpus_driver_for_test)

add_executable(fairway-worker main.cc settings.cc)
target_link_libraries(fairway-worker PRIVATE
  fairway_config fairway_http fairway_relay fairway_supervisor fairway_executor fairway_runtime_fake fairway_runtime_host fairway_runtime_pjrt fairway_runtime_sim
  fairway_compiler_native
  fairway_compiler_pjrt fairway_gpus fairway_life)
fairway_allocator(fairway-worker)
fairway_shipped(fairway-worker)
