# SPDX-License-Identifier: Apache-2.0
# What the handlers of custom calls are built with (docs/design/0020-custom-calls.md): the XLA FFI
# headers of version 0.2, which come from a wheel and are fetched once, and OpenBLAS.
set(FAIRWAY_FFI_INCLUDE "${CMAKE_SOURCE_DIR}/.deps/jaxlib-0.8.2/include" CACHE PATH
  "Directory of xla/ffi/api/c_api.h, version 0.2")
if(NOT EXISTS ${FAIRWAY_FFI_INCLUDE}/xla/ffi/api/c_api.h)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/cmake/fetch_ffi_headers.sh ${FAIRWAY_FFI_INCLUDE}
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "no XLA FFI headers in ${FAIRWAY_FFI_INCLUDE} and fetching them failed")
  endif()
endif()
file(STRINGS ${FAIRWAY_FFI_INCLUDE}/xla/ffi/api/c_api.h version REGEX "define XLA_FFI_API_M(AJ|IN)OR")
if(NOT version MATCHES "MAJOR 0.*MINOR 2")
  message(FATAL_ERROR "${FAIRWAY_FFI_INCLUDE} has XLA FFI headers of another version than 0.2, "
    "which plugins would refuse without a word: ${version}")
endif()

# 64-bit integers, for there no workspace overflows. The flavour for threads, run with one: Debian's
# serial one has no locks, and two devices that call it at once corrupt each other. By its folder,
# since `alternatives` may point the usual name at another flavour.
find_library(FAIRWAY_OPENBLAS openblas64
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas64-pthread NO_DEFAULT_PATH REQUIRED
  DOC "OpenBLAS with 64-bit integers, safe for threads")
