# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, linker and the packages that everything uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

set(FAIRWAY_SANITIZE "" CACHE STRING "address, thread or fuzz; empty for none")
option(FAIRWAY_PLANTED_BUGS "Compile the test-only switches that break one rule each" OFF)
set(FAIRWAY_PJRT_INCLUDE "" CACHE PATH "Directory of pjrt_c_api.h (from the xla-cpu-pjrt wheel)")

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Werror=return-type -Werror=switch)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-subobject-linkage)  # our sources are not its main file
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects garbage only when it has a GB: a tenth less processor time over 24 sources, a quarter more memory (1.2 GB at most).
  add_compile_options(--param=ggc-min-expand=1000 --param=ggc-min-heapsize=1000000)
endif()
if(FAIRWAY_SANITIZE STREQUAL "address")
  # The preset takes clang, which builds this in half of g++'s time.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=function -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(FAIRWAY_SANITIZE STREQUAL "fuzz")  # clang only; tests/fuzz links -fsanitize=fuzzer
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr,function
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(FAIRWAY_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
if(FAIRWAY_SANITIZE)
  add_compile_definitions(FAIRWAY_SANITIZED)
endif()

find_program(FAIRWAY_CCACHE ccache)
if(FAIRWAY_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${FAIRWAY_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FAIRWAY_CCACHE})
else()
  # ccache writes paths relative to the checkout (CCACHE_BASEDIR, ./dev), and by that no path of the
  # machine gets into an object. Without it, this does so.
  add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=../..)
endif()
# Not mold: that of Debian 12 (1.10) spins without end on some layouts, and now and then with oneTBB 2021.8.
find_program(FAIRWAY_LLD ld.lld)
if(FAIRWAY_LLD)
  add_link_options(-fuse-ld=lld)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)  # before gRPC: Debian ships a module, no package config
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
find_package(GTest CONFIG REQUIRED)
if(NOT FAIRWAY_SANITIZE)
  find_library(FAIRWAY_JEMALLOC jemalloc REQUIRED)
endif()
include(GoogleTest)
enable_testing()
