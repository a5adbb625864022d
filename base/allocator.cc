// SPDX-License-Identifier: Apache-2.0
// How jemalloc, which the daemons are linked with, is to behave; MALLOC_CONF in the environment is
// heard after it. Linked into each executable as a source, because jemalloc looks the symbol up.
//
// - Few arenas: what one thread freed, another takes. A step's objects are made by one thread and
//   destroyed by another, and a program's temporaries are allocated anew at every run.
// - Blocks of any size are kept for ten seconds: pages fresh from the kernel cost more than copying
//   into them. What is not used by then goes back, also when the process is idle. Not in the
//   controller, whose memory is bounded while any number of bytes passes through it: there, blocks
//   of 8 MiB and more go back at once.
#ifdef FAIRWAY_RETURNS_LARGE_BLOCKS
#define FAIRWAY_LARGE_BLOCKS "oversize_threshold:8388608"
#else
#define FAIRWAY_LARGE_BLOCKS "oversize_threshold:0"
#endif
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:4," FAIRWAY_LARGE_BLOCKS
                          ",dirty_decay_ms:10000,background_thread:true,max_background_threads:1";
}
