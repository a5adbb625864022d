# SPDX-License-Identifier: Apache-2.0
# Declares libraries with their layer; an edge to the same or a higher layer stops the configuration,
# except between libraries of one folder (`area`), which form one part.

# Build all tests of a kind or of a part, whether there are any yet or not.
foreach(group unit unit-both sim conformance integration in-base in-core in-async in-graph in-transport in-scheduler)
  add_custom_target(tests-${group})
endforeach()

# fairway_headers(<target>): it takes what nearly every source includes from one precompiled header. Only in the preset
# asan, where all is compiled with one set of options, by clang: a small test took 3.9 s of processor time, and 2.0 with it. Sources include
# what they use all the same; the other presets would tell.
#
# Not target_precompile_headers: ccache must find in one checkout what it keeps from another. So no path of the checkout
# is in the header's bytes (it is made in /, of nothing of ours, and written by the shell) or in an option.
function(fairway_headers name)
  if(TARGET fairway_precompiled)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # -fPIE for executables
    target_compile_options(${name} PRIVATE ${same_options} "SHELL:-include-pch precompiled.pch")
    add_dependencies(${name} fairway_precompiled)
  endif()
endfunction()

if(FAIRWAY_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(same_options -fPIC -pthread)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  get_directory_property(options COMPILE_OPTIONS)
  list(FILTER options EXCLUDE REGEX "^-ffile-prefix-map=")
  set(includes)
  foreach(header absl/container/flat_hash_map.h absl/container/flat_hash_set.h absl/status/statusor.h
      absl/strings/str_cat.h absl/strings/str_format.h absl/strings/str_join.h absl/types/span.h algorithm functional
      gmock/gmock.h gtest/gtest.h map memory optional string thread utility variant vector)
    list(APPEND includes -include ${header})
  endforeach()
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/precompiled.pch
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} ${options} ${same_options} -std=c++20 -DGTEST_HAS_PTHREAD=1 ${includes}
      -x c++-header -Xclang -fno-pch-timestamp /dev/null -o - > ${CMAKE_BINARY_DIR}/precompiled.pch
    WORKING_DIRECTORY / VERBATIM)
  add_custom_target(fairway_precompiled DEPENDS ${CMAKE_BINARY_DIR}/precompiled.pch)
endif()

# fairway_library(<name> LAYER <n> [SRCS ...] [DEPS fairway libraries...] [LIBS other libraries...])
function(fairway_library name)
  cmake_parse_arguments(ARG "" "LAYER" "SRCS;DEPS;LIBS" ${ARGN})
  if(NOT ARG_LAYER)
    message(FATAL_ERROR "fairway_library(${name}): LAYER is missing")
  endif()
  file(RELATIVE_PATH where ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" area "${where}")
  foreach(dep ${ARG_DEPS})
    get_property(dep_layer GLOBAL PROPERTY fairway_layer_${dep})
    get_property(dep_area GLOBAL PROPERTY fairway_area_${dep})
    if(NOT dep_layer)
      message(FATAL_ERROR "${name} depends on ${dep}, which is not declared before it")
    endif()
    if(NOT dep_area STREQUAL area AND NOT dep_layer LESS ARG_LAYER)
      message(FATAL_ERROR
        "${name} (${area}, layer ${ARG_LAYER}) may not depend on ${dep} (${dep_area}, layer ${dep_layer})")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY fairway_layer_${name} ${ARG_LAYER})
  set_property(GLOBAL PROPERTY fairway_area_${name} ${area})
  if(ARG_SRCS)
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARG_SRCS})  # built for what needs it
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
    fairway_headers(${name})
    if(FAIRWAY_PLANTED_BUGS)
      target_compile_definitions(${name} PUBLIC FAIRWAY_PLANTED_BUGS=1)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_DEPS} ${ARG_LIBS})
  endif()
endfunction()

# fairway_allocator(<executable> [RETURNS_SOON]): it allocates with jemalloc; what is free goes back to the system soon.
# Sanitizers bring an allocator of their own.
function(fairway_allocator name)
  cmake_parse_arguments(ARG "RETURNS_SOON" "" "" ${ARGN})
  if(FAIRWAY_SANITIZE)
    return()
  endif()
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/base/allocator.cc)
  if(ARG_RETURNS_SOON)
    target_compile_definitions(${name} PRIVATE FAIRWAY_RETURNS_SOON)
  endif()
  target_link_libraries(${name} PRIVATE ${FAIRWAY_JEMALLOC})
