# SPDX-License-Identifier: Apache-2.0
fairway_library(fairway_life LAYER 5 SRCS ../life.cc DEPS fairway_base LIBS Threads::Threads)
fairway_library(fairway_executor LAYER 5
  SRCS bell.cc buffer_table.cc client_calls.cc cut_out.cc executor_process.cc executor_session.cc gang_ends.cc gang_exchanges.cc
       gang_pushes.cc launch_queues.cc one_cpu.cc report_batches.cc run_executor.cc serve_arguments.cc shared_lanes.cc
       session_transfers.cc
  DEPS fairway_executor_core fairway_life fairway_runtime fairway_ffi fairway_checksum fairway_compile_pool
       fairway_registration fairway_controller_link)
fairway_test(cut_out_test SRCS cut_out_test.cc DEPS fairway_executor fairway_runtime_fake)
fairway_test(executor_session_test SRCS executor_session_test.cc
  DEPS fairway_executor fairway_runtime_fake)
fairway_test(launch_queues_test SRCS launch_queues_test.cc
  DEPS fairway_executor fairway_runtime_fake)
fairway_test(gang_exchanges_test SRCS gang_exchanges_test.cc gang_exchanges_cpu_test.cc
  DEPS fairway_executor fairway_runtime_host)
fairway_test(gang_ends_test SRCS gang_ends_test.cc DEPS fairway_executor)
fairway_test(one_cpu_test SRCS one_cpu_test.cc DEPS fairway_executor)
fairway_test(shared_lanes_test SRCS shared_lanes_test.cc DEPS fairway_executor)
fairway_test(client_calls_test SRCS client_calls_test.cc DEPS fairway_executor)