endfunction()

# fairway_shipped(<target>): it is in the wheel (docs/design/0047-the-wheel.md). The programs are
# installed by `cmake --install --component programs` only, and not by `cmake --install` alone.
#
# There it finds its libraries in lib/fairway of its own prefix: by DT_RPATH, which counts for what the
# libraries need in turn, so that Debian's are shipped as they are, and which LD_LIBRARY_PATH does not
# override. The linker's build id tells the folder of the build, by what is stripped afterwards, so package/programs.py writes
# another one into its place.
function(fairway_shipped name)
  target_link_options(${name} PRIVATE LINKER:--disable-new-dtags LINKER:--build-id=sha1)
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/fairway")
    install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT programs EXCLUDE_FROM_ALL)
  else()
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/fairway")
  endif()
endfunction()

# fairway_unit_only(<executable>): `all` leaves it out of a build without sanitizers; tests-unit builds it.
function(fairway_unit_only name)
  if(NOT FAIRWAY_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# fairway_test(<name> SRCS ... DEPS ... [LABELS unit|unit-both|sim|integration|...] [TIMEOUT s]
#              [ENVIRONMENT NAME=value...])
# Targets tests-<label> and tests-in-<top folder> build all tests of a kind or of a part; tests-unit has those of
# unit-both, too. Continuous integration runs unit tests with the address sanitizer. Those that leave something out
# there have the label unit-both, and run without it as well.
function(fairway_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(FAIRWAY_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")  # for what hangs; there all takes some thirty times as long
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -O0)  # halves what compiling a test costs; what is tested is optimized
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  fairway_headers(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_LABELS STREQUAL "unit")
    fairway_unit_only(${name})
  endif()
  file(RELATIVE_PATH where ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" area "${where}")
  set(groups in-${area} ${ARG_LABELS})
  if(ARG_LABELS STREQUAL "unit-both")
    list(APPEND groups unit)
  endif()
  foreach(group ${groups})
    if(NOT TARGET tests-${group})
      add_custom_target(tests-${group})
    endif()
    add_dependencies(tests-${group} ${name})
  endforeach()
  # ctest asks each program for its tests, before it runs any. By default one that takes 5 s to answer, as programs with a
  # sanitizer may beside others, fails the whole run.
  if(ARG_ENVIRONMENT)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
      PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}")
  else()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
      PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  endif()
endfunction()

# fairway_proto_library(<name> ROOT <dir> [GRPC] PROTOS ...): protos are named relative to ROOT.
# CMake 3.25's protobuf_generate places its output by source directory, so this is our own.
function(fairway_proto_library name)
  cmake_parse_arguments(ARG "GRPC" "ROOT" "PROTOS" ${ARGN})
  get_filename_component(root ${ARG_ROOT} ABSOLUTE)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/gen/${name})
  file(MAKE_DIRECTORY ${out})
  foreach(proto ${ARG_PROTOS})
    string(REGEX REPLACE "[.]proto$" "" stem ${proto})
    set(files ${out}/${stem}.pb.h ${out}/${stem}.pb.cc)
    set(command protobuf::protoc -I ${root} --cpp_out=${out})
    if(ARG_GRPC)
      list(APPEND files ${out}/${stem}.grpc.pb.h ${out}/${stem}.grpc.pb.cc)
      list(APPEND command --grpc_out=${out} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
    endif()
    add_custom_command(OUTPUT ${files} COMMAND ${command} ${root}/${proto}
      DEPENDS ${root}/${proto} VERBATIM)
    list(APPEND sources ${files})
  endforeach()
  add_library(${name} STATIC ${sources})
  target_compile_options(${name} PRIVATE -w)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # protoc's files define the same names
  if(FAIRWAY_SANITIZE STREQUAL "address")
    target_compile_options(${name} PRIVATE -fno-sanitize=all)  # protoc's own code; it takes a minute
  endif()
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
  if(ARG_GRPC)
    target_link_libraries(${name} PUBLIC gRPC::grpc++)
  endif()
  set_property(GLOBAL PROPERTY fairway_layer_${name} 1)
  set_property(GLOBAL PROPERTY fairway_area_${name} proto)
endfunction()
